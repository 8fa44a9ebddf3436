// SPDX-License-Identifier: Apache-2.0
import { expect, it } from 'vitest';
import { configEffect, toggled } from './configs';

it('does not take what is not known for nothing', () => {
  expect(configEffect('None')).toEqual({ key: 'None', mark: 'ok' });
  expect(configEffect('Reboot').mark).toBe('soon');
  expect(configEffect('')).toEqual({ key: 'unknown', mark: 'unknown' });
  expect(configEffect('Sometime')).toEqual({ key: 'unknown', mark: 'unknown' });
});

it('names machines only where not all are meant', () => {
  const all = ['a', 'b', 'c'];
  expect(toggled(undefined, all, 'b')).toEqual(['a', 'c']);
  expect(toggled(['a', 'c'], all, 'b')).toBeUndefined();
  expect(toggled(['c'], all, 'a')).toEqual(['a', 'c']);
  expect(toggled(['c'], all, 'c')).toEqual([]);
});
