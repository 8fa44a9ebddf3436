// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import { Link } from 'wouter';
import type { Operation } from '../../gen/ichor/v1alpha1/operation_pb';
import { actionOf, phaseKey } from '../../lib/operations';
import { clusterPath, operationPath, refKey } from '../../lib/refs';
import { operationMark } from '../../lib/state';
import { stageWords } from '../../parts/code';
import { kindWords } from '../../parts/kind';
import { Mark } from '../../parts/Mark';
import { Progress } from '../../parts/Progress';
import { reasonWords } from '../../parts/reason';
import { Table } from '../../parts/Table';
import { When } from '../../parts/When';
import css from './Operations.module.css';

/** OpenOperations are operations that are not over, with what each does or why it does not move. */
export function OpenOperations({ operations }: { operations: readonly Operation[] }) {
  const { t } = useTranslation();
  return (
    <Table
      label={t('operations.open')}
      rows={operations}
      keyOf={(operation) => refKey(operation.ref)}
      columns={[
        { title: t('operations.state'), cell: (operation) => <State operation={operation} /> },
        { title: t('operations.operation'), cell: (operation) => <Name operation={operation} /> },
        { title: t('operations.cluster'), cell: (operation) => <ClusterLink operation={operation} /> },
        { title: t('operations.progress'), cell: (operation) => <HowFar operation={operation} /> },
        { title: t('operations.why'), grow: true, cell: (operation) => <Why operation={operation} /> },
        { title: t('operations.by'), cell: (operation) => <By operation={operation} /> },
      ]}
    />
  );
}

function State({ operation }: { operation: Operation }) {
  const { t } = useTranslation();
  return (
    <div className={css.cell}>
      <Mark mark={operationMark(operation.phase, operation.attention)} />
      <span className={css.quiet}>{t(`phase.${phaseKey(operation.phase)}`)}</span>
    </div>
  );
}

/** Name is the link to an operation, with its kind. */
export function Name({ operation }: { operation: Operation }) {
  const { t } = useTranslation();
  return (
    <div className={css.cell}>
      {operation.ref && <Link href={operationPath(operation.ref)}>{operation.ref.name}</Link>}
      <span className={css.quiet}>{kindWords(t, operation.kind, actionOf(operation))}</span>
    </div>
  );
}

/** ClusterLink is the link to the cluster of an operation. */
export function ClusterLink({ operation }: { operation: Operation }) {
  return operation.cluster ? (
    <div className={css.cell}>
      <Link href={clusterPath(operation.cluster)}>{operation.cluster.name}</Link>
      <span className={css.quiet}>{operation.cluster.namespace}</span>
    </div>
  ) : null;
}

function HowFar({ operation }: { operation: Operation }) {
  const { t } = useTranslation();
  const { machinesCompleted: done, machinesTotal: total } = operation;
  return (
    <div className={css.cell}>
      <span className={css.progress}>
        <Progress
          done={done}
          total={total}
          mark={operationMark(operation.phase, operation.attention)}
          label={t('fleet.progress', { done, count: total })}
        />
        <span aria-hidden="true">
          {done}/{total}
        </span>
      </span>
      <span className={css.quiet}>{stageWords(t, operation.stage)}</span>
    </div>
  );
}

function Why({ operation }: { operation: Operation }) {
  const { t } = useTranslation();
  const { answer } = operation;
  const stands = answer && answer.why !== '';
  return (
    <div className={css.cell}>
      {stands && answer.reason !== '' && <span>{reasonWords(t, answer.reason)}</span>}
      <span lang="en" className={stands ? css.quiet : undefined}>
        {stands ? answer.why : answer?.doing}
      </span>
    </div>
  );
}

function By({ operation }: { operation: Operation }) {
  return (
    <div className={css.cell}>
      <span>{operation.createdBy}</span>
      <span className={css.quiet}>
        <When time={operation.createTime} />
      </span>
    </div>
  );
}
