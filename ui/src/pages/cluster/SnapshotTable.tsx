// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import { useSettings } from '../../app/settings';
import type { Snapshot, SnapshotContents } from '../../gen/ichor/v1alpha1/snapshot_pb';
import { formatBytes, formatNumber } from '../../lib/format';
import { refKey } from '../../lib/refs';
import { reasonKey, stateOf } from '../../lib/snapshots';
import { Button } from '../../parts/Button';
import { Mark } from '../../parts/Mark';
import { Table } from '../../parts/Table';
import { When } from '../../parts/When';
import css from './Cluster.module.css';

interface Props {
  snapshots: readonly Snapshot[];
  /** obstacle is why nobody can go back to a snapshot. */
  obstacle: (snapshot: Snapshot) => string | undefined;
  onRestore: (snapshot: Snapshot) => void;
}

/** SnapshotTable are snapshots, what a restore is judged by, and the way back to each. */
export function SnapshotTable({ snapshots, obstacle, onRestore }: Props) {
  const { t } = useTranslation();
  const { language } = useSettings();
  return (
    <Table
      label={t('snapshots.title')}
      rows={snapshots}
      keyOf={(snapshot) => refKey(snapshot.ref)}
      columns={[
        { title: t('snapshots.snapshot'), cell: (snapshot) => <Name snapshot={snapshot} /> },
        { title: t('cluster.state'), grow: true, cell: (snapshot) => <State snapshot={snapshot} /> },
        {
          title: t('snapshots.taken'),
          cell: ({ contents }) => contents && <When time={contents.takenTime} show="absolute" />,
        },
        {
          title: t('snapshots.size'),
          cell: ({ contents }) => contents && formatBytes(Number(contents.sizeBytes), language),
        },
        {
          title: t('snapshots.revision'),
          cell: ({ contents }) => contents && formatNumber(Number(contents.revision), language),
        },
        { title: t('snapshots.versions'), cell: ({ contents }) => contents && <Versions contents={contents} /> },
        {
          title: t('snapshots.encrypted'),
          cell: ({ contents }) => contents && t(contents.recipient ? 'conditionStatus.yes' : 'conditionStatus.no'),
        },
        {
          title: t('snapshots.restore'),
          hidden: true,
          cell: (snapshot) => (
            <div className={css.actions}>
              <Button
                obstacle={obstacle(snapshot)}
                aria-label={t('snapshots.restoreThis', { name: snapshot.ref?.name ?? '' })}
                onClick={() => onRestore(snapshot)}
              >
                {t('snapshots.restore')}
              </Button>
            </div>
          ),
        },
      ]}
    />
  );
}

function Name({ snapshot }: { snapshot: Snapshot }) {
  const { t } = useTranslation();
  return (
    <div className={css.machine}>
      <strong>{snapshot.ref?.name}</strong>
      <span className={css.quiet}>{t(`snapshots.reason.${reasonKey(snapshot)}`)}</span>
    </div>
  );
}

function State({ snapshot }: { snapshot: Snapshot }) {
  const { t } = useTranslation();
  const { key, mark, trouble } = stateOf(snapshot);
  return (
    <div className={css.machine}>
      <Mark mark={mark}>{t(`snapshots.state.${key}`)}</Mark>
      {trouble && <span lang="en">{trouble}</span>}
      {snapshot.failedAttempts > 0 && key === 'failing' && (
        <span className={css.quiet}>{t('snapshots.attempts', { count: snapshot.failedAttempts })}</span>
      )}
    </div>
  );
}

/** Versions are those that ran when it was taken. */
function Versions({ contents }: { contents: SnapshotContents }) {
  const parts = [
    ['Kubernetes', contents.kubernetesVersion],
    ['Talos', contents.talosVersion],
    ['etcd', contents.etcdVersion],
  ].filter(([, version]) => version !== '');
  return (
    <ul className={css.versions}>
      {parts.map(([name, version]) => (
        <li key={name}>
          <span className={css.quiet}>{name}</span> {version}
        </li>
      ))}
    </ul>
  );
}
