// SPDX-License-Identifier: Apache-2.0
import { useMemo } from 'react';
import { useTranslation } from 'react-i18next';
import { useParams } from 'wouter';
import { useFeed, useRows } from '../../app/hub';
import { useTitle } from '../../app/Shell';
import type { Cluster as ClusterMessage, Machine } from '../../gen/ichor/v1alpha1/cluster_pb';
import { OperationPhase } from '../../gen/ichor/v1alpha1/operation_pb';
import { refKey } from '../../lib/refs';
import { attentionMark } from '../../lib/state';
import type { ClusterPart } from '../../live/feed';
import { clusterFeed } from '../../live/feed';
import { Conditions } from '../../parts/Conditions';
import { Mark } from '../../parts/Mark';
import { Notice } from '../../parts/Notice';
import { Page, Quiet, Section } from '../../parts/Section';
import { BundleNotice } from './BundleNotice';
import css from './Cluster.module.css';
import { ClusterFacts } from './ClusterFacts';
import { DriftTable } from './DriftTable';
import { History } from './History';
import { Lock } from './Lock';
import { Machines } from './Machines';
import { Snapshots } from './Snapshots';
import { StartButtons } from './StartButtons';

/** Cluster is the page of one cluster. */
export function Cluster() {
  const { t } = useTranslation();
  const params = useParams<{ namespace: string; name: string }>();
  const ref = { namespace: params.namespace, name: params.name };
  const feed = useFeed(`cluster ${refKey(ref)}`, (transport) => clusterFeed(transport, { names: [ref] }));
  const { rows, synced } = useRows(feed);
  const { cluster, machines } = useMemo(() => takeApart(rows), [rows]);
  useTitle(ref.name);
  if (!cluster) {
    return (
      <Page>
        <h1>{ref.name}</h1>
        <Quiet>{synced ? t('cluster.gone', { name: refKey(ref) }) : t('app.loading')}</Quiet>
      </Page>
    );
  }
  return <ClusterPage cluster={cluster} machines={machines} />;
}

function takeApart(parts: readonly ClusterPart[]): { cluster: ClusterMessage | undefined; machines: Machine[] } {
  const found: { cluster: ClusterMessage | undefined; machines: Machine[] } = { cluster: undefined, machines: [] };
  for (const part of parts) {
    if ('cluster' in part) {
      found.cluster = part.cluster;
    } else {
      found.machines.push(part.machine);
    }
  }
  found.machines.sort((a, b) => a.role - b.role || ((a.ref?.name ?? '') < (b.ref?.name ?? '') ? -1 : 1));
  return found;
}

function ClusterPage({ cluster, machines }: { cluster: ClusterMessage; machines: readonly Machine[] }) {
  const { t } = useTranslation();
  const running = cluster.operations.some((o) => o.phase === OperationPhase.IN_PROGRESS);
  const mark = attentionMark(cluster.attention, running);
  return (
    <Page>
      <header className={css.head}>
        <div className={css.title}>
          <h1>{cluster.ref?.name}</h1>
          <span className={css.namespace}>{cluster.ref?.namespace}</span>
          <Mark mark={mark} />
        </div>
        <StartButtons cluster={cluster} />
      </header>
      {cluster.attentionReason && (
        <Notice mark={mark}>
          <p lang="en">{cluster.attentionReason}</p>
        </Notice>
      )}
      {cluster.paused && <Notice mark="person" title={t('cluster.pausedCapi')} />}
      {cluster.deleting && <Notice mark="waiting" title={t('cluster.deleting')} />}
      <BundleNotice cluster={cluster} />
      <div className={css.two}>
        <ClusterFacts cluster={cluster} />
        <Lock cluster={cluster} />
      </div>
      <Machines cluster={cluster} machines={machines} />
      <Snapshots cluster={cluster} />
      <Section title={t('cluster.drift')} bare={cluster.drift.length > 0}>
        {cluster.drift.length > 0 ? <DriftTable drift={cluster.drift} /> : <Quiet>{t('cluster.noDrift')}</Quiet>}
      </Section>
      <Section title={t('cluster.conditions')} bare>
        <Conditions label={t('cluster.conditions')} conditions={cluster.conditions} />
      </Section>
      <History cluster={cluster} />
    </Page>
  );
}
