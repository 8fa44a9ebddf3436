// SPDX-License-Identifier: Apache-2.0
import { timestampMs } from '@bufbuild/protobuf/wkt';
import type { Operation } from '../gen/ichor/v1alpha1/operation_pb';
import { OperationKind, OperationPhase } from '../gen/ichor/v1alpha1/operation_pb';
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
    { name: 'Ichor hub', value: target?.ichorVersion ?? '' },
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
export type Steering = 'pause' | 'resume' | 'retry' | 'turnBack' | 'confirm' | 'remove';

/** needsStart are the steerings that make an operation go on, for which one needs the right to start it. */
const needsStart: readonly Steering[] = ['retry', 'turnBack', 'confirm'];

/**
 * steerings are what it makes sense to offer beside each other: an operation that is over can be deleted, one that has failed retried, and one that can
 * be turned back, or could be, says so. What it waits for is confirmed where that is told.
 */
export function steerings(operation: Operation): Steering[] {
  if (isOver(operation)) {
    return ['remove'];
  }
  const failed = operation.failureReason !== '';
  const back = operation.canTurnBack || operation.turnBackRequested || operation.noWayBack !== '';
  return [
    ...(failed ? (['retry'] as const) : []),
    operation.paused ? 'resume' : 'pause',
    ...(back ? (['turnBack'] as const) : []),
    'remove',
  ];
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
  if (steering === 'turnBack' && operation.noWayBack !== '') {
    return { why: 'noWayBack' };
  }
  if (steering === 'turnBack' && !operation.canTurnBack) {
    return { why: 'turningBack' };
  }
  const verb = startVerb(operation.kind, actionOf(operation));
  if (needsStart.includes(steering) && !rights.start.has(verb)) {
    return { why: 'start', namespace, verb };
  }
  return undefined;
}

/** Stage is one of an operation: over, under way, or to come. */
export interface Stage {
  name: string;
  state: 'done' | 'current' | 'coming';
}

/** stagesOf are the stages of an operation in order, as far as the hub tells those that are to come. */
export function stagesOf({ stage, completedStages, comingStages }: Operation): Stage[] {
  const known = new Map<string, Stage['state']>();
  const add = (names: readonly string[], state: Stage['state']) => {
    for (const name of names) {
      if (name !== '' && !known.has(name)) {
        known.set(name, state);
      }
    }
  };
  add(completedStages, 'done');
  add([stage], 'current');
  add(comingStages, 'coming');
  return [...known].map(([name, state]) => ({ name, state }));
}

/** passing are the kinds in which a machine goes through many stages, each of which is proved. */
const passing = [OperationKind.CA_ROTATION, OperationKind.KEY_ROTATION, OperationKind.ETCD_RESTORE];

/** hasPasses says whether the machines of an operation go through many stages. */
export function hasPasses({ kind }: Pick<Operation, 'kind'>): boolean {
  return passing.includes(kind);
}

/** Awaited is what people are asked for, among the texts of the page. */
export type Awaited = 'talos' | 'kubernetes' | 'tokens' | 'other';

const awaited: ReadonlyMap<string, Awaited> = new Map([
  ['TalosAwaitingCredentials', 'talos'],
  ['KubernetesAwaitingCredentials', 'kubernetes'],
  ['RefreshTokens', 'tokens'],
  ['BackRefreshTokens', 'tokens'],
]);

/** awaitedOf is what an operation asks people for; undefined if it asks for nothing. A hub that is newer than the page may ask for something else. */
export function awaitedOf({ awaits }: Pick<Operation, 'awaits'>): Awaited | undefined {
  return awaits === '' ? undefined : (awaited.get(awaits) ?? 'other');
}

/** rewritten is how many objects an operation has written again so far, while it does. */
export function rewritten({ units }: Pick<Operation, 'units'>): number | undefined {
  const unit = units.find((each) => each.goesOn);
  return unit && Number(unit.done);
}

/** turnedBack says whether an operation is over and has left everything as it was. */
export function turnedBack({ conditions }: Pick<Operation, 'conditions'>): boolean {
  return conditions.some(({ type, reason }) => type === 'Succeeded' && reason === 'TurnedBack');
}
