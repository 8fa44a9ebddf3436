// SPDX-License-Identifier: Apache-2.0

import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { describe, expect, it } from 'vitest';
import { ClusterSchema } from '../gen/ichor/v1alpha1/cluster_pb';
import { OperationKind, OperationPhase } from '../gen/ichor/v1alpha1/operation_pb';
import { Attention, ConditionStatus } from '../gen/ichor/v1alpha1/types_pb';
import { fleetRow } from './fleetrow';

type Part = Omit<Exclude<Parameters<typeof create<typeof ClusterSchema>>[1], undefined>, '$typeName'>;

const row = (part: Part) =>
  fleetRow(create(ClusterSchema, { ref: { namespace: 'ns', name: 'c1' }, attention: Attention.NONE, ...part }));
const summary = (name: string, phase: OperationPhase, attention: Attention) => ({
  ref: { namespace: 'ns', name },
  kind: OperationKind.TALOS,
  phase,
  attention,
});

describe('fleetRow', () => {
  it('is in order where nothing is wrong', () => {
    expect(row({})).toMatchObject({ key: 'ns/c1', mark: 'ok', issues: [], operation: undefined, holder: '' });
  });
  it('names the version that is wanted only where machines run another', () => {
    const versions = { lowest: 'v1.12.0', highest: 'v1.13.2' };
    expect(row({ desired: { talosVersion: 'v1.13.2' }, talosVersions: versions }).talosWanted).toBe('v1.13.2');
    expect(
      row({ desired: { talosVersion: 'v1.13.2' }, talosVersions: { lowest: 'v1.13.2', highest: 'v1.13.2' } })
        .talosWanted,
    ).toBe('');
    expect(row({ talosVersions: versions }).talosWanted).toBe('');
  });
  it('shows what failed before what runs, and what runs before what waits', () => {
    const waiting = summary('w', OperationPhase.PAUSED, Attention.WAITING);
    const running = summary('r', OperationPhase.IN_PROGRESS, Attention.NONE);
    const failed = summary('f', OperationPhase.PAUSED, Attention.FAILED);
    expect(row({ operations: [waiting, running, failed], attention: Attention.FAILED }).operation?.name).toBe('f');
    expect(row({ operations: [waiting, running], attention: Attention.WAITING })).toMatchObject({
      mark: 'running',
      operation: { name: 'r' },
      unfinished: 2,
    });
    expect(row({ operations: [waiting], attention: Attention.WAITING }).mark).toBe('waiting');
  });
  it('tells issues apart, all of them', () => {
    const conditions = [
      { type: 'KubernetesReachable', status: ConditionStatus.FALSE },
      { type: 'CredentialsValid', status: ConditionStatus.TRUE, reason: 'ExpiringSoon' },
    ];
    expect(row({ attention: Attention.PERSON, conditions, drift: [{ field: 'talosVersion' }] }).issues).toEqual([
      'unreachable',
      'credentials',
      'drift',
    ]);
    expect(row({ attention: Attention.FAILED }).issues).toEqual(['failed']);
    expect(row({ attention: Attention.PERSON, machinesPending: 1 }).issues).toEqual(['person']);
    expect(row({ attention: Attention.PERSON }).issues).toEqual(['person']);
    expect(row({ conditions: [{ type: 'TalosReachable', status: ConditionStatus.UNKNOWN }] }).issues).toEqual([]);
  });
  it('says since when it needs somebody, where a condition does', () => {
    const at = (seconds: number) => timestampFromMs(seconds * 1_000);
    const conditions = [
      { type: 'Available', status: ConditionStatus.FALSE, lastTransitionTime: at(50) },
      { type: 'KubernetesReachable', status: ConditionStatus.FALSE, lastTransitionTime: at(40) },
      { type: 'SpecInSync', status: ConditionStatus.FALSE, lastTransitionTime: at(10) },
      { type: 'EtcdHealthy', status: ConditionStatus.TRUE, lastTransitionTime: at(5) },
    ];
    expect(row({ attention: Attention.PERSON, conditions }).since).toBe(40_000);
    expect(row({ attention: Attention.SOON, conditions }).since).toBe(10_000);
    expect(row({ attention: Attention.FAILED, conditions }).since).toBe(0);
    expect(row({ conditions }).since).toBe(0);
  });
  it('can be searched for labels, versions and the lock', () => {
    const { text } = row({
      labels: { Env: 'Prod' },
      talosVersions: { lowest: 'v1.13.2', highest: 'v1.13.2' },
      lock: { holder: 'someone' },
    });
    expect(['env=prod', 'v1.13.2', 'someone', 'c1'].every((word) => text.includes(word))).toBe(true);
  });
});
