// SPDX-License-Identifier: Apache-2.0
import { useEffect } from 'react';
import { useTranslation } from 'react-i18next';
import type { Operation } from '../../gen/ichor/v1alpha1/operation_pb';
import { isOver } from '../../lib/operations';
import type { Feed } from '../../live/feed';
import { announce } from '../../parts/announce';

/** useOperationNews says aloud when the operation is completed, or a step of it has failed. */
export function useOperationNews(feed: Feed<Operation>): void {
  const { t } = useTranslation();
  useEffect(
    () =>
      feed.map.watch((changes) => {
        for (const { before, after } of changes) {
          const name = after?.ref?.name ?? '';
          if (after && isOver(after) && before && !isOver(before)) {
            announce(t('operation.announceCompleted', { name }));
          } else if (after?.failureReason && !before?.failureReason) {
            announce(t('operation.announceFailed', { name }));
          }
        }
      }),
    [feed, t],
  );
}
