// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import { Link } from 'wouter';
import type { Cluster } from '../../gen/ichor/v1alpha1/cluster_pb';
import type { RowOperation } from '../../lib/fleetrow';
import { holderName, rowOperation } from '../../lib/fleetrow';
import { operationPath, refKey } from '../../lib/refs';
import { kindKey } from '../../lib/rights';
import { stageWords } from '../../parts/code';
import { Shape } from '../../parts/Mark';
import { Progress } from '../../parts/Progress';
import { reasonWords } from '../../parts/reason';
import { Quiet, Section } from '../../parts/Section';
import { When } from '../../parts/When';
import css from './Cluster.module.css';

/** Lock is who may disrupt the cluster now, and who waits for it. */
export function Lock({ cluster }: { cluster: Cluster }) {
  const { t } = useTranslation();
  const holder = holderName(cluster.lock?.operation, cluster.lock?.holder);
  const holding = refKey(cluster.lock?.operation);
  const operations = cluster.operations
    .map(rowOperation)
    .sort((a, b) => Number(b.key === holding) - Number(a.key === holding));
  return (
    <Section title={t('cluster.lock')}>
      {holder === '' ? (
        <p>{t('cluster.lockFree')}</p>
      ) : (
        <p>
          {t('cluster.lockHeld', { holder })}{' '}
          <span className={css.quiet}>
            (<When time={cluster.lock?.since} />)
          </span>
        </p>
      )}
      {operations.length === 0 ? <Quiet>{t('cluster.noQueue')}</Quiet> : <Queue operations={operations} />}
    </Section>
  );
}

function Queue({ operations }: { operations: readonly RowOperation[] }) {
  const { t } = useTranslation();
  return (
    <ol className={css.queue} aria-label={t('cluster.queue')}>
      {operations.map((operation) => {
        const progress = t('fleet.progress', { done: operation.completed, count: operation.total });
        return (
          <li key={operation.key} className={css.queued}>
            <div className={css.queuedLine}>
              <Shape mark={operation.mark} />
              <Link href={operationPath(operation)}>{operation.name}</Link>
              <span className={css.quiet}>{t(`kind.${kindKey(operation.kind)}`)}</span>
            </div>
            <div className={css.queuedLine}>
              <Progress done={operation.completed} total={operation.total} mark={operation.mark} label={progress} />
              <span className={css.quiet}>
                {[progress, stageWords(t, operation.stage)].filter(Boolean).join(' · ')}
              </span>
            </div>
            {operation.reason && <span>{reasonWords(t, operation.reason)}</span>}
          </li>
        );
      })}
    </ol>
  );
}
