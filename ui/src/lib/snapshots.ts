// SPDX-License-Identifier: Apache-2.0

import type { Snapshot } from '../gen/ichor/v1alpha1/snapshot_pb';
import { SnapshotReason } from '../gen/ichor/v1alpha1/snapshot_pb';
import type { Condition } from '../gen/ichor/v1alpha1/types_pb';
import { ConditionStatus } from '../gen/ichor/v1alpha1/types_pb';
import type { Obstacle } from './orders';
import type { Mark } from './state';

/** SnapshotState is where a snapshot is, among the texts of the page. */
export type SnapshotState = 'ready' | 'taking' | 'waiting' | 'failing' | 'deleting';

const marks: Record<SnapshotState, Mark> = {
  ready: 'ok',
  taking: 'running',
  waiting: 'waiting',
  failing: 'soon',
  deleting: 'waiting',
};

/** stateOf is where a snapshot is, and what its last attempt failed of. What is stored is good, whatever was tried before. */
export function stateOf(snapshot: Snapshot): { key: SnapshotState; mark: Mark; trouble: string } {
  const ready = readiness(snapshot);
  const fails = ready?.status === ConditionStatus.FALSE;
  const key = keyOf(snapshot, ready);
  return { key, mark: marks[key], trouble: fails ? ready.message : '' };
}

const readiness = ({ conditions }: Snapshot) => conditions.find(({ type }) => type === 'Ready');

function keyOf(snapshot: Snapshot, ready: Condition | undefined): SnapshotState {
  if (snapshot.deleting) {
    return 'deleting';
  }
  if (isGood(snapshot)) {
    return 'ready';
  }
  if (ready?.status === ConditionStatus.FALSE) {
    return 'failing';
  }
  return ready?.reason === 'Waiting' ? 'waiting' : 'taking';
}

/** isGood says whether a snapshot is stored and stays so. */
export function isGood({ contents, deleting }: Pick<Snapshot, 'contents' | 'deleting'>): boolean {
  return contents !== undefined && !deleting;
}

/** lastGood is the youngest snapshot that one could go back to. */
export function lastGood(snapshots: readonly Snapshot[]): Snapshot | undefined {
  const taken = (snapshot: Snapshot) => snapshot.contents?.takenTime?.seconds ?? 0n;
  return snapshots
    .filter(isGood)
    .reduce<Snapshot | undefined>((last, each) => (!last || taken(each) > taken(last) ? each : last), undefined);
}

/** pauses are how long to wait before a snapshot is looked at again, of which no watch tells, in milliseconds. The hub itself waits between two attempts. */
const pauses: Record<SnapshotState, number> = {
  ready: Number.POSITIVE_INFINITY,
  taking: 2_000,
  waiting: 2_000,
  failing: 15_000,
  deleting: 2_000,
};

/** nextLook is after how long snapshots are to be looked at again; false if nothing is about to become of any. */
export function nextLook(snapshots: readonly Snapshot[]): number | false {
  const pause = Math.min(...snapshots.map((snapshot) => pauses[stateOf(snapshot).key]));
  return Number.isFinite(pause) && pause;
}

/** restoreObstacle is why nobody can go back to a snapshot. */
export function restoreObstacle(snapshot: Snapshot): Obstacle | undefined {
  if (snapshot.deleting) {
    return { why: 'snapshotDeleting' };
  }
  return isGood(snapshot) ? undefined : { why: 'notTaken' };
}

/** SnapshotReasonKey is why a snapshot is taken, among the texts of the page. */
export type SnapshotReasonKey = 'manual' | 'scheduled' | 'upgrade' | 'shutdown' | 'restore' | 'rotation' | 'unknown';

const reasons: Record<SnapshotReason, SnapshotReasonKey> = {
  [SnapshotReason.UNSPECIFIED]: 'unknown',
  [SnapshotReason.MANUAL]: 'manual',
  [SnapshotReason.SCHEDULED]: 'scheduled',
  [SnapshotReason.UPGRADE]: 'upgrade',
  [SnapshotReason.SHUTDOWN]: 'shutdown',
  [SnapshotReason.RESTORE]: 'restore',
  [SnapshotReason.ROTATION]: 'rotation',
};

/** reasonKey is why a snapshot is taken; a hub that is newer than the page may know other reasons. */
export function reasonKey({ reason }: Pick<Snapshot, 'reason'>): SnapshotReasonKey {
  return reasons[reason] ?? 'unknown';
}
