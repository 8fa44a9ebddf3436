// SPDX-License-Identifier: Apache-2.0
import type { TFunction } from 'i18next';
import { en } from '../i18n/en';

type Section = 'step' | 'stage' | 'pass' | 'gate' | 'warning' | 'authority' | 'key';
type Words = Record<Section, Record<string, string>>;

/** words are those of a code of the hub; a hub that is newer than the page may have others. */
function words(t: TFunction, section: Section, code: string): string | undefined {
  // The codes of a section are its keys, and what is none of them has no words: the key is one that there is.
  return Object.hasOwn((en as Words)[section], code) ? t(`${section}.${code}` as 'step.Pulling') : undefined;
}

/** stepWords is what goes on with a machine. */
export function stepWords(t: TFunction, step: string): string {
  return words(t, 'step', step) ?? step;
}

/** stageWords is the part of an operation that a stage is. A pass of a rotation is named by its authority and by what it does. */
export function stageWords(t: TFunction, stage: string): string {
  const [, authority = '', pass = ''] = /^(Talos|Kubernetes)(.+)$/.exec(stage) ?? [];
  const does = pass === 'named' ? undefined : words(t, 'pass', pass);
  return words(t, 'stage', stage) ?? (does === undefined ? stage : t('pass.named', { authority, pass: does }));
}

/** rotatedWords are what is rotated: authorities, or keys. */
export function rotatedWords(t: TFunction, section: 'authority' | 'key', codes: readonly string[]): string {
  return codes.map((code) => words(t, section, code) ?? code).join(', ');
}

/** gateWords is what a gate is about. */
export function gateWords(t: TFunction, gate: string): string {
  return words(t, 'gate', gate) ?? gate;
}

/** namedGate is what a gate is about, and its name: overrides and commands want it so. */
export function namedGate(t: TFunction, gate: string): string {
  const about = words(t, 'gate', gate);
  return about === undefined ? gate : t('gate.named', { words: about, gate });
}

/** warningWords are what a warning is about; undefined if the page does not know it. */
export function warningWords(t: TFunction, code: string): string | undefined {
  return words(t, 'warning', code);
}
