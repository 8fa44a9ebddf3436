// SPDX-License-Identifier: Apache-2.0
import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { describe, expect, it } from 'vitest';
import { asciiText } from '../api/text';
import { AuditEntrySchema, AuditResult } from '../gen/ichor/v1alpha1/hub_pb';
import {
  Confirmation,
  OperationKind,
  OperationPhase,
  OperationSchema,
  PlanSchema,
} from '../gen/ichor/v1alpha1/operation_pb';
import { Attention } from '../gen/ichor/v1alpha1/types_pb';
import { auditFilter, formatAuditQuery, joinEntries, parseAuditQuery } from './auditquery';
import { cli, quote } from './cli';
import { indexAfterKey } from './gridkeys';
import { filterOperations, formatOperationQuery, parseOperationQuery } from './operationquery';
import { awaitedOf, rewritten, stagesOf, steerings, steerObstacle, turnedBack, urgentFirst } from './operations';
import { changesOf, confirmationName, machinesOf, sameOrder } from './plans';
import { clusterPath, operationPath } from './refs';
import { rightsIn, startVerb } from './rights';

it('quotes what a shell would take apart', () => {
  expect(quote('a-b.c')).toBe('a-b.c');
  expect(quote("it's; rm")).toBe("'it'\\''s; rm'");
  expect(quote('')).toBe("''");
  expect(cli.resume({ namespace: 'ns', name: 'op' })).toBe('ichor operation resume op -n ns');
  const cluster = { namespace: 'ns', name: 'c1' };
  expect(cli.takeSnapshot(cluster, '')).toBe('ichor snapshot take --cluster c1 -n ns');
  expect(cli.takeSnapshot(cluster, 'a b')).toBe("ichor snapshot take --cluster c1 --name 'a b' -n ns");
  expect(cli.exportBundle(cluster)).toBe('ichor cluster bundle-export c1 --file c1-secrets.yaml -n ns');
  expect(cli.confirm(cluster, 'Await')).toBe('ichor operation confirm c1 --stage Await -n ns');
});

it('decodes short texts as the browser does, and leaves the others to it', () => {
  const bytes = (text: string) => new TextEncoder().encode(text);
  expect(asciiText(bytes('v1.13.2'))).toBe('v1.13.2');
  expect(asciiText(bytes(''))).toBe('');
  expect(asciiText(bytes('東京'))).toBeUndefined();
  expect(asciiText(bytes('a'.repeat(49)))).toBeUndefined();
});

it('makes addresses', () => {
  expect(clusterPath({ namespace: 'a b', name: 'c' })).toBe('/clusters/a%20b/c');
  expect(operationPath({ namespace: 'ns', name: 'op' })).toBe('/operations/ns/op');
});

describe('indexAfterKey', () => {
  it.each([
    ['ArrowDown', 3, 4],
    ['ArrowUp', 0, 0],
    ['ArrowDown', 9, 9],
    ['PageDown', 0, 5],
    ['PageUp', 3, 0],
    ['End', 0, 9],
    ['Home', 7, 0],
    ['ArrowDown', -1, 1],
    ['x', 3, undefined],
  ] as const)('%s from %i: %s', (key, index, next) => {
    expect(indexAfterKey(key, index, 10, 5)).toBe(next);
  });
});

describe('rights', () => {
  const of = (namespace: string, start: string[], operate = true) =>
    ({ namespace, read: true, operate, start, override: false, machines: false, clusters: false }) as never;
  it('join those in a namespace with those everywhere', () => {
    const rights = rightsIn([of('', ['talos'], false), of('a', ['node']), of('b', ['config'])], 'a');
    expect([...rights.start]).toEqual(['talos', 'node']);
    expect(rights.operate).toBe(true);
    expect(rightsIn([of('b', ['node'])], 'a')).toMatchObject({ read: false, operate: false });
  });
  it('have a verb for each action on a machine', () => {
    expect(startVerb(OperationKind.NODE, 'Reset')).toBe('node-reset');
    expect(startVerb(OperationKind.NODE, 'EtcdForfeitLeadership')).toBe('node-etcd-forfeit-leadership');
    expect(startVerb(OperationKind.CA_ROTATION)).toBe('ca-rotation');
  });
});

