// SPDX-License-Identifier: Apache-2.0
import { create } from '@bufbuild/protobuf';
import { describe, expect, it } from 'vitest';
import { ClusterSchema } from '../gen/ichor/v1alpha1/cluster_pb';
import { OperationKind } from '../gen/ichor/v1alpha1/operation_pb';
import type { Draft } from './orders';
import { confirmed, draftFor, orderOf, problemsOf, startObstacle } from './orders';
import { rightsIn } from './rights';

const cluster = create(ClusterSchema, { ref: { namespace: 'ns', name: 'c1' }, desired: { talosVersion: 'v1.13.2' } });
const draft = (part: Partial<Draft> = {}): Draft => ({ ...draftFor(OperationKind.TALOS, cluster), ...part });
const ref = { namespace: 'ns', name: 'c1' };

it('begins with what the spec asks for', () => {
  expect(draft().talosVersion).toBe('v1.13.2');
  expect(draftFor(OperationKind.NODE, cluster, 'c1-w-1')).toMatchObject({ machine: 'c1-w-1', action: 'Reboot' });
});

describe('problemsOf', () => {
  it.each([
    [{}, {}],
    [{ talosVersion: 'latest' }, { talosVersion: 'version' }],
    [{ schematicID: 'abc' }, { schematicID: 'schematic' }],
    [{ schematicID: 'a'.repeat(64) }, {}],
    [{ maxUnavailable: '0' }, { maxUnavailable: 'maxUnavailable' }],
    [{ maxUnavailable: '101%' }, { maxUnavailable: 'maxUnavailable' }],
    [{ maxUnavailable: '25%' }, {}],
    [{ maxUnavailable: '1000' }, {}],
    [{ kind: OperationKind.NODE, machine: '' }, { machine: 'machine' }],
    [{ kind: OperationKind.KUBERNETES, kubernetesVersion: '1.35' }, { kubernetesVersion: 'version' }],
  ])('%o: %o', (part, problems) => {
    expect(problemsOf(draft(part))).toEqual(problems);
  });
});

describe('orderOf', () => {
  it('asks for a version with its v, and carries overrides', () => {
    expect(orderOf(ref, draft({ talosVersion: '1.14.0', overrides: { Gate: 'because' } }))).toEqual({
      cluster: ref,
      kind: OperationKind.TALOS,
      maxUnavailable: '',
      overrides: [{ gate: 'Gate', reason: 'because' }],
      target: { talosVersion: 'v1.14.0', schematicId: '' },
    });
  });
  it('names a machine and an action', () => {
    const order = orderOf(ref, draftFor(OperationKind.NODE, cluster, 'c1-w-1'));
    expect(order).toMatchObject({
      parameters: { parameters: { case: 'node', value: { machine: 'c1-w-1', action: 'Reboot', rebootMode: '' } } },
    });
    expect(order).not.toHaveProperty('target');
  });
});

describe('startObstacle', () => {
  const all = rightsIn(
    [
      {
        namespace: '',
        read: true,
        operate: true,
        start: ['talos'],
        override: false,
        machines: false,
        clusters: false,
      } as never,
    ],
    'ns',
  );
  const none = rightsIn([], 'ns');
  const kinds = [OperationKind.TALOS, OperationKind.NODE];
  it.each([
    ['nothing', cluster, OperationKind.TALOS, all, undefined],
    ['a kind that the hub does not know', cluster, OperationKind.CONFIG, all, { why: 'kind' }],
    ['no right to operate', cluster, OperationKind.TALOS, none, { why: 'operate', namespace: 'ns' }],
    ['no right to start', cluster, OperationKind.NODE, all, { why: 'start', namespace: 'ns', verb: 'node-reboot' }],
    [
      'deletion',
      create(ClusterSchema, { ...cluster, $typeName: undefined, deleting: true }),
      OperationKind.TALOS,
      all,
      { why: 'deleting' },
    ],
    [
      'another operation',
      create(ClusterSchema, { ref, operations: [{ ref: { namespace: 'ns', name: 'op' } }] }),
      OperationKind.TALOS,
      all,
      { why: 'unfinished', operation: 'op' },
    ],
  ])('%s', (_, target, kind, rights, obstacle) => {
    expect(startObstacle(target, kind, 'Reboot', rights, kinds)).toEqual(obstacle);
  });
});

it('wants the whole name', () => {
  expect(confirmed(undefined, '')).toBe(true);
  expect(confirmed('c1', ' c1 ')).toBe(true);
  expect(confirmed('c1', 'C1')).toBe(false);
  expect(confirmed('c1', '')).toBe(false);
});
