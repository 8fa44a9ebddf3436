// SPDX-License-Identifier: Apache-2.0
import { useId, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { useRights, useSession } from '../../app/hub';
import type { Cluster } from '../../gen/ichor/v1alpha1/cluster_pb';
import { OperationKind } from '../../gen/ichor/v1alpha1/operation_pb';
import { draftFor, startable, startObstacle } from '../../lib/orders';
import { kindKey } from '../../lib/rights';
import { Button } from '../../parts/Button';
import { obstacleWords } from '../../parts/obstacle';
import { StartDialog } from '../../start/StartDialog';
import css from './Cluster.module.css';

/** StartButtons start what concerns the whole cluster. What concerns one machine starts beside it. */
export function StartButtons({ cluster }: { cluster: Cluster }) {
  const { t } = useTranslation();
  const { hub } = useSession();
  const rights = useRights(cluster.ref?.namespace ?? '');
  const [starting, start] = useState<OperationKind>();
  const id = useId();
  const kinds = startable.filter((kind) => kind !== OperationKind.NODE && hub.kinds.includes(kind));
  const obstacles = kinds.map((kind) => obstacleWords(t, startObstacle(cluster, kind, '', rights, hub.kinds)));
  return (
    <div className={css.starts}>
      <div className={css.buttons}>
        {kinds.map((kind, index) => (
          <Button
            key={kind}
            look="primary"
            obstacle={obstacles[index]}
            describedBy={obstacles[index] && `${id}-${kind}`}
            onClick={() => start(kind)}
          >
            {t(`kind.${kindKey(kind)}`)}
          </Button>
        ))}
      </div>
      {kinds.map((kind, index) => {
        // What is the same for all is said once.
        const repeated = obstacles.indexOf(obstacles[index]) !== index;
        return (
          obstacles[index] && (
            <p key={kind} id={`${id}-${kind}`} className={css.why} hidden={repeated}>
              {obstacles[index]}
            </p>
          )
        );
      })}
      {starting !== undefined && (
        <StartDialog cluster={cluster} draft={draftFor(starting, cluster)} onClose={() => start(undefined)} />
      )}
    </div>
  );
}
