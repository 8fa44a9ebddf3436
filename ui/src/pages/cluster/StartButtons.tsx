// SPDX-License-Identifier: Apache-2.0
import { useId, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { useRights, useSession } from '../../app/hub';
import type { Cluster } from '../../gen/ichor/v1alpha1/cluster_pb';
import { OperationKind } from '../../gen/ichor/v1alpha1/operation_pb';
import type { Start } from '../../lib/orders';
import { clusterStarts, draftFor, startObstacle } from '../../lib/orders';
import { Button } from '../../parts/Button';
import { kindWords } from '../../parts/kind';
import { obstacleWords } from '../../parts/obstacle';
import { StartDialog } from '../../start/StartDialog';
import css from './Cluster.module.css';

/** How a start looks: upgrades are what one comes for, and what stops a cluster must not look like them. */
const looks: Partial<Record<string, 'primary' | 'danger'>> = {
  [OperationKind.TALOS]: 'primary',
  [OperationKind.KUBERNETES]: 'primary',
  [`${OperationKind.SHUTDOWN}Stop`]: 'danger',
};

/** StartButtons start what concerns the whole cluster. What concerns one machine starts beside it. */
export function StartButtons({ cluster }: { cluster: Cluster }) {
  const { t } = useTranslation();
  const { hub } = useSession();
  const rights = useRights(cluster.ref?.namespace ?? '');
  const [starting, start] = useState<Start>();
  const id = useId();
  const starts = clusterStarts
    .filter(({ kind }) => hub.kinds.includes(kind))
    .map((each) => ({
      ...each,
      key: `${each.kind}${each.action}`,
      why: obstacleWords(t, startObstacle(cluster, each, rights, hub.kinds)),
    }));
  return (
    <div className={css.starts}>
      <div className={css.buttons}>
        {starts.map(({ kind, action, key, why }) => (
          <Button
            key={key}
            look={looks[key] ?? 'plain'}
            obstacle={why}
            describedBy={why && id + key}
            onClick={() => start({ kind, action })}
          >
            {kindWords(t, kind, action)}
          </Button>
        ))}
      </div>
      {starts.map(
        ({ key, why }, index) =>
          why && (
            // What is the same for all is said once.
            <p key={key} id={id + key} className={css.why} hidden={starts.findIndex((s) => s.why === why) !== index}>
              {why}
            </p>
          ),
      )}
      {starting && (
        <StartDialog cluster={cluster} draft={draftFor(starting, cluster)} onClose={() => start(undefined)} />
      )}
    </div>
  );
}
