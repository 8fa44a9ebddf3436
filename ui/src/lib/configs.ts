// SPDX-License-Identifier: Apache-2.0
import type { Mark } from './state';

/** ConfigEffect is what it takes to bring a machine config in force, among the texts of the page. */
export type ConfigEffect = 'None' | 'Live' | 'Reboot' | 'Upgrade' | 'unknown';

const marks: Record<ConfigEffect, Mark> = {
  None: 'ok',
  Live: 'running',
  Reboot: 'soon',
  Upgrade: 'waiting',
  unknown: 'unknown',
};

/** configEffect reads what the hub says; it says nothing as long as it does not know. */
export function configEffect(effect: string): { key: ConfigEffect; mark: Mark } {
  const key = effect in marks ? (effect as ConfigEffect) : 'unknown';
  return { key, mark: marks[key] };
}

/** toggled are the machines of a roll-out after one was ticked or not. All of them are undefined, which later ones belong to as well. */
export function toggled(
  chosen: readonly string[] | undefined,
  all: readonly string[],
  name: string,
): readonly string[] | undefined {
  const before = chosen ?? all;
  const after = before.includes(name) ? before.filter((each) => each !== name) : [...before, name];
  return all.every((each) => after.includes(each)) ? undefined : all.filter((each) => after.includes(each));
}
