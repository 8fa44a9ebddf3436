// SPDX-License-Identifier: Apache-2.0
import type { MessageInitShape } from '@bufbuild/protobuf';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import { useInfiniteQuery } from '@connectrpc/connect-query';
import { useEffect, useRef } from 'react';
import { useTranslation } from 'react-i18next';
import { useSettings } from '../../app/settings';
import type { Operation, OperationFilterSchema } from '../../gen/ichor/v1alpha1/operation_pb';
import { OperationService } from '../../gen/ichor/v1alpha1/operation_pb';
import { formatDuration } from '../../lib/format';
import { targetParts } from '../../lib/operations';
import { refKey } from '../../lib/refs';
import { Button } from '../../parts/Button';
import { CallFailure, MissingParts } from '../../parts/Failure';
import { Quiet } from '../../parts/Section';
import type { Column } from '../../parts/Table';
import { Table } from '../../parts/Table';
import { When } from '../../parts/When';
import { ClusterLink, Name } from './OpenOperations';
import css from './Operations.module.css';

interface Props {
  filter: MessageInitShape<typeof OperationFilterSchema>;
  /** age changes when an operation may have been completed, so that the first page is asked for again. */
  age: string;
  empty: string;
  withCluster: boolean;
}

const pageSize = 25;

/** DoneOperations are operations that are over, the latest first, in pages. */
export function DoneOperations({ filter, age, empty, withCluster }: Props) {
  const { t } = useTranslation();
  const query = useInfiniteQuery(
    OperationService.method.listOperations,
    { filter, orderBy: 'completion_time desc', page: { size: pageSize, token: '' } },
    {
      pageParamKey: 'page',
      getNextPageParam: (last) => (last.nextPageToken ? { size: pageSize, token: last.nextPageToken } : undefined),
    },
  );
  const seen = useRef(age);
  const { refetch } = query;
  useEffect(() => {
    if (seen.current !== age) {
      seen.current = age;
      void refetch();
    }
  }, [age, refetch]);

  if (query.error) {
    return <CallFailure error={query.error} />;
  }
  const pages = query.data?.pages ?? [];
  const operations = pages.flatMap((page) => page.operations);
  return (
    <>
      <MissingParts failures={pages[0]?.failures ?? []} />
      {operations.length === 0 ? (
        <Quiet>{query.isPending ? t('app.loading') : empty}</Quiet>
      ) : (
        <Done operations={operations} withCluster={withCluster} />
      )}
      {query.hasNextPage && (
        <div className={css.more}>
          <Button onClick={() => void query.fetchNextPage()}>{t('app.more')}</Button>
        </div>
      )}
    </>
  );
}

function Done({ operations, withCluster }: { operations: readonly Operation[]; withCluster: boolean }) {
  const { t } = useTranslation();
  const columns: Column<Operation>[] = [
    { title: t('operations.completed'), cell: (operation) => <When time={operation.completionTime} show="absolute" /> },
    { title: t('operations.operation'), cell: (operation) => <Name operation={operation} /> },
    { title: t('operation.target'), cell: (operation) => <Target operation={operation} /> },
    { title: t('cluster.machines'), cell: (operation) => <MachineCount operation={operation} /> },
    { title: t('operations.took'), cell: (operation) => <Took operation={operation} /> },
    { title: t('operations.by'), cell: (operation) => operation.createdBy },
  ];
  if (withCluster) {
    columns.splice(2, 0, {
      title: t('operations.cluster'),
      cell: (operation) => <ClusterLink operation={operation} />,
    });
  }
  return (
    <Table
      label={t('operations.done')}
      rows={operations}
      keyOf={(operation) => refKey(operation.ref)}
      columns={columns}
    />
  );
}

function Target({ operation }: { operation: Operation }) {
  const parts = targetParts(operation.target).filter((part) => part.name !== 'Schematic');
  return parts.map((part) => `${part.name} ${part.value}`).join(', ');
}

function MachineCount({ operation }: { operation: Operation }) {
  const { t } = useTranslation();
  return (
    <div className={css.cell}>
      <span>{t('start.machinesTotal', { count: operation.machinesCompleted })}</span>
      {operation.held.length > 0 && (
        <span className={css.quiet}>{t('fleet.held', { count: operation.held.length })}</span>
      )}
    </div>
  );
}

function Took({ operation }: { operation: Operation }) {
  const { language } = useSettings();
  const { startTime, completionTime } = operation;
  return startTime && completionTime
    ? formatDuration(timestampMs(completionTime) - timestampMs(startTime), language)
    : null;
}
