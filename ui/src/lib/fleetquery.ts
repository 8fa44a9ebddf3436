// SPDX-License-Identifier: Apache-2.0
import type { FleetRow, Issue } from './fleetrow';
import { issues } from './fleetrow';
import type { Mark } from './state';
import { marks } from './state';
import { compareVersions } from './versions';

/** sortKeys are what the fleet can be ordered by. */
export const sortKeys = ['name', 'state', 'talos', 'kubernetes', 'machines', 'operation'] as const;
export type SortKey = (typeof sortKeys)[number];

/** FleetQuery is what the fleet page shows; all of it is in the address. */
export interface FleetQuery {
  text: string;
  marks: readonly Mark[];
  issue: Issue | '';
  /** group is the key of a label, "namespace", or empty. */
  group: string;
  sort: SortKey;
  descending: boolean;
}

/** parseFleetQuery reads an address. What it does not know it leaves out: a link may come from another version. */
export function parseFleetQuery(search: string): FleetQuery {
  const params = new URLSearchParams(search);
  const sort = params.get('sort') ?? 'name';
  const key = sort.replace(/^-/, '');
  const known = (sortKeys as readonly string[]).includes(key);
  const wantedMarks = (params.get('state') ?? '').split(',');
  const issue = params.get('issue') ?? '';
  return {
    text: params.get('q') ?? '',
    marks: marks.filter((mark) => wantedMarks.includes(mark)),
    issue: (issues as readonly string[]).includes(issue) ? (issue as Issue) : '',
    group: params.get('group') ?? '',
    sort: known ? (key as SortKey) : 'name',
    descending: known && sort.startsWith('-'),
  };
}

/** formatFleetQuery writes an address: the inverse of parseFleetQuery. What is as usual is left out. */
export function formatFleetQuery(query: FleetQuery): string {
  const params = new URLSearchParams();
  const set = (name: string, value: string) => value !== '' && params.set(name, value);
  set('q', query.text);
  set('state', query.marks.join(','));
  set('issue', query.issue);
  set('group', query.group);
  const sort = (query.descending ? '-' : '') + query.sort;
  set('sort', sort === 'name' ? '' : sort);
  return params.toString();
}

/** words are the parts of a search: all of them must be found. */
function words(text: string): string[] {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

/** filterRows are the rows that a query selects. */
export function filterRows(rows: readonly FleetRow[], query: FleetQuery): readonly FleetRow[] {
  const searched = words(query.text);
  if (searched.length === 0 && query.marks.length === 0 && query.issue === '') {
    return rows;
  }
  return rows.filter(
    (row) =>
      (query.marks.length === 0 || query.marks.includes(row.mark)) &&
      (query.issue === '' || row.issues.includes(query.issue)) &&
      searched.every((word) => row.text.includes(word)),
  );
}

const byName = (a: FleetRow, b: FleetRow) =>
  a.name < b.name ? -1 : a.name > b.name ? 1 : a.namespace < b.namespace ? -1 : 1;

const progress = (row: FleetRow) => (row.operation ? (row.operation.completed + 1) / (row.operation.total + 1) : 0);

const orders: Record<SortKey, (a: FleetRow, b: FleetRow) => number> = {
  name: byName,
  state: (a, b) => marks.indexOf(b.mark) - marks.indexOf(a.mark),
  talos: (a, b) => compareVersions(a.talos, b.talos),
  kubernetes: (a, b) => compareVersions(a.kubernetes, b.kubernetes),
  machines: (a, b) => a.machines - b.machines,
  operation: (a, b) => progress(a) - progress(b),
};

/** sortRows orders rows; equal ones are ordered by name, whatever the direction. */
export function sortRows(rows: readonly FleetRow[], sort: SortKey, descending: boolean): FleetRow[] {
  const order = orders[sort];
  const sign = descending ? -1 : 1;
  return [...rows].sort((a, b) => sign * order(a, b) || byName(a, b));
}

/** GroupLine begins a group of rows. */
export interface GroupLine {
  group: string;
  rows: number;
  counts: Partial<Record<Mark, number>>;
}

/** Line is a line of the table. */
export type Line = { key: string; group: GroupLine } | { key: string; row: FleetRow };

/** groupValue is the group of a row; undefined is that of the rows which have none. */
export function groupValue(row: FleetRow, group: string): string | undefined {
  return group === 'namespace' ? row.namespace : row.labels[group];
}

/** groupLines puts rows, which are in order already, below their groups; rows of closed groups are left out. */
export function groupLines(rows: readonly FleetRow[], group: string, closed: ReadonlySet<string>): Line[] {
  if (group === '') {
    return rows.map((row) => ({ key: row.key, row }));
  }
  const groups = new Map<string, FleetRow[]>();
  for (const row of rows) {
    const value = groupValue(row, group) ?? '';
    const members = groups.get(value);
    if (members) {
      members.push(row);
    } else {
      groups.set(value, [row]);
    }
  }
  // Rows without the label come last.
  const names = [...groups.keys()].sort((a, b) => (a === '' ? 1 : b === '' ? -1 : a < b ? -1 : 1));
  return names.flatMap((name) => groupOf(name, groups.get(name) ?? [], closed.has(name)));
}

function groupOf(name: string, members: readonly FleetRow[], closed: boolean): Line[] {
  const head: Line = {
    key: `group:${name}`,
    group: { group: name, rows: members.length, counts: countMarks(members) },
  };
  return closed ? [head] : [head, ...members.map((row) => ({ key: row.key, row }))];
}

/** countMarks counts rows by their marks. */
export function countMarks(rows: readonly FleetRow[]): Partial<Record<Mark, number>> {
  const counts: Partial<Record<Mark, number>> = {};
  for (const row of rows) {
    counts[row.mark] = (counts[row.mark] ?? 0) + 1;
  }
  return counts;
}

/** FleetCounts are the figures at the top of the page. */
export interface FleetCounts {
  clusters: number;
  marks: Partial<Record<Mark, number>>;
  issues: Record<Issue, number>;
  machines: number;
  ready: number;
  running: number;
}

/** countFleet counts what the top of the page shows. */
export function countFleet(rows: readonly FleetRow[]): FleetCounts {
  const counts: FleetCounts = {
    clusters: rows.length,
    marks: countMarks(rows),
    issues: { failed: 0, person: 0, unreachable: 0, credentials: 0, drift: 0 },
    machines: 0,
    ready: 0,
    running: 0,
  };
  for (const row of rows) {
    counts.machines += row.machines;
    counts.ready += row.ready;
    counts.running += row.running;
    for (const issue of row.issues) {
      counts.issues[issue]++;
    }
  }
  return counts;
}

/** attentionRows are those that belong on top, the most urgent first, no more than limit. */
export function attentionRows(rows: readonly FleetRow[], limit: number): FleetRow[] {
  const found = rows.filter((row) => row.mark === 'failed' || row.mark === 'person' || row.mark === 'soon');
  return found.sort((a, b) => b.attention - a.attention || byName(a, b)).slice(0, limit);
}

/** The label that is another one on every cluster: nothing to group by. */
const ownName = 'cluster.x-k8s.io/cluster-name';

/** labelKeys are the keys that rows can be grouped by. */
export function labelKeys(rows: readonly FleetRow[]): string[] {
  const keys = new Set<string>();
  for (const row of rows) {
    for (const key in row.labels) {
      keys.add(key);
    }
  }
  keys.delete(ownName);
  return [...keys].sort();
}
