// SPDX-License-Identifier: Apache-2.0

import type { Range } from '@tanstack/react-virtual';
import { defaultRangeExtractor, useWindowVirtualizer } from '@tanstack/react-virtual';
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'react';
import { indexAfterKey } from '../lib/gridkeys';
import { useMedia } from './useMedia';

interface Props<Line> {
  label: string;
  lines: readonly Line[];
  keyOf: (line: Line) => string;
  /** head is the row of titles. */
  head: React.ReactNode;
  columns: number;
  height: number;
  phoneHeight: number;
  className?: string | undefined;
  /** line draws the cells of a line; what gets the focus in it has the attribute data-line. */
  line: (line: Line, active: boolean) => React.ReactNode;
}

/**
 * VirtualGrid is a table of any length. It is one stop of the Tab key; arrows, Home, End, Page Up and Page Down move in it. Lines that come and go above
 * neither move what is looked at, nor take the focus away.
 */
export function VirtualGrid<Line>({
  label,
  lines,
  keyOf,
  head,
  columns,
  height,
  phoneHeight,
  className,
  line,
}: Props<Line>) {
  const body = useRef<HTMLDivElement>(null);
  const phone = useMedia('(max-width: 720px)');
  const size = phone ? phoneHeight : height;
  const { active, activeIndex, move, restore } = useActiveLine(lines, keyOf, body);
  const margin = useOffset(body);
  const virtual = useWindowVirtualizer({
    count: lines.length,
    estimateSize: () => size,
    overscan: 10,
    scrollMargin: margin,
    // What sticks to the top must not cover the line that the keyboard goes to.
    scrollPaddingStart: 90,
    getItemKey: useCallback((index: number) => keyOf(lines[index] as Line), [lines, keyOf]),
    // The line with the focus stays in the page wherever it is scrolled to, or the focus would be lost.
    rangeExtractor: useCallback((range: Range) => withIndex(defaultRangeExtractor(range), activeIndex), [activeIndex]),
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: lines are measured anew when their height is another one.
  useEffect(() => virtual.measure(), [size]);
  useAnchor(lines, keyOf, size, margin);
  useLayoutEffect(restore);

  const press = (event: React.KeyboardEvent) => {
    const page = Math.max(1, Math.floor(window.innerHeight / size) - 4);
    const next = indexAfterKey(event.key, activeIndex, lines.length, page);
    if (next === undefined || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    event.preventDefault();
    virtual.scrollToIndex(next);
    move(next);
  };
  return (
    <div
      role="grid"
      aria-label={label}
      aria-rowcount={lines.length + 1}
      aria-colcount={columns}
      className={className}
      onKeyDown={press}
    >
      {head}
      <div ref={body} role="rowgroup" style={{ position: 'relative', height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const shown = lines[item.index] as Line;
          return (
            <div
              key={item.key}
              role="row"
              tabIndex={-1}
              data-row={keyOf(shown)}
              aria-rowindex={item.index + 2}
              style={{
                position: 'absolute',
                top: 0,
                left: 0,
                right: 0,
                height: size,
                transform: `translateY(${item.start - margin}px)`,
              }}
            >
              {line(shown, item.index === active)}
            </div>
          );
        })}
      </div>
    </div>
  );
}

function withIndex(indexes: number[], index: number): number[] {
  return index < 0 || indexes.includes(index) ? indexes : [...indexes, index].sort((a, b) => a - b);
}

/** useActiveLine knows which line the Tab key leads to, and gives it the focus back where an update took it. */
function useActiveLine<Line>(
  lines: readonly Line[],
  keyOf: (line: Line) => string,
  body: React.RefObject<HTMLDivElement | null>,
) {
  const [key, setKey] = useState<string | undefined>(undefined);
  const focused = useRef(false);
  const activeIndex = useMemo(
    () => (key === undefined ? -1 : lines.findIndex((line) => keyOf(line) === key)),
    [lines, keyOf, key],
  );

  useEffect(() => {
    const element = body.current;
    const came = (event: FocusEvent) => {
      const row = (event.target as Element).closest<HTMLElement>('[data-row]');
      focused.current = row !== null;
      if (row) {
        setKey(row.dataset.row);
      }
    };
    // When the browser takes the focus from an element that is moved, it goes nowhere.
    const left = (event: FocusEvent) => {
      focused.current = event.relatedTarget === null && event.target instanceof Element && !event.target.isConnected;
    };
    element?.addEventListener('focusin', came);
    element?.addEventListener('focusout', left);
    return () => {
      element?.removeEventListener('focusin', came);
      element?.removeEventListener('focusout', left);
    };
  }, [body]);

  const restore = () => {
    if (focused.current && key !== undefined && document.activeElement === document.body) {
      body.current
        ?.querySelector<HTMLElement>(`[data-row="${CSS.escape(key)}"] [data-line]`)
        ?.focus({ preventScroll: true });
    }
  };
  const move = (index: number) => {
    const line = lines[index];
    if (line !== undefined) {
      const next = keyOf(line);
      setKey(next);
      focused.current = true;
      requestAnimationFrame(() => {
        body.current
          ?.querySelector<HTMLElement>(`[data-row="${CSS.escape(next)}"] [data-line]`)
          ?.focus({ preventScroll: true });
      });
    }
  };
  return { active: Math.max(activeIndex, 0), activeIndex, move, restore };
}

/** useOffset is how far below the top of the page something begins. What stands above it can grow. */
function useOffset(element: React.RefObject<HTMLElement | null>): number {
  const [offset, setOffset] = useState(0);
  useLayoutEffect(() => {
    const measure = () => {
      if (element.current) {
        setOffset(Math.round(element.current.getBoundingClientRect().top + window.scrollY));
      }
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(document.body);
    return () => observer.disconnect();
  }, [element]);
  return offset;
}

/** useAnchor keeps the line at the top of the window where it is when lines above it come or go. */
function useAnchor<Line>(lines: readonly Line[], keyOf: (line: Line) => string, size: number, margin: number): void {
  const before = useRef(lines);
  useLayoutEffect(() => {
    const old = before.current;
    before.current = lines;
    const first = Math.floor((window.scrollY + 90 - margin) / size);
    const anchor = old[first];
    if (old === lines || first <= 0 || anchor === undefined) {
      return;
    }
    const key = keyOf(anchor);
    const now = lines[first] && keyOf(lines[first]) === key ? first : lines.findIndex((line) => keyOf(line) === key);
    if (now >= 0 && now !== first) {
      window.scrollBy(0, (now - first) * size);
    }
  }, [lines, keyOf, size, margin]);
}
