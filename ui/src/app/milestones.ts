// SPDX-License-Identifier: Apache-2.0
import { useEffect } from 'react';
import { useTranslation } from 'react-i18next';
import type { FleetRow } from '../lib/fleetrow';
import type { Mark } from '../lib/state';
import type { Change } from '../live/livemap';
import { announce } from '../parts/announce';
import { useHub } from './hub';

/** turned are the rows that came to a mark with a change. */
export function turned(changes: readonly Change<FleetRow>[], mark: Mark): FleetRow[] {
  return changes.flatMap(({ before, after }) => (after?.mark === mark && before?.mark !== mark ? [after] : []));
}

/** useMilestones says aloud when clusters begin to need somebody. */
export function useMilestones(): void {
  const { t } = useTranslation();
  const { fleet } = useHub();
  useEffect(
    () =>
      fleet.map.watch((changes) => {
        const [failed, person] = [turned(changes, 'failed'), turned(changes, 'person')];
        if (failed[0]) {
          announce(t('fleet.announceFailed', { count: failed.length, name: failed[0].name }));
        } else if (person[0]) {
          announce(t('fleet.announcePerson', { count: person.length, name: person[0].name }));
        }
      }),
    [fleet, t],
  );
}
