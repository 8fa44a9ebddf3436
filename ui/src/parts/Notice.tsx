// SPDX-License-Identifier: Apache-2.0
import type { Mark } from '../lib/state';
import { Shape } from './Mark';
import css from './Notice.module.css';

interface Props {
  mark: Mark;
  title?: React.ReactNode;
  children?: React.ReactNode;
  role?: 'alert' | 'status';
}

/** Notice is a box about a state: shape, words, colour. */
export function Notice({ mark, title, children, role }: Props) {
  return (
    <div className={`${css.notice} ${css[mark]}`} role={role}>
      <Shape mark={mark} />
      <div className={css.words}>
        {title && <p className={css.title}>{title}</p>}
        {children}
      </div>
    </div>
  );
}
