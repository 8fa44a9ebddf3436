// SPDX-License-Identifier: Apache-2.0
import css from './Diff.module.css';

/** lookOf is how a line of a unified diff looks; its sign says the same. */
function lookOf(line: string): string | undefined {
  if (line.startsWith('+++') || line.startsWith('---') || line.startsWith('@@')) {
    return css.place;
  }
  return line.startsWith('+') ? css.more : line.startsWith('-') ? css.less : undefined;
}

/** Diff is a unified diff. */
export function Diff({ text }: { text: string }) {
  return (
    <pre className={css.diff}>
      {text
        .replace(/\n$/, '')
        .split('\n')
        .map((line, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: lines never move, and many are the same.
          <span key={index} className={lookOf(line)}>
            {line}
            {'\n'}
          </span>
        ))}
    </pre>
  );
}
