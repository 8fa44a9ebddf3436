// SPDX-License-Identifier: Apache-2.0
import type { Mark } from '../lib/state';
import css from './Progress.module.css';

/** Progress is a bar; its words must stand beside it, or in its label. */
export function Progress({ done, total, mark, label }: { done: number; total: number; mark: Mark; label: string }) {
  const share = total > 0 ? Math.min(1, done / total) : 0;
  return (
    <span
      className={css.track}
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={total || 1}
      aria-valuenow={done}
    >
      <span className={`${css.bar} ${css[mark]}`} style={{ width: `${share * 100}%` }} />
    </span>
  );
}
