// SPDX-License-Identifier: Apache-2.0
import { useInfiniteQuery } from '@connectrpc/connect-query';
import { useEffect, useRef, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { isAway } from '../../api/problems';
import { useRights, useSession } from '../../app/hub';
import type { Cluster } from '../../gen/ichor/v1alpha1/cluster_pb';
import { OperationKind } from '../../gen/ichor/v1alpha1/operation_pb';
import type { Snapshot } from '../../gen/ichor/v1alpha1/snapshot_pb';
import { SnapshotService } from '../../gen/ichor/v1alpha1/snapshot_pb';
import { restoreOf, startObstacle } from '../../lib/orders';
import { refKey } from '../../lib/refs';
import { lastGood, nextLook, restoreObstacle } from '../../lib/snapshots';
import { conditionMark } from '../../lib/state';
import { Button } from '../../parts/Button';
import { CallFailure, MissingParts } from '../../parts/Failure';
import { Mark } from '../../parts/Mark';
import { obstacleWords } from '../../parts/obstacle';
import { Quiet, Section } from '../../parts/Section';
import { When } from '../../parts/When';
import { StartDialog } from '../../start/StartDialog';
import css from './Cluster.module.css';
import { SnapshotTable } from './SnapshotTable';
import { TakeSnapshot } from './TakeSnapshot';

const pageSize = 10;

/** A hub that does not answer is asked again after this long. */
const again = 3_000;

/** What is seen of the cluster says that there may be another snapshot. The list has it a moment after that. */
const later = 1_000;

/** Snapshots are the stored snapshots of the etcd of a cluster, the youngest first, and what can be done with them. */
export function Snapshots({ cluster }: { cluster: Cluster }) {
  const { t } = useTranslation();
  const [taking, take] = useState(false);
  const [restored, restore] = useState<Snapshot>();
  const { snapshots, failures, query } = useSnapshots(cluster);
  const obstacles = useObstacles(cluster);
  return (
    <Section
      title={t('snapshots.title')}
      bare={snapshots.length > 0}
      aside={
        <div className={css.aside}>
          <LastGood cluster={cluster} snapshots={snapshots} />
          <Button obstacle={obstacles.take} onClick={() => take(true)}>
            {t('snapshots.take')}
          </Button>
        </div>
      }
    >
      {query.error && <CallFailure error={query.error} />}
      <MissingParts failures={failures} />
      {snapshots.length === 0 && !query.error && (
        <Quiet>{t(query.isPending ? 'app.loading' : 'snapshots.nothing')}</Quiet>
      )}
      {snapshots.length > 0 && <SnapshotTable snapshots={snapshots} obstacle={obstacles.restore} onRestore={restore} />}
      {query.hasNextPage && (
        <div>
          <Button onClick={() => void query.fetchNextPage()}>{t('app.more')}</Button>
        </div>
      )}
      {taking && (
        <TakeSnapshot
          cluster={cluster}
          onTaken={() => void query.refetch()}
          onClose={() => {
            take(false);
          }}
        />
      )}
      {restored && (
        <StartDialog
          cluster={cluster}
          snapshot={restored}
          draft={restoreOf(cluster, restored.ref?.name ?? '')}
          onClose={() => restore(undefined)}
        />
      )}
    </Section>
  );
}

/** useSnapshots are the snapshots of a cluster, page by page. */
function useSnapshots(cluster: Cluster) {
  const { namespace = '', name = '' } = cluster.ref ?? {};
  const query = useInfiniteQuery(
    SnapshotService.method.listSnapshots,
    { clusters: [{ namespace, name }], page: { size: pageSize, token: '' } },
    {
      pageParamKey: 'page',
      getNextPageParam: (last) => (last.nextPageToken ? { size: pageSize, token: last.nextPageToken } : undefined),
      refetchInterval: ({ state }) =>
        state.error
          ? isAway(state.error) && again
          : nextLook(state.data?.pages.flatMap((page) => page.snapshots) ?? []),
    },
  );
  const { refetch } = query;
  const age = ageOf(cluster);
  const seen = useRef(age);
  useEffect(() => {
    if (seen.current === age) {
      return;
    }
    seen.current = age;
    const timer = setTimeout(() => void refetch(), later);
    return () => clearTimeout(timer);
  }, [age, refetch]);
  const pages = query.data?.pages ?? [];
  return {
    query,
    snapshots: pages.flatMap((page) => page.snapshots),
    failures: pages[0]?.failures ?? [],
  };
}

/** ageOf changes when there may be another snapshot: the hub has looked at them, or an operation that takes one has begun or gone on. */
function ageOf(cluster: Cluster): string {
  const backedUp = backup(cluster);
  const operations = cluster.operations.map((operation) => `${refKey(operation.ref)} ${operation.stage}`);
  return [backedUp?.reason, backedUp?.message, ...operations].join('\n');
}

const backup = ({ conditions }: Cluster) => conditions.find(({ type }) => type === 'EtcdBackedUp');

/** LastGood is how old the youngest snapshot is that one could go back to. */
function LastGood({ cluster, snapshots }: { cluster: Cluster; snapshots: readonly Snapshot[] }) {
  const { t } = useTranslation();
  const last = lastGood(snapshots);
  const condition = backup(cluster);
  if (!last) {
    return condition?.reason === 'NotConfigured' ? <Quiet>{t('snapshots.notConfigured')}</Quiet> : null;
  }
  return (
    <Mark mark={condition && condition.reason !== 'NotConfigured' ? conditionMark(condition) : 'ok'}>
      {t('snapshots.lastGood')} <When time={last.contents?.takenTime} />
    </Mark>
  );
}

/** useObstacles are why no snapshot can be taken, and why not this one can be gone back to. */
function useObstacles(cluster: Cluster) {
  const { t } = useTranslation();
  const { hub } = useSession();
  const rights = useRights(cluster.ref?.namespace ?? '');
  const start = startObstacle(cluster, { kind: OperationKind.ETCD_RESTORE, action: '' }, rights, hub.kinds);
  return {
    take: obstacleWords(
      t,
      cluster.deleting
        ? { why: 'deleting' }
        : backup(cluster)?.reason === 'NotConfigured'
          ? { why: 'noStorage' }
          : undefined,
    ),
    restore: (snapshot: Snapshot) => obstacleWords(t, restoreObstacle(snapshot) ?? start),
  };
}