describe('steering', () => {
  const open = create(OperationSchema, {
    ref: { namespace: 'ns', name: 'op' },
    kind: OperationKind.TALOS,
    phase: OperationPhase.IN_PROGRESS,
  });
  const may = (start: string[]) => rightsIn([{ namespace: '', read: true, operate: true, start } as never], 'ns');
  it('offers what makes sense', () => {
    expect(steerings(open)).toEqual(['pause', 'remove']);
    expect(steerings(create(OperationSchema, { paused: true }))).toEqual(['resume', 'remove']);
    expect(steerings(create(OperationSchema, { failureReason: 'x' }))).toEqual(['retry', 'pause', 'remove']);
    expect(steerings(create(OperationSchema, { canTurnBack: true }))).toEqual(['pause', 'turnBack', 'remove']);
    expect(steerings(create(OperationSchema, { noWayBack: 'x' }))).toContain('turnBack');
    expect(steerings(create(OperationSchema, { turnBackRequested: true }))).toContain('turnBack');
    expect(steerings(create(OperationSchema, { phase: OperationPhase.COMPLETED }))).toEqual(['remove']);
  });
  it('needs the right to start for a retry', () => {
    expect(steerObstacle(open, 'retry', may([]))).toEqual({ why: 'start', namespace: 'ns', verb: 'talos' });
    expect(steerObstacle(open, 'retry', may(['talos']))).toBeUndefined();
    expect(steerObstacle(open, 'pause', rightsIn([], 'ns'))).toEqual({ why: 'operate', namespace: 'ns' });
    expect(steerObstacle(create(OperationSchema, { deleting: true }), 'pause', may([]))).toEqual({ why: 'gone' });
    const asked = create(OperationSchema, { ...open, $typeName: undefined, retryRequested: true });
    expect(steerObstacle(asked, 'retry', may(['talos']))).toEqual({ why: 'retrying' });
    expect(steerObstacle(asked, 'pause', may(['talos']))).toBeUndefined();
  });
  it.each([
    ['as long as there is a way back', { canTurnBack: true }, ['ca-rotation'], undefined],
    ['not without the right', { canTurnBack: true }, [], { why: 'start', namespace: 'ns', verb: 'ca-rotation' }],
    ['not twice', { turnBackRequested: true }, ['ca-rotation'], { why: 'turningBack' }],
    ['not after the drop', { noWayBack: 'x' }, ['ca-rotation'], { why: 'noWayBack' }],
    ['not after the drop, whoever has asked', { noWayBack: 'x', turnBackRequested: true }, [], { why: 'noWayBack' }],
  ])('turns back %s', (_, part, start, obstacle) => {
    const operation = create(OperationSchema, { ref: { namespace: 'ns' }, kind: OperationKind.CA_ROTATION, ...part });
    expect(steerObstacle(operation, 'turnBack', may(start))).toEqual(obstacle);
  });
  it('needs the right to start for a confirmation', () => {
    expect(steerObstacle(open, 'confirm', may([]))).toMatchObject({ why: 'start' });
    expect(steerObstacle(open, 'confirm', may(['talos']))).toBeUndefined();
  });
  it('orders the urgent first, then the newest', () => {
    const of = (name: string, attention: Attention, time: number) =>
      create(OperationSchema, { ref: { name }, attention, createTime: timestampFromMs(time) });
    const sorted = [of('a', Attention.NONE, 1), of('b', Attention.FAILED, 0), of('c', Attention.NONE, 2)].sort(
      urgentFirst,
    );
    expect(sorted.map((operation) => operation.ref?.name)).toEqual(['b', 'c', 'a']);
  });
});

describe('an operation', () => {
  const of = (part: object) => create(OperationSchema, part);
  it('has its stages in order, each once', () => {
    const states = (part: object) => stagesOf(of(part)).map(({ name, state }) => `${name} ${state}`);
    expect(states({})).toEqual([]);
    expect(states({ completedStages: ['A'], stage: 'B', comingStages: ['C', 'D'] })).toEqual([
      'A done',
      'B current',
      'C coming',
      'D coming',
    ]);
    expect(states({ completedStages: ['A', 'B'], stage: 'B' })).toEqual(['A done', 'B done']);
  });
  it('says what it asks people for', () => {
    expect(awaitedOf({ awaits: '' })).toBeUndefined();
    expect(awaitedOf({ awaits: 'TalosAwaitingCredentials' })).toBe('talos');
    expect(awaitedOf({ awaits: 'KubernetesAwaitingCredentials' })).toBe('kubernetes');
    expect(awaitedOf({ awaits: 'BackRefreshTokens' })).toBe('tokens');
    expect(awaitedOf({ awaits: 'toString' })).toBe('other');
  });
  it('counts what it writes again, while it does', () => {
    expect(rewritten(of({ units: [{ name: 'Rewrite', done: 5n, goesOn: true }] }))).toBe(5);
    expect(rewritten(of({ units: [{ name: 'Rewrite', done: 5n }] }))).toBeUndefined();
  });
  it('tells whether it was turned back', () => {
    expect(turnedBack(of({ conditions: [{ type: 'Succeeded', reason: 'TurnedBack' }] }))).toBe(true);
    expect(turnedBack(of({ conditions: [{ type: 'Succeeded', reason: 'Succeeded' }] }))).toBe(false);
  });
});

