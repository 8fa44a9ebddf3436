// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import type { Mark as MarkName } from '../lib/state';
import css from './Mark.module.css';

/** Each mark has an outline of its own, so that it is known without its colour. */
const shapes: Record<MarkName, React.ReactNode> = {
  failed: (
    <>
      <path className={css.solid} d="M5 1h6l4 4v6l-4 4H5l-4-4V5z" />
      <path className={css.cut} d="m5.5 5.5 5 5m0-5-5 5" />
    </>
  ),
  person: (
    <>
      <rect className={css.solid} x="1.5" y="1.5" width="13" height="13" />
      <path className={css.cut} d="M8 4v5m0 2v1.6" />
    </>
  ),
  soon: (
    <>
      <path className={css.line} d="M8 2 14.8 14H1.2z" />
      <path className={css.line} d="M8 6.5v3.6m0 1.2v1.2" />
    </>
  ),
  waiting: (
    <>
      <circle className={css.line} cx="8" cy="8" r="6.2" />
      <path className={css.line} d="M8 4.5V8l2.6 1.8" />
    </>
  ),
  running: <path className={css.solid} d="M3 1.5 14 8 3 14.5z" />,
  ok: <path className={css.line} d="m2.5 8.5 3.7 4 7.3-9" />,
  unknown: <circle className={css.dashed} cx="8" cy="8" r="6.2" />,
};

/** Shape is a mark without its word; the word must stand beside it. */
export function Shape({ mark }: { mark: MarkName }) {
  return (
    <svg className={`${css.shape} ${css[mark]}`} viewBox="0 0 16 16" aria-hidden="true">
      {shapes[mark]}
    </svg>
  );
}

/** Mark is a state: its shape and its word. */
export function Mark({ mark, children }: { mark: MarkName; children?: React.ReactNode }) {
  const { t } = useTranslation();
  return (
    <span className={css.mark}>
      <Shape mark={mark} />
      <span className={css[mark]}>{children ?? t(`mark.${mark}`)}</span>
    </span>
  );
}
