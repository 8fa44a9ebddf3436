// SPDX-License-Identifier: Apache-2.0
import i18next from 'i18next';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { en } from './en';
import { preferredLanguage, speak, startLanguage } from './index';
import { ja } from './ja';

type Tree = { [key: string]: string | Tree };

function flat(tree: Tree, prefix = ''): [string, string][] {
  return Object.entries(tree).flatMap(([key, value]): [string, string][] =>
    typeof value === 'string' ? [[prefix + key, value]] : flat(value, `${prefix + key}.`),
  );
}

const placeholders = (text: string) =>
  [...new Set([...text.matchAll(/\{\{\s*(\w+)/g)].map((match) => match[1]))].sort();

describe('texts', () => {
  const [english, japanese] = [new Map(flat(en as unknown as Tree)), new Map(flat(ja as unknown as Tree))];
  it('say nothing that the source does not say', () => {
    expect([...japanese.keys()].filter((key) => !english.has(key))).toEqual([]);
  });
  it('are not empty, and not left in English where words are to be translated', () => {
    for (const [key, text] of japanese) {
      expect(text.trim(), key).not.toBe('');
    }
  });
  it('have the same values in both languages', () => {
    for (const [key, text] of japanese) {
      const source = english.get(key) ?? '';
      // The name of one example may be there in addition, where Japanese has no plural.
      const missing = placeholders(source).filter((name) => !placeholders(text).includes(name));
      expect(missing, key).toEqual([]);
      const added = placeholders(text).filter((name) => !placeholders(source).includes(name) && name !== 'name');
      expect(added, key).toEqual([]);
    }
  });
  it('have a plural for every singular', () => {
    for (const key of english.keys()) {
      expect(!key.endsWith('_one') || english.has(key.replace(/_one$/, '_other')), key).toBe(true);
    }
  });
});

describe('languages', () => {
  beforeAll(() => startLanguage('en'));
  it('follow the plural rules and separators of their own', async () => {
    expect(i18next.t('fleet.clusters', { count: 1 })).toBe('1 cluster');
    expect(i18next.t('fleet.clusters', { count: 10_000 })).toBe('10,000 clusters');
    await speak('ja');
    expect(i18next.t('fleet.clusters', { count: 1 })).toBe('1 クラスター');
    expect(document.documentElement.lang).toBe('ja');
    await speak('en');
    expect(document.documentElement.lang).toBe('en');
  });
  it('do not keep something for every number that was ever shown', () => {
    const made = vi.spyOn(Intl, 'NumberFormat');
    for (let ready = 0; ready < 200; ready++) {
      i18next.t('fleet.machines', { ready, count: 1_000 + ready });
    }
    expect(made.mock.calls.length).toBeLessThanOrEqual(1);
    made.mockRestore();
  });
  it('are chosen as the browser wants', () => {
    expect(preferredLanguage(['de-DE', 'ja-JP', 'en'])).toBe('ja');
    expect(preferredLanguage(['de'])).toBe('en');
  });
});
