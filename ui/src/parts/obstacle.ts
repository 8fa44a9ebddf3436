// SPDX-License-Identifier: Apache-2.0
import type { TFunction } from 'i18next';
import type { Obstacle } from '../lib/orders';

/** obstacleWords says why something cannot be done; undefined if it can. */
export function obstacleWords(t: TFunction, obstacle: Obstacle | undefined): string | undefined {
  if (!obstacle) {
    return undefined;
  }
  switch (obstacle.why) {
    case 'operate':
    case 'machines':
      return t(`obstacle.${obstacle.why}`, { namespace: obstacle.namespace });
    case 'start':
      return t('obstacle.start', { namespace: obstacle.namespace, verb: obstacle.verb });
    case 'unfinished':
      return t('obstacle.unfinished', { operation: obstacle.operation });
    default:
      return t(`obstacle.${obstacle.why}`);
  }
}
