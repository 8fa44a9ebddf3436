// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from 'vitest';
import { canonicalVersion, compareVersions, isVersion } from './versions';

describe('compareVersions', () => {
  it.each([
    ['v1.9.10', 'v1.10.2', -1],
    ['v1.13.2', 'v1.13.2', 0],
    ['v1.13.2-alpha.1', 'v1.13.2', -1],
    ['v1.13.2', 'v1.13.2-beta.0', 1],
    ['v1.13.2-alpha.1', 'v1.13.2-beta.0', -1],
    ['', 'v1.0.0', -1],
    ['v1.0.0', '', 1],
    ['1.2.3', 'v1.2.3', 0],
  ])('%s and %s: %i', (a, b, sign) => {
    expect(Math.sign(compareVersions(a, b))).toBe(sign);
  });
});

it('knows final versions, with and without the v', () => {
  expect(['v1.13.2', '1.13.2', ' v1.13.2 '].every(isVersion)).toBe(true);
  expect(['', 'v1.13', 'v1.13.2-beta.0', 'latest', 'v1.13.2; rm'].some(isVersion)).toBe(false);
  expect(canonicalVersion(' 1.13.2 ')).toBe('v1.13.2');
  expect(canonicalVersion('')).toBe('');
});
