// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from 'vitest';
import { OperationPhase } from '../gen/ichor/v1alpha1/operation_pb';
import { Attention, ConditionStatus } from '../gen/ichor/v1alpha1/types_pb';
import { attentionMark, conditionMark, operationMark } from './state';

describe('attentionMark', () => {
  it.each([
    [Attention.FAILED, true, 'failed'],
    [Attention.PERSON, true, 'person'],
    [Attention.SOON, false, 'soon'],
    [Attention.WAITING, false, 'waiting'],
    [Attention.NONE, true, 'running'],
    [Attention.NONE, false, 'ok'],
    [Attention.UNSPECIFIED, false, 'unknown'],
    [99 as Attention, false, 'unknown'],
  ] as const)('%s, running %s: %s', (attention, running, mark) => {
    expect(attentionMark(attention, running)).toBe(mark);
  });
});

describe('operationMark', () => {
  it.each([
    [OperationPhase.COMPLETED, Attention.FAILED, 'ok'],
    [OperationPhase.IN_PROGRESS, Attention.NONE, 'running'],
    [OperationPhase.IN_PROGRESS, Attention.WAITING, 'waiting'],
    [OperationPhase.PENDING, Attention.NONE, 'waiting'],
    [OperationPhase.PENDING, Attention.PERSON, 'person'],
    [OperationPhase.PAUSED, Attention.FAILED, 'failed'],
    [OperationPhase.PAUSED, Attention.NONE, 'waiting'],
    [OperationPhase.UNSPECIFIED, Attention.NONE, 'unknown'],
  ] as const)('%s, %s: %s', (phase, attention, mark) => {
    expect(operationMark(phase, attention)).toBe(mark);
  });
});

describe('conditionMark', () => {
  const { TRUE, FALSE, UNKNOWN } = ConditionStatus;
  it.each([
    ['Available', TRUE, 'Available', 'ok'],
    ['Available', FALSE, 'NotAvailable', 'person'],
    ['Available', UNKNOWN, 'NotYetObserved', 'unknown'],
    ['CredentialsValid', TRUE, 'ExpiringSoon', 'soon'],
    ['SpecInSync', FALSE, 'OutOfSync', 'soon'],
    ['EtcdBackedUp', FALSE, 'TooOld', 'soon'],
    ['BundleBackupStale', TRUE, 'Stale', 'soon'],
    ['BundleBackupStale', FALSE, 'Current', 'ok'],
    ['Paused', FALSE, 'NotPaused', 'ok'],
    ['Paused', TRUE, 'StepFailed', 'soon'],
    ['Progressing', FALSE, 'EtcdHealthy', 'unknown'],
  ] as const)('%s=%s (%s): %s', (type, status, reason, mark) => {
    expect(conditionMark({ type, status, reason })).toBe(mark);
  });
});
