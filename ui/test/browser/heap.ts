// SPDX-License-Identifier: Apache-2.0
import type { CDPSession } from 'playwright-core';

/** Sizes are the bytes of what lives on a heap, by the sort and the name of the objects. */
export type Sizes = Map<string, number>;

interface Snapshot {
  snapshot: { meta: { node_fields: string[]; node_types: [string[], ...unknown[]] } };
  nodes: number[];
  strings: string[];
}

/** liveSizes collects garbage, and weighs what is left. The figure of the browser itself has compiled code in it, and what awaits its collection. */
export async function liveSizes(session: CDPSession): Promise<Sizes> {
  const chunks: string[] = [];
  const add = ({ chunk }: { chunk: string }) => chunks.push(chunk);
  session.on('HeapProfiler.addHeapSnapshotChunk', add);
  await session.send('HeapProfiler.collectGarbage');
  await session.send('HeapProfiler.takeHeapSnapshot', { reportProgress: false });
  session.off('HeapProfiler.addHeapSnapshotChunk', add);
  return sizesOf(JSON.parse(chunks.join('')));
}

function sizesOf({ snapshot, nodes, strings }: Snapshot): Sizes {
  const { node_fields: fields, node_types: types } = snapshot.meta;
  const [type, name, size] = ['type', 'name', 'self_size'].map((field) => fields.indexOf(field)) as [
    number,
    number,
    number,
  ];
  const sizes: Sizes = new Map();
  for (let at = 0; at < nodes.length; at += fields.length) {
    const sort = types[0][nodes[at + type] ?? 0] ?? '';
    // Texts are their own names; code has that of its function.
    const named = sort === 'object' || sort === 'native' ? ` ${strings[nodes[at + name] ?? 0]?.slice(0, 60)}` : '';
    sizes.set(sort + named, (sizes.get(sort + named) ?? 0) + (nodes[at + size] ?? 0));
  }
  return sizes;
}

/** sumOf are the bytes of the sorts that pass. */
export function sumOf(sizes: Sizes, passes: (sort: string) => boolean): number {
  return [...sizes].reduce((sum, [sort, size]) => sum + (passes(sort) ? size : 0), 0);
}

/** grown are the sorts that grew the most, with the bytes by which they did. */
export function grown(before: Sizes, after: Sizes, count: number): [string, number][] {
  return [...after]
    .map(([sort, size]): [string, number] => [sort, size - (before.get(sort) ?? 0)])
    .sort((a, b) => b[1] - a[1])
    .slice(0, count);
}
