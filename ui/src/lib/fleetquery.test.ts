// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from 'vitest';
import type { FleetQuery } from './fleetquery';
import {
  attentionRows,
  countFleet,
  filterRows,
  formatFleetQuery,
  groupLines,
  labelKeys,
  parseFleetQuery,
  sortRows,
} from './fleetquery';
import { aRow } from './testing';

const usual: FleetQuery = { text: '', marks: [], issue: '', group: '', sort: 'name', descending: false };

describe('the address', () => {
  it('is empty for what is usual', () => {
    expect(formatFleetQuery(usual)).toBe('');
    expect(parseFleetQuery('')).toEqual(usual);
  });
  it('holds everything, and gives it back', () => {
    const query: FleetQuery = {
      text: 'env=prod a&b',
      marks: ['failed', 'person'],
      issue: 'drift',
      group: 'region',
      sort: 'talos',
      descending: true,
    };
    expect(parseFleetQuery(formatFleetQuery(query))).toEqual(query);
  });
  it('leaves out what it does not know', () => {
    expect(parseFleetQuery('?state=failed,bogus&issue=bogus&sort=-bogus&x=y')).toEqual({ ...usual, marks: ['failed'] });
  });
});

describe('filterRows', () => {
  const rows = [
    aRow('alpha', { text: 'alpha\nenv=prod', mark: 'failed', issues: ['failed'] }),
    aRow('bravo', { text: 'bravo\nenv=prod', issues: ['drift'] }),
    aRow('charlie', { text: 'charlie\nenv=dev' }),
  ];
  const names = (query: Partial<FleetQuery>) => filterRows(rows, { ...usual, ...query }).map((row) => row.name);
  it('finds all words, whatever their case', () => {
    expect(names({ text: 'ENV=prod BRA' })).toEqual(['bravo']);
    expect(names({ text: 'env=prod charlie' })).toEqual([]);
  });
  it('selects states and issues', () => {
    expect(names({ marks: ['failed', 'ok'] })).toEqual(['alpha', 'bravo', 'charlie']);
    expect(names({ marks: ['failed'] })).toEqual(['alpha']);
    expect(names({ issue: 'drift' })).toEqual(['bravo']);
  });
  it('copies nothing when there is nothing to filter', () => {
    expect(filterRows(rows, usual)).toBe(rows);
  });
});

describe('sortRows', () => {
  const rows = [
    aRow('b', { mark: 'failed' }),
    aRow('c', { talos: 'v1.9.1' }),
    aRow('a', { talos: 'v1.10.0', mark: 'soon' }),
  ];
  const names = (sort: FleetQuery['sort'], descending: boolean) =>
    sortRows(rows, sort, descending).map((row) => row.name);
  it('orders versions as numbers, and states by urgency', () => {
    expect(names('talos', false)).toEqual(['c', 'a', 'b']);
    expect(names('state', true)).toEqual(['b', 'a', 'c']);
    expect(names('name', true)).toEqual(['c', 'b', 'a']);
  });
  it('orders what is equal by name, in both directions', () => {
    expect(names('machines', true)).toEqual(['a', 'b', 'c']);
    expect(names('machines', false)).toEqual(['a', 'b', 'c']);
  });
});

describe('groupLines', () => {
  const rows = [
    aRow('a', { labels: { env: 'prod' }, mark: 'failed' }),
    aRow('b'),
    aRow('c', { labels: { env: 'dev' } }),
    aRow('d', { labels: { env: 'prod' } }),
  ];
  it('puts rows below their groups, those without the label last', () => {
    expect(groupLines(rows, 'env', new Set()).map((line) => line.key)).toEqual([
      'group:dev',
      'ns/c',
      'group:prod',
      'ns/a',
      'ns/d',
      'group:',
      'ns/b',
    ]);
  });
  it('leaves out the rows of closed groups, and counts them', () => {
    const lines = groupLines(rows, 'env', new Set(['prod']));
    expect(lines.map((line) => line.key)).toEqual(['group:dev', 'ns/c', 'group:prod', 'group:', 'ns/b']);
    expect(lines[2]).toMatchObject({ group: { rows: 2, counts: { failed: 1, ok: 1 } } });
  });
  it('groups by namespace', () => {
    expect(groupLines(rows, 'namespace', new Set())).toHaveLength(5);
  });
});

it('counts the fleet', () => {
  const rows = [aRow('a', { mark: 'failed', issues: ['failed', 'drift'], running: 2 }), aRow('b', { ready: 1 })];
  expect(countFleet(rows)).toEqual({
    clusters: 2,
    marks: { failed: 1, ok: 1 },
    issues: { failed: 1, person: 0, unreachable: 0, credentials: 0, drift: 1 },
    machines: 6,
    ready: 4,
    running: 2,
  });
});

it('puts the most urgent on top', () => {
  const rows = [
    aRow('a', { mark: 'soon', attention: 3 }),
    aRow('b', { mark: 'failed', attention: 5 }),
    aRow('c'),
    aRow('d', { mark: 'waiting', attention: 2 }),
  ];
  expect(attentionRows(rows, 10).map((row) => row.name)).toEqual(['b', 'a']);
  expect(attentionRows(rows, 1).map((row) => row.name)).toEqual(['b']);
});

it('knows the labels', () => {
  expect(labelKeys([aRow('a', { labels: { z: '1' } }), aRow('b', { labels: { a: '1', z: '2' } })])).toEqual(['a', 'z']);
});
