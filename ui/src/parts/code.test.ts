// SPDX-License-Identifier: Apache-2.0
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TFunction } from 'i18next';
import { describe, expect, it } from 'vitest';
import { en } from '../i18n/en';
import { gateWords, namedGate, rotatedWords, stageWords, stepWords, warningWords } from './code';
import { reasonWords } from './reason';

const root = join(import.meta.dirname, '../../..');
const api = (name: string) => readFileSync(join(root, 'api/v1alpha1', name), 'utf8');

/** values are those of the Go constants whose names end so, each once and in order. */
function values(source: string, suffix: string): string[] {
  const found = source.matchAll(new RegExp(`^(?:\\t|const )\\w*${suffix}(?: \\w+)? *= "([^"]+)"$`, 'gm'));
  return [...new Set([...found].map(([, value = '']) => value))].sort();
}

/** block is the constants below a comment. */
function block(source: string, comment: string): string {
  const from = source.indexOf(comment);
  expect(from, comment).toBeGreaterThan(-1);
  return source.slice(from, source.indexOf('\n)\n', from));
}

/** sorted are the codes that have words, without what is there to put them together. */
const sorted = (words: object, ...others: string[]) =>
  Object.keys(words)
    .filter((key) => !others.includes(key))
    .sort();

describe('the page has words for what the hub says', () => {
  const operations = api('talosoperation_conditions.go');

  it('as steps', () => {
    expect(sorted(en.step)).toEqual(values(api('talosoperation_units.go'), 'Step'));
  });
  const directory = join(root, 'controllers/operation/kind');
  const kinds = readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.go'))
    .map((path) => readFileSync(join(directory, path), 'utf8'))
    .join('\n');

  it('as stages', () => {
    expect(sorted(en.stage)).toEqual(values(kinds, 'Stage'));
  });
  it('as passes', () => {
    const passes = [...kinds.matchAll(/^\t\w+ Pass = "(\w+)"$/gm)].map(([, value = '']) => value);
    expect(sorted(en.pass, 'named')).toEqual(passes.sort());
  });
  it('as gates', () => {
    expect(sorted(en.gate, 'named')).toEqual(values(operations, 'Gate'));
  });
  it('as warnings', () => {
    const source = readFileSync(join(root, 'controllers/operation/plan/warning.go'), 'utf8');
    expect(sorted(en.warning)).toEqual(values(source + kinds, 'Warning'));
  });
  it('as reasons why an operation does not move', () => {
    const paused = values(block(operations, "// TalosOperation's Paused condition"), 'Reason');
    const waiting = values(block(operations, '// Gates that make an operation wait.'), 'Gate');
    expect(paused.length).toBeGreaterThan(9);
    expect(waiting.length).toBeGreaterThan(9);
    const known = new Set(Object.keys(en.reason));
    expect([...paused, ...waiting].filter((reason) => reason !== 'NotPaused' && !known.has(reason))).toEqual([]);
  });
  it('as conditions', () => {
    const sources = ['taloscluster', 'talosmachine', 'talosoperation', 'etcdsnapshot'].map((name) =>
      api(`${name}_conditions.go`),
    );
    const known = new Set(Object.keys(en.conditionName));
    expect(values(sources.join('\n'), 'Condition').filter((type) => !known.has(type))).toEqual([]);
  });
  it('as what is rotated', () => {
    const source = api('talosoperation_parameters.go');
    const of = (type: string) =>
      [...source.matchAll(new RegExp(`${type} = "(\\w+)"`, 'g'))].map(([, value = '']) => value);
    expect(sorted(en.authority)).toEqual(of('CAAuthority').sort());
    expect(sorted(en.key)).toEqual(of('RotatedKey').sort());
  });
  it('as actions', () => {
    const source = api('talosoperation_parameters.go');
    const cluster = [...source.matchAll(/ClusterPowerAction = "(\w+)"/g)].map(([, value]) => value);
    const node = [...source.matchAll(/NodeAction = "(\w+)"/g)].map(([, value]) => value);
    expect(sorted(en.action)).toEqual([...cluster, ...node].sort());
  });
});

describe('a code of the hub', () => {
  const t = ((key: string, values: Record<string, string> = {}) =>
    [key, ...Object.values(values)].join(' ')) as unknown as TFunction;

  it('is shown in words', () => {
    expect(stepWords(t, 'StayingOff')).toBe('step.StayingOff');
    expect(stageWords(t, 'WorkersOff')).toBe('stage.WorkersOff');
    expect(stageWords(t, 'TalosSwap')).toBe('pass.named Talos pass.Swap');
    expect(rotatedWords(t, 'key', ['Secretbox', 'New'])).toBe('key.Secretbox, New');
    expect(gateWords(t, 'Quorum')).toBe('gate.Quorum');
    expect(namedGate(t, 'Quorum')).toBe('gate.named gate.Quorum Quorum');
    expect(warningWords(t, 'StaysOff')).toBe('warning.StaysOff');
    expect(reasonWords(t, 'VersionSkew')).toBe('reason.VersionSkew');
    expect(reasonWords(t, 'Quorum')).toBe('reason.other gate.Quorum');
  });
  it('is shown as it is where the hub is newer than the page', () => {
    expect([stepWords, stageWords, gateWords, namedGate].map((words) => words(t, 'toString'))).toEqual(
      Array(4).fill('toString'),
    );
    expect(['TalosNew', 'Talosnamed', 'Kubernetes'].map((stage) => stageWords(t, stage))).toEqual([
      'TalosNew',
      'Talosnamed',
      'Kubernetes',
    ]);
    expect(warningWords(t, 'New')).toBeUndefined();
    expect(reasonWords(t, 'New')).toBe('reason.other New');
  });
});
