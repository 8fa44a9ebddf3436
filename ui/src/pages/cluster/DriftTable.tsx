// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import type { Drift } from '../../gen/ichor/v1alpha1/cluster_pb';
import { Table } from '../../parts/Table';

/** DriftTable is how what is observed differs from the spec. */
export function DriftTable({ drift }: { drift: readonly Drift[] }) {
  const { t } = useTranslation();
  return (
    <Table
      label={t('cluster.drift')}
      rows={drift}
      keyOf={(row) => row.field}
      columns={[
        { title: t('cluster.field'), cell: (row) => <code>{row.field}</code> },
        { title: t('cluster.spec'), cell: (row) => row.desired },
        { title: t('cluster.observed'), cell: (row) => row.observed },
        { title: t('cluster.machines'), grow: true, cell: (row) => <DriftMachines machines={row.machines} /> },
      ]}
    />
  );
}

function DriftMachines({ machines }: { machines: readonly string[] }) {
  const { t } = useTranslation();
  if (machines.length <= 6) {
    return machines.join(', ');
  }
  return (
    <details>
      <summary>{t('cluster.driftMachines', { count: machines.length })}</summary>
      {machines.join(', ')}
    </details>
  );
}
