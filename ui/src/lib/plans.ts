// SPDX-License-Identifier: Apache-2.0

import type { Plan } from '../gen/ichor/v1alpha1/operation_pb';
import { Confirmation, Effect } from '../gen/ichor/v1alpha1/operation_pb';
import type { OperationTarget } from '../gen/ichor/v1alpha1/types_pb';
import { targetParts } from './operations';
import type { Mark } from './state';

/** confirmationName is what has to be typed before a start; undefined if nothing has to be. */
export function confirmationName(plan: Pick<Plan, 'confirmation' | 'cluster'>, machine: string): string | undefined {
  return plan.confirmation === Confirmation.NAME ? machine || plan.cluster?.name : undefined;
}

/** EffectKey is the name of an effect among the texts of the page. */
export type EffectKey =
  | 'none'
  | 'restartComponents'
  | 'reboot'
  | 'stop'
  | 'caRotation'
  | 'keyRotation'
  | 'restore'
  | 'reset';

const effects: Partial<Record<Effect, { key: EffectKey; mark: Mark }>> = {
  [Effect.NONE]: { key: 'none', mark: 'ok' },
  [Effect.RESTART_COMPONENTS]: { key: 'restartComponents', mark: 'soon' },
  [Effect.REBOOT]: { key: 'reboot', mark: 'soon' },
  [Effect.STOP]: { key: 'stop', mark: 'person' },
  [Effect.CA_ROTATION]: { key: 'caRotation', mark: 'person' },
  [Effect.KEY_ROTATION]: { key: 'keyRotation', mark: 'person' },
  [Effect.RESTORE]: { key: 'restore', mark: 'failed' },
  [Effect.RESET]: { key: 'reset', mark: 'failed' },
};

/** effectOf is the worst that a machine goes through; undefined if the hub did not say. */
export function effectOf(plan: Pick<Plan, 'effect'>): { key: EffectKey; mark: Mark } | undefined {
  return effects[plan.effect];
}

/** changesOf are the parts of a target that a plan changes. */
export function changesOf(
  current: OperationTarget | undefined,
  target: OperationTarget | undefined,
): { name: string; from: string; to: string }[] {
  const before = new Map(targetParts(current).map((part) => [part.name, part.value]));
  return targetParts(target).map((part) => ({ name: part.name, from: before.get(part.name) ?? '', to: part.value }));
}

/** machineCount is how many different machines a plan takes. */
export function machineCount(plan: Pick<Plan, 'stages'>): number {
  return new Set(
    plan.stages.flatMap((stage) => stage.groups.flatMap((group) => group.machines.map((machine) => machine.name))),
  ).size;
}
