// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import { Link } from 'wouter';
import type { AuditEntry } from '../../gen/ichor/v1alpha1/hub_pb';
import { AuditResult } from '../../gen/ichor/v1alpha1/hub_pb';
import { resultKey } from '../../lib/auditquery';
import { clientName } from '../../lib/format';
import { clusterPath, operationPath } from '../../lib/refs';
import type { Mark as MarkName } from '../../lib/state';
import { Mark } from '../../parts/Mark';
import { Table } from '../../parts/Table';
import { When } from '../../parts/When';
import css from './Audit.module.css';

const resultMarks: Record<AuditResult, MarkName> = {
  [AuditResult.UNSPECIFIED]: 'unknown',
  [AuditResult.DONE]: 'ok',
  [AuditResult.DENIED]: 'person',
  [AuditResult.REFUSED]: 'soon',
  [AuditResult.FAILED]: 'failed',
};

/** AuditTable are entries of the audit. */
export function AuditTable({ entries }: { entries: readonly AuditEntry[] }) {
  const { t } = useTranslation();
  return (
    <Table
      label={t('audit.title')}
      rows={entries}
      keyOf={(entry) => entry.id}
      columns={[
        { title: t('audit.time'), cell: (entry) => <When time={entry.time} show="absolute" /> },
        { title: t('audit.user'), cell: (entry) => <span className={css.user}>{entry.user}</span> },
        { title: t('audit.action'), cell: (entry) => entry.action },
        { title: t('audit.subject'), cell: (entry) => <Subject entry={entry} /> },
        {
          title: t('audit.result'),
          cell: (entry) => <Mark mark={resultMarks[entry.result]}>{t(`audit.${resultKey(entry.result)}`)}</Mark>,
        },
        { title: t('app.details'), grow: true, cell: (entry) => <Details entry={entry} /> },
        { title: t('audit.from'), cell: (entry) => <From entry={entry} /> },
      ]}
    />
  );
}

function Subject({ entry }: { entry: AuditEntry }) {
  return (
    <div className={`${css.cell} ${css.subject}`}>
      {entry.cluster && <Link href={clusterPath(entry.cluster)}>{entry.cluster.name}</Link>}
      {entry.operation && <Link href={operationPath(entry.operation)}>{entry.operation.name}</Link>}
      {entry.machine && <span>{entry.machine.name}</span>}
    </div>
  );
}

function Details({ entry }: { entry: AuditEntry }) {
  const { t } = useTranslation();
  return (
    <div className={css.cell} lang="en">
      <span>{entry.detail}</span>
      {entry.message && <span className={css.quiet}>{entry.message}</span>}
      {entry.overrides.map(({ gate, reason }) => (
        <span key={gate}>{t('operation.override', { gate, reason })}</span>
      ))}
    </div>
  );
}

function From({ entry }: { entry: AuditEntry }) {
  return (
    <div className={css.cell}>
      <span>{entry.source}</span>
      <span className={css.quiet} title={entry.client}>
        {clientName(entry.client)}
      </span>
    </div>
  );
}