describe('plans', () => {
  const plan = create(PlanSchema, {
    cluster: { namespace: 'ns', name: 'c1' },
    confirmation: Confirmation.NAME,
    stages: [
      { groups: [{ machines: [{ name: 'a' }, { name: 'b' }] }] },
      { groups: [{ machines: [{ name: 'a' }] }, { machines: [{ name: 'b' }] }] },
    ],
  });
  it('ask for the name of the machine, or of the cluster', () => {
    expect(confirmationName(plan, '')).toBe('c1');
    expect(confirmationName(plan, 'm1')).toBe('m1');
    expect(confirmationName({ ...plan, confirmation: Confirmation.YES }, '')).toBeUndefined();
  });
  it('say the order of machines once', () => {
    const one = (...names: string[]) => ({ groups: names.map((name) => ({ machines: [{ name }] })) });
    const { stages } = create(PlanSchema, {
      stages: [one('a', 'b'), one('b', 'a'), one('a', 'b'), one('a'), one('a')],
    });
    const same = stages.map((stage, index) => sameOrder(stage, stages.slice(0, index)));
    expect(same).toEqual([undefined, undefined, stages[0], undefined, undefined]);
  });
  it('have each machine once, with its change', () => {
    const changed = create(PlanSchema, {
      stages: [
        { groups: [{ machines: [{ name: 'a' }, { name: 'b' }] }] },
        { groups: [{ machines: [{ name: 'a', diff: '+x' }] }] },
      ],
    });
    expect(machinesOf(changed).map(({ name, diff }) => [name, diff])).toEqual([
      ['a', '+x'],
      ['b', ''],
    ]);
  });
  it('show what changes: from what runs, or else from what was asked for', () => {
    const from = (current: string, ...running: string[]) =>
      changesOf(
        create(PlanSchema, {
          current: { talosVersion: current },
          target: { talosVersion: 'v1.14.1' },
          stages: [
            {
              groups: running.map((talosVersion, index) => ({
                machines: [{ name: `m${index}`, current: { talosVersion } }],
              })),
            },
          ],
        }),
      );
    const change = (before: string) => [{ name: 'Talos', from: before, to: 'v1.14.1' }];
    expect(from('v1.13.2')).toEqual(change('v1.13.2'));
    expect(from('', 'v1.13.6', 'v1.13.6')).toEqual(change('v1.13.6'));
    expect(from('v1.14.1', 'v1.13.6', 'v1.12.10', 'v1.12.9')).toEqual(change('v1.12.9 – v1.13.6'));
  });
});

describe('operations in the address', () => {
  it('are given back', () => {
    const query = { text: 'a b', kind: OperationKind.NODE };
    expect(parseOperationQuery(formatOperationQuery(query))).toEqual(query);
    expect(parseOperationQuery('?kind=bogus')).toEqual({ text: '', kind: OperationKind.UNSPECIFIED });
  });
  it('are filtered by kind and words', () => {
    const operations = [
      create(OperationSchema, { kind: OperationKind.TALOS, ref: { name: 'one' }, cluster: { name: 'alpha' } }),
      create(OperationSchema, { kind: OperationKind.NODE, ref: { name: 'two' }, cluster: { name: 'alpha' } }),
    ];
    expect(filterOperations(operations, { text: 'ALPHA one', kind: 0 })).toHaveLength(1);
    expect(filterOperations(operations, { text: '', kind: OperationKind.NODE })).toHaveLength(1);
  });
});

describe('the audit', () => {
  it('keeps its filter in the address', () => {
    const query = { text: 'x', result: 'denied', follow: true } as const;
    expect(parseAuditQuery(formatAuditQuery(query))).toEqual(query);
    expect(auditFilter(query)).toEqual({ text: 'x', results: [AuditResult.DENIED] });
  });
  it('has each entry once, the newest first', () => {
    const entry = (id: string, time: number) => create(AuditEntrySchema, { id, time: timestampFromMs(time) });
    expect(joinEntries([entry('c', 3), entry('b', 2)], [entry('b', 2), entry('a', 1)]).map((each) => each.id)).toEqual([
      'c',
      'b',
      'a',
    ]);
  });
});
