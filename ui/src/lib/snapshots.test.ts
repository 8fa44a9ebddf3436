// SPDX-License-Identifier: Apache-2.0
import type { MessageInitShape } from '@bufbuild/protobuf';
import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { describe, expect, it } from 'vitest';
import { SnapshotReason, SnapshotSchema } from '../gen/ichor/v1alpha1/snapshot_pb';
import { ConditionStatus } from '../gen/ichor/v1alpha1/types_pb';
import { lastGood, nextLook, reasonKey, restoreObstacle, stateOf } from './snapshots';

const of = (init: MessageInitShape<typeof SnapshotSchema>) => create(SnapshotSchema, init);
const says = (status: ConditionStatus, reason: string, message = '') => [{ type: 'Ready', status, reason, message }];
const taken = (time: number) => ({ takenTime: timestampFromMs(time) });
const { TRUE, FALSE, UNKNOWN } = ConditionStatus;

describe('a snapshot', () => {
  it.each([
    ['nobody has looked at', {}, 'taking', '', { why: 'notTaken' }],
    ['is taken', { conditions: says(UNKNOWN, 'Taking') }, 'taking', '', { why: 'notTaken' }],
    ['waits', { conditions: says(UNKNOWN, 'Waiting', 'x') }, 'waiting', '', { why: 'notTaken' }],
    ['fails', { conditions: says(FALSE, 'Damaged', 'x') }, 'failing', 'x', { why: 'notTaken' }],
    ['is stored', { conditions: says(TRUE, 'Ready'), contents: taken(1) }, 'ready', '', undefined],
    ['goes', { contents: taken(1), deleting: true }, 'deleting', '', { why: 'snapshotDeleting' }],
    [
      'cannot go',
      { deleting: true, conditions: says(FALSE, 'Deleting', 'x') },
      'deleting',
      'x',
      { why: 'snapshotDeleting' },
    ],
  ])('that %s', (_, init, key, trouble, obstacle) => {
    const snapshot = of(init);
    expect(stateOf(snapshot)).toMatchObject({ key, trouble });
    expect(restoreObstacle(snapshot)).toEqual(obstacle);
  });
  it('is looked at again as long as something becomes of it', () => {
    const [good, fails, comes] = [of({ contents: taken(1) }), of({ conditions: says(FALSE, 'Damaged') }), of({})];
    expect(nextLook([])).toBe(false);
    expect(nextLook([good])).toBe(false);
    expect(nextLook([good, fails])).toBe(15_000);
    expect(nextLook([good, fails, comes])).toBe(2_000);
  });
  it('says why it was taken, also by a hub that is newer', () => {
    expect(reasonKey({ reason: SnapshotReason.ROTATION })).toBe('rotation');
    expect(reasonKey({ reason: 99 as SnapshotReason })).toBe('unknown');
  });
});

it('goes back to the youngest that is stored, and stays so', () => {
  const all = [
    of({}),
    of({ contents: taken(3_000), deleting: true }),
    of({ contents: taken(1_000) }),
    of({ contents: taken(2_000) }),
  ];
  expect(lastGood(all)?.contents?.takenTime?.seconds).toBe(2n);
  expect(lastGood(all.slice(0, 2))).toBeUndefined();
});
