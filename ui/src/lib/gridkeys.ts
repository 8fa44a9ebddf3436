// SPDX-License-Identifier: Apache-2.0

/** indexAfterKey is the line that a key leads to; undefined if the key is none that moves. */
export function indexAfterKey(key: string, index: number, count: number, page: number): number | undefined {
  const from = Math.max(index, 0);
  const to: Record<string, number> = {
    ArrowDown: from + 1,
    ArrowUp: from - 1,
    PageDown: from + page,
    PageUp: from - page,
    Home: 0,
    End: count - 1,
  };
  const next = to[key];
  return next === undefined ? undefined : Math.min(count - 1, Math.max(0, next));
}
