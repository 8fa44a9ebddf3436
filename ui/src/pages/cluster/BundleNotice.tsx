// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import type { Cluster } from '../../gen/ichor/v1alpha1/cluster_pb';
import { ConditionStatus } from '../../gen/ichor/v1alpha1/types_pb';
import { cli } from '../../lib/cli';
import { Command } from '../../parts/Command';
import { Notice } from '../../parts/Notice';

/** BundleNotice says that a backup which people keep of the cluster's secrets is of no use any more, and how to make another one. */
export function BundleNotice({ cluster }: { cluster: Cluster }) {
  const { t } = useTranslation();
  const stale = cluster.conditions.some(
    ({ type, status }) => type === 'BundleBackupStale' && status === ConditionStatus.TRUE,
  );
  const { namespace = '', name = '' } = cluster.ref ?? {};
  return stale ? (
    <Notice mark="soon" title={t('cluster.bundleStale')}>
      <p>{t('cluster.bundleStaleText')}</p>
      <Command line={cli.exportBundle({ namespace, name })} />
    </Notice>
  ) : null;
}
