// SPDX-License-Identifier: Apache-2.0

import { OperationPhase } from '../gen/ichor/v1alpha1/operation_pb';
import type { Condition } from '../gen/ichor/v1alpha1/types_pb';
import { Attention, ConditionStatus } from '../gen/ichor/v1alpha1/types_pb';

/** Mark is a state as people see it: a shape, a word and a colour. */
export type Mark = 'failed' | 'person' | 'soon' | 'waiting' | 'running' | 'ok' | 'unknown';

/** marks are all of them, the most urgent first. */
export const marks: readonly Mark[] = ['failed', 'person', 'soon', 'waiting', 'running', 'ok', 'unknown'];

/** urgent are the marks that belong below "needs attention". */
export const urgent: readonly Mark[] = ['failed', 'person', 'soon'];

/** attentionMark is the mark of something that has an attention, and of which we know whether it is being worked on. */
export function attentionMark(attention: Attention, running: boolean): Mark {
  switch (attention) {
    case Attention.FAILED:
      return 'failed';
    case Attention.PERSON:
      return 'person';
    case Attention.SOON:
      return 'soon';
    case Attention.WAITING:
      return 'waiting';
    case Attention.NONE:
      return running ? 'running' : 'ok';
    default:
      return 'unknown';
  }
}

/** operationMark is the mark of an operation. What is over needs nobody, whatever its attention says. */
export function operationMark(phase: OperationPhase, attention: Attention): Mark {
  switch (phase) {
    case OperationPhase.COMPLETED:
      return 'ok';
    case OperationPhase.PENDING:
      return attention > Attention.WAITING ? attentionMark(attention, false) : 'waiting';
    case OperationPhase.IN_PROGRESS:
      return attentionMark(attention, true);
    case OperationPhase.PAUSED:
      return attention > Attention.WAITING ? attentionMark(attention, false) : 'waiting';
    default:
      return 'unknown';
  }
}

/** conditions of which True is nothing to celebrate: they are there to be False. */
const inverted = new Set(['Paused', 'TargetSuperseded', 'Deleting', 'BundleBackupStale', 'TurningBack']);

/** neutral conditions are neither good nor bad. */
const neutral = new Set(['Progressing', 'LockHeld', 'Succeeded', 'Removed']);

/** mild conditions are ones that are False for a while before anything goes wrong. */
const mild = new Set(['SpecInSync', 'EtcdBackedUp']);

/** conditionMark is the mark of a condition of a cluster or a machine. Unknown is not False. */
export function conditionMark(condition: Pick<Condition, 'type' | 'status' | 'reason'>): Mark {
  if (condition.status !== ConditionStatus.TRUE && condition.status !== ConditionStatus.FALSE) {
    return 'unknown';
  }
  if (condition.reason === 'ExpiringSoon') {
    return 'soon';
  }
  const good = (condition.status === ConditionStatus.TRUE) !== inverted.has(condition.type);
  if (good) {
    return 'ok';
  }
  if (neutral.has(condition.type)) {
    return 'unknown';
  }
  return mild.has(condition.type) || inverted.has(condition.type) ? 'soon' : 'person';
}
