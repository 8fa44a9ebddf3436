// SPDX-License-Identifier: Apache-2.0
import { useId } from 'react';
import css from './Section.module.css';

interface Props {
  title: string;
  aside?: React.ReactNode;
  /** bare leaves out the box, for tables that have lines of their own. */
  bare?: boolean;
  children: React.ReactNode;
}

/** Section is a part of a page, with its name. */
export function Section({ title, aside, bare, children }: Props) {
  const id = useId();
  return (
    <section className={css.section} aria-labelledby={id}>
      <div className={css.head}>
        <h2 id={id}>{title}</h2>
        {aside}
      </div>
      {bare ? children : <div className={css.box}>{children}</div>}
    </section>
  );
}

/** Page is a page: everything in one column. */
export function Page({ children }: { children: React.ReactNode }) {
  return <div className={css.page}>{children}</div>;
}

/** Quiet is what stands where there is nothing to show. */
export function Quiet({ children }: { children: React.ReactNode }) {
  return <p className={css.quiet}>{children}</p>;
}
