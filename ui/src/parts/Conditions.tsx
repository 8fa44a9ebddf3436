// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import type { Condition } from '../gen/ichor/v1alpha1/types_pb';
import { ConditionStatus } from '../gen/ichor/v1alpha1/types_pb';
import { en } from '../i18n/en';
import { conditionMark } from '../lib/state';
import { conditionWords } from './condition';
import { Mark } from './Mark';
import { Table } from './Table';
import { When } from './When';

const words = {
  [ConditionStatus.TRUE]: 'yes',
  [ConditionStatus.FALSE]: 'no',
  [ConditionStatus.UNKNOWN]: 'unknown',
  [ConditionStatus.UNSPECIFIED]: 'unknown',
} as const;

function isNamed(type: string): type is keyof typeof en.conditionName {
  return type in en.conditionName;
}

/** Conditions are the conditions of an object in words. */
export function Conditions({ label, conditions }: { label: string; conditions: readonly Condition[] }) {
  const { t } = useTranslation();
  return (
    <Table
      label={label}
      rows={conditions}
      keyOf={(row) => row.type}
      columns={[
        {
          title: t('cluster.condition'),
          cell: (row) => (isNamed(row.type) ? t(`conditionName.${row.type}`) : row.type),
        },
        {
          title: t('cluster.state'),
          cell: (row) => <Mark mark={conditionMark(row)}>{t(`conditionStatus.${words[row.status]}`)}</Mark>,
        },
        { title: t('cluster.meaning'), grow: true, cell: (row) => <Meaning condition={row} /> },
        { title: t('cluster.sinceColumn'), cell: (row) => <When time={row.lastTransitionTime} /> },
      ]}
    />
  );
}

function Meaning({ condition }: { condition: Condition }) {
  const { t } = useTranslation();
  const { message, reason } = condition;
  const words = message === '' ? conditionWords(t, condition) : undefined;
  return words ? <span title={reason}>{words}</span> : <span lang="en">{message || reason}</span>;
}
