// SPDX-License-Identifier: Apache-2.0
import css from './Facts.module.css';

/** Facts are names and values. */
export function Facts({ children }: { children: React.ReactNode }) {
  return <dl className={css.facts}>{children}</dl>;
}

/** Fact is one of them; what has no value is left out. */
export function Fact({ name, wide, children }: { name: string; wide?: boolean; children: React.ReactNode }) {
  if (children === undefined || children === null || children === '' || children === false) {
    return null;
  }
  return (
    <div className={`${css.fact} ${wide ? css.wide : ''}`}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
