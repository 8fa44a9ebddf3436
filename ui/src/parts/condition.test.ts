// SPDX-License-Identifier: Apache-2.0
import type { TFunction } from 'i18next';
import { expect, it } from 'vitest';
import { conditionWords } from './condition';

it('has words for a reason, and for what several conditions share', () => {
  const t = ((key: string) => key) as TFunction;
  expect(conditionWords(t, { type: 'KubernetesReachable', reason: 'Reachable' })).toBe(
    'conditionWords.KubernetesReachable/Reachable',
  );
  expect(conditionWords(t, { type: 'EtcdHealthy', reason: 'NotYetObserved' })).toBe('conditionWords.NotYetObserved');
  expect(conditionWords(t, { type: 'Available', reason: 'Whatever' })).toBeUndefined();
});
