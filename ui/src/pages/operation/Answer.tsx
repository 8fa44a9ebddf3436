// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import type { Operation } from '../../gen/ichor/v1alpha1/operation_pb';
import { awaitedOf, isOver, rewritten } from '../../lib/operations';
import { operationMark } from '../../lib/state';
import { Command } from '../../parts/Command';
import { Notice } from '../../parts/Notice';
import { Progress } from '../../parts/Progress';
import { reasonWords } from '../../parts/reason';
import { Awaits } from './Awaits';
import css from './Operation.module.css';
import { StageRail } from './StageRail';

/** Answer is what somebody wants to know first: what does it do, why does it not move, who changes that, and how. */
export function Answer({ operation }: { operation: Operation }) {
  const { t } = useTranslation();
  const mark = operationMark(operation.phase, operation.attention);
  const awaited = isOver(operation) || operation.failureReason !== '' ? undefined : awaitedOf(operation);
  const written = rewritten(operation);
  return (
    <div className={css.answer}>
      {operation.failureReason !== '' && (
        <Notice mark="failed" title={t('operation.failure')}>
          <p lang="en">{operation.failureReason}</p>
          <p>{t('operation.noRetry')}</p>
          {operation.answer?.command && <Command line={operation.answer.command} label={t('operation.who')} />}
        </Notice>
      )}
      {awaited && <Awaits operation={operation} awaited={awaited} />}
      {operation.failureReason === '' && !isOver(operation) && (!awaited || operation.paused) && (
        <Now operation={operation} />
      )}
      {operation.turnBackRequested && !isOver(operation) && <Notice mark="waiting" title={t('operation.turnsBack')} />}
      {operation.deleting && <Notice mark="waiting" title={t('operation.settling')} />}
      <div className={css.progress}>
        <Progress
          done={operation.machinesCompleted}
          total={operation.machinesTotal}
          mark={mark}
          label={t('fleet.progress', { done: operation.machinesCompleted, count: operation.machinesTotal })}
        />
        <span>{t('fleet.progress', { done: operation.machinesCompleted, count: operation.machinesTotal })}</span>
        {written !== undefined && <span>{t('operation.rewritten', { count: written })}</span>}
      </div>
      <StageRail operation={operation} />
    </div>
  );
}

function Now({ operation }: { operation: Operation }) {
  const { t } = useTranslation();
  const { answer } = operation;
  const stands = answer !== undefined && answer.why !== '';
  const title =
    stands && answer.reason ? reasonWords(t, answer.reason) : t(stands ? 'operation.why' : 'operation.doing');
  return (
    <Notice mark={operationMark(operation.phase, operation.attention)} title={title}>
      {answer?.doing && <p lang="en">{answer.doing}</p>}
      {stands && <p lang="en">{answer.why}</p>}
      {answer?.who && (
        <p>
          {t('operation.who')}: <span lang="en">{answer.who}</span>
        </p>
      )}
      {answer?.command && <Command line={answer.command} />}
      {operation.paused && answer?.reason !== 'OperatorPaused' && <p>{t('operation.pauseAsked')}</p>}
    </Notice>
  );
}
