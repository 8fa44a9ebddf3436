// SPDX-License-Identifier: Apache-2.0

import type { Plan, PlanMachine, PlanStage } from '../gen/ichor/v1alpha1/operation_pb';
import { Confirmation, Effect } from '../gen/ichor/v1alpha1/operation_pb';
import type { OperationTarget } from '../gen/ichor/v1alpha1/types_pb';
import { targetParts } from './operations';
import type { Mark } from './state';
import { compareVersions } from './versions';

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
  | 'reset'
  | 'join'
  | 'remove';

const effects: Partial<Record<Effect, { key: EffectKey; mark: Mark }>> = {
  [Effect.NONE]: { key: 'none', mark: 'ok' },
  [Effect.RESTART_COMPONENTS]: { key: 'restartComponents', mark: 'soon' },
  [Effect.REBOOT]: { key: 'reboot', mark: 'soon' },
  [Effect.STOP]: { key: 'stop', mark: 'person' },
  [Effect.CA_ROTATION]: { key: 'caRotation', mark: 'person' },
  [Effect.KEY_ROTATION]: { key: 'keyRotation', mark: 'person' },
  [Effect.RESTORE]: { key: 'restore', mark: 'failed' },
  [Effect.RESET]: { key: 'reset', mark: 'failed' },
  [Effect.JOIN]: { key: 'join', mark: 'soon' },
  [Effect.REMOVE]: { key: 'remove', mark: 'failed' },
};

/** effectOf is the worst that a machine goes through; undefined if the hub did not say. */
export function effectOf(plan: Pick<Plan, 'effect'>): { key: EffectKey; mark: Mark } | undefined {
  return effects[plan.effect];
}

/** Change is a part of a target, and what it is now. */
export interface Change {
  name: string;
  from: string;
  to: string;
}

/** changesOf are the parts of a target that a plan changes: from what the machines run or, where they do not say, from what the spec asks for. */
export function changesOf(plan: Pick<Plan, 'current' | 'target' | 'stages'>): Change[] {
  const machines = machinesOf(plan);
  const asked = valuesOf(plan.current);
  const run = machines.map((machine) => valuesOf(machine.current));
  return targetParts(plan.target).map(({ name, value }) => ({
    name,
    from: range(run.flatMap((values) => values.get(name) ?? [])) || (asked.get(name) ?? ''),
    to: value,
  }));
}

const valuesOf = (target: OperationTarget | undefined) =>
  new Map(targetParts(target).map((part) => [part.name, part.value]));

/** range is the lowest and the highest of some values. */
function range(values: string[]): string {
  const sorted = [...new Set(values)].sort(compareVersions);
  const [first = ''] = sorted;
  return sorted.length > 1 ? `${first} – ${sorted.at(-1)}` : first;
}

/** machinesOf are the machines of a plan, each once: with what becomes of it, if a stage says so. */
export function machinesOf(plan: Pick<Plan, 'stages'>): PlanMachine[] {
  const found = new Map<string, PlanMachine>();
  for (const machine of plan.stages.flatMap((stage) => stage.groups.flatMap((group) => group.machines))) {
    if (!found.has(machine.name) || machine.diff !== '') {
      found.set(machine.name, machine);
    }
  }
  return [...found.values()];
}

/** staysUp says that no machine is away in a plan, whatever its stages do: rotations change what machines have. */
export function staysUp({ effect }: Pick<Plan, 'effect'>): boolean {
  return effect === Effect.CA_ROTATION || effect === Effect.KEY_ROTATION;
}

/** Fewer groups than this are said again rather than looked for. */
const fewGroups = 2;

/** sameOrder is the first of the stages before that takes the same machines in the same order, where that is long to read again. */
export function sameOrder(stage: PlanStage, before: readonly PlanStage[]): PlanStage | undefined {
  const order = (of: PlanStage) =>
    JSON.stringify(of.groups.map((group) => group.machines.map(({ name, effect, diff }) => [name, effect, diff])));
  return stage.groups.length < fewGroups ? undefined : before.find((each) => order(each) === order(stage));
}
