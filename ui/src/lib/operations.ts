// SPDX-License-Identifier: Apache-2.0
import { timestampMs } from '@bufbuild/protobuf/wkt';
import type { Operation } from '../gen/ichor/v1alpha1/operation_pb';
import { OperationPhase } from '../gen/ichor/v1alpha1/operation_pb';
import type { OperationTarget } from '../gen/ichor/v1alpha1/types_pb';
import type { Obstacle } from './orders';
import type { Rights } from './rights';
import { startVerb } from './rights';

/** PhaseKey is the name of a phase among the texts of the page. */
export type PhaseKey = 'pending' | 'inProgress' | 'paused' | 'completed' | 'unknown';

const phases: Record<OperationPhase, PhaseKey> = {
  [OperationPhase.UNSPECIFIED]: 'unknown',
  [OperationPhase.PENDING]: 'pending',
  [OperationPhase.IN_PROGRESS]: 'inProgress',
  [OperationPhase.PAUSED]: 'paused',
  [OperationPhase.COMPLETED]: 'completed',
};

/** phaseKey is the name of a phase. */
export function phaseKey(phase: OperationPhase): PhaseKey {
  return phases[phase] ?? 'unknown';
}

/** openPhases are those of operations that are not over. */
export const openPhases = [OperationPhase.PENDING, OperationPhase.IN_PROGRESS, OperationPhase.PAUSED];

/** isOver says whether an operation is completed. */
export function isOver(operation: Pick<Operation, 'phase'>): boolean {
  return operation.phase === OperationPhase.COMPLETED;
}

/** targetParts are the parts of a target that say something. */
export function targetParts(target: OperationTarget | undefined): { name: string; value: string }[] {
  const parts = [
    { name: 'Talos', value: target?.talosVersion ?? '' },
    { name: 'Kubernetes', value: target?.kubernetesVersion ?? '' },
    { name: 'Cilium', value: target?.ciliumVersion ?? '' },
    { name: 'kube-proxy', value: target?.kubeProxy ?? '' },
    { name: 'Schematic', value: target?.schematicId ?? '' },
  ];
  return parts.filter((part) => part.value !== '');
}

/** actionOf is the action of an operation of kind node or shutdown; empty for the others. */
export function actionOf(operation: Pick<Operation, 'parameters'>): string {
  const parameters = operation.parameters?.parameters;
  return parameters?.case === 'node' || parameters?.case === 'shutdown' ? parameters.value.action : '';
}

/** newestFirst orders operations by when they were created. */
export function newestFirst(a: Operation, b: Operation): number {
  const [x, y] = [a.createTime ? timestampMs(a.createTime) : 0, b.createTime ? timestampMs(b.createTime) : 0];
  return y - x || ((a.ref?.name ?? '') < (b.ref?.name ?? '') ? -1 : 1);
}

/** urgentFirst orders operations by who needs somebody, and then the newest first. */
export function urgentFirst(a: Operation, b: Operation): number {
  return b.attention - a.attention || newestFirst(a, b);
}

/** Steering is what can be done to an operation. */
export type Steering = 'pause' | 'resume' | 'retry' | 'remove';

/** steerings are what it makes sense to offer: an operation that is over can be deleted, one that has failed retried. */
export function steerings(operation: Operation): Steering[] {
  if (isOver(operation)) {
    return ['remove'];
  }
  const failed = operation.failureReason !== '';
  return [...(failed ? (['retry'] as const) : []), operation.paused ? 'resume' : 'pause', 'remove'];
}

/** steerObstacle is why something cannot be done to an operation. */
export function steerObstacle(operation: Operation, steering: Steering, rights: Rights): Obstacle | undefined {
  const namespace = operation.ref?.namespace ?? '';
  if (!rights.operate) {
    return { why: 'operate', namespace };
  }
  if (operation.deleting) {
    return { why: 'gone' };
  }
  if (steering === 'retry' && operation.retryRequested) {
    return { why: 'retrying' };
  }
  const verb = startVerb(operation.kind, actionOf(operation));
  if (steering === 'retry' && !rights.start.has(verb)) {
    return { why: 'start', namespace, verb };
  }
  return undefined;
}
