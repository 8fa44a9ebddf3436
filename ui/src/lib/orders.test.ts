// SPDX-License-Identifier: Apache-2.0
import { create } from '@bufbuild/protobuf';
import { describe, expect, it } from 'vitest';
import { ClusterSchema } from '../gen/ichor/v1alpha1/cluster_pb';
import { OperationKind } from '../gen/ichor/v1alpha1/operation_pb';
import { MachineRole } from '../gen/ichor/v1alpha1/types_pb';
import type { Draft } from './orders';
import {
  clusterStarts,
  confirmed,
  draftFor,
  machineOf,
  nodeActions,
  orderOf,
  problemsOf,
  restoreOf,
  startObstacle,
} from './orders';
import { rightsIn } from './rights';

const cluster = create(ClusterSchema, { ref: { namespace: 'ns', name: 'c1' }, desired: { talosVersion: 'v1.13.2' } });
const draft = (part: Partial<Draft> = {}): Draft => ({
  ...draftFor({ kind: OperationKind.TALOS, action: '' }, cluster),
  ...part,
});
const node = (action: string, part: Partial<Draft> = {}): Draft => ({
  ...draftFor({ kind: OperationKind.NODE, action }, cluster, 'c1-w-1'),
  ...part,
});
const stop = (part: Partial<Draft> = {}): Draft => ({
  ...draftFor({ kind: OperationKind.SHUTDOWN, action: 'Stop' }, cluster),
  ...part,
});
const restore = (part: Partial<Draft> = {}): Draft => ({ ...restoreOf(cluster, 's1'), ...part });
const ref = { namespace: 'ns', name: 'c1' };

it('begins with what the spec asks for', () => {
  expect(draft().talosVersion).toBe('v1.13.2');
  expect(node('Reboot')).toMatchObject({ machine: 'c1-w-1', action: 'Reboot' });
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
    [{ kind: OperationKind.CONFIG, machines: [] }, { machines: 'machine' }],
    [{ kind: OperationKind.CONFIG, machines: undefined }, {}],
    [node('RestartService', { service: 'etcd' }), { service: 'service' }],
    [node('RestartService', { service: 'ext-iscsid' }), {}],
    [stop(), { snapshot: 'snapshot' }],
    [stop({ snapshot: 'None' }), {}],
    [restore(), { safetySnapshot: 'snapshot' }],
    [restore({ safetySnapshot: 'None' }), {}],
    [{ kind: OperationKind.CA_ROTATION }, {}],
    [{ kind: OperationKind.KEY_ROTATION }, {}],
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
    const order = orderOf(ref, node('Reboot'));
    expect(order).toMatchObject({
      parameters: { parameters: { case: 'node', value: { machine: 'c1-w-1', action: 'Reboot', rebootMode: '' } } },
    });
    expect(order).not.toHaveProperty('target');
  });
  it.each([
    [node('Shutdown', { rebootMode: 'Force' }), 'node', { machine: 'c1-w-1', action: 'Shutdown' }],
    [node('RestartService'), 'node', { machine: 'c1-w-1', action: 'RestartService', service: 'kubelet' }],
    [node('EtcdDefrag'), 'node', { machine: 'c1-w-1', action: 'EtcdDefrag', alarms: '' }],
    [
      node('EtcdDefrag', { members: 'every', alarms: 'Disarm' }),
      'node',
      { machine: '', action: 'EtcdDefrag', alarms: 'Disarm' },
    ],
    [
      node('Reset', { wipe: 'Both', resetManner: 'Forced', afterReset: 'PowerOff' }),
      'node',
      {
        machine: 'c1-w-1',
        action: 'Reset',
        reset: { manner: 'Forced', wipe: ['System', 'UserVolumes'], after: 'PowerOff' },
      },
    ],
    [draft({ kind: OperationKind.CONFIG }), 'config', { machines: [] }],
    [draft({ kind: OperationKind.CONFIG, machines: ['a'] }), 'config', { machines: ['a'] }],
    [stop({ snapshot: 'Take' }), 'shutdown', { action: 'Stop', snapshot: 'Take' }],
    [stop({ snapshot: 'Take', action: 'Start' }), 'shutdown', { action: 'Start', snapshot: '' }],
    [draft({ kind: OperationKind.CA_ROTATION }), 'caRotation', { authorities: ['Talos', 'Kubernetes'] }],
    [
      draft({ kind: OperationKind.CA_ROTATION, authorities: 'Kubernetes' }),
      'caRotation',
      { authorities: ['Kubernetes'] },
    ],
    [draft({ kind: OperationKind.KEY_ROTATION }), 'keyRotation', { keys: ['ServiceAccount', 'Secretbox'] }],
    [draft({ kind: OperationKind.KEY_ROTATION, keys: 'Secretbox' }), 'keyRotation', { keys: ['Secretbox'] }],
    [restore({ safetySnapshot: 'Take' }), 'etcdRestore', { snapshotName: 's1', safetySnapshot: 'Take', integrity: '' }],
    [
      restore({ safetySnapshot: 'None', integrity: 'RawCopy' }),
      'etcdRestore',
      { snapshotName: 's1', safetySnapshot: 'None', integrity: 'RawCopy' },
    ],
  ])('gives each what goes with it, and nothing else: %o', (part, sort, value) => {
    expect(orderOf(ref, part).parameters).toEqual({ parameters: { case: sort, value } });
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
    expect(startObstacle(target, { kind, action: 'Reboot' }, rights, kinds)).toEqual(obstacle);
  });
});

it('offers what there is, and etcd where there is one', () => {
  expect(clusterStarts.map(({ kind, action }) => action || kind)).toEqual([
    OperationKind.TALOS,
    OperationKind.KUBERNETES,
    OperationKind.CONFIG,
    OperationKind.CA_ROTATION,
    OperationKind.KEY_ROTATION,
    'EtcdDefrag',
    'Stop',
    'Start',
  ]);
  expect(nodeActions(MachineRole.WORKER)).toEqual(['Reboot', 'Shutdown', 'RestartService', 'Reset']);
  expect(nodeActions(MachineRole.CONTROL_PLANE)).toContain('EtcdForfeitLeadership');
});

it('is about a machine, or about the cluster', () => {
  expect(machineOf(node('Reset'))).toBe('c1-w-1');
  expect(machineOf(node('EtcdDefrag', { members: 'every' }))).toBe('');
});

it('wants the whole name', () => {
  expect(confirmed(undefined, '')).toBe(true);
  expect(confirmed('c1', ' c1 ')).toBe(true);
  expect(confirmed('c1', 'C1')).toBe(false);
  expect(confirmed('c1', '')).toBe(false);
});
