// SPDX-License-Identifier: Apache-2.0
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { SnapshotReason } from '../../src/gen/ichor/v1alpha1/snapshot_pb';
import { ConditionStatus } from '../../src/gen/ichor/v1alpha1/types_pb';
import type { World } from './world';

const hour = 3_600_000;

const ready = (status: ConditionStatus, reason: string, message = '') => [
  { type: 'Ready', status, reason, message, lastTransitionTime: timestampFromMs(Date.now() - hour) },
];

/** stored is what a snapshot has once it is taken. */
export function stored(taken: number, encrypted = true, rawCopy = false) {
  return {
    conditions: ready(ConditionStatus.TRUE, 'Ready'),
    contents: {
      takenTime: timestampFromMs(taken),
      bucketUrl: 's3://backups/etcd?region=eu-central-1',
      key: `${taken}.db`,
      sizeBytes: rawCopy ? 48_234_496n : 48_234_528n,
      storedBytes: 48_240_112n,
      revision: 8_412_233n,
      members: 3,
      machine: 'alpha-cp-2',
      etcdVersion: 'v3.6.8',
      talosVersion: 'v1.13.2',
      kubernetesVersion: 'v1.35.1',
      recipient: encrypted ? 'age1qyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqs3290gq' : '',
    },
  };
}

/** addSnapshots gives a cluster snapshots of each sort: one that fails, one that is taken, good ones, and one that goes. */
export function addSnapshots(world: World, cluster: { namespace: string; name: string }, now: number): void {
  const { namespace, name } = cluster;
  const put = (suffix: string, hours: number, reason: SnapshotReason, rest: object) =>
    world.putSnapshot({
      ref: { namespace, name: `${name}-${suffix}` },
      cluster,
      reason,
      createTime: timestampFromMs(now - hours * hour),
      ...rest,
    });
  const failing = ready(ConditionStatus.FALSE, 'StorageNotAvailable', 's3://backups: connection refused');
  put('failing', 1, SnapshotReason.SCHEDULED, { conditions: failing, failedAttempts: 3 });
  for (let day = 0; day < 12; day++) {
    const hours = 3 + day * 24;
    put(`day-${day}`, hours, SnapshotReason.SCHEDULED, stored(now - hours * hour));
  }
  put('manual', 5, SnapshotReason.MANUAL, stored(now - 5 * hour, false, true));
  put('leaving', 7, SnapshotReason.UPGRADE, { ...stored(now - 7 * hour), deleting: true });
}
