// SPDX-License-Identifier: Apache-2.0
import { durationMs } from '@bufbuild/protobuf/wkt';
import { useTranslation } from 'react-i18next';
import { useSettings } from '../app/settings';
import type { Plan, PlanStage } from '../gen/ichor/v1alpha1/operation_pb';
import { MachineRole } from '../gen/ichor/v1alpha1/types_pb';
import { formatDuration } from '../lib/format';
import { changesOf, effectOf, machineCount } from '../lib/plans';
import { Fact, Facts } from '../parts/Facts';
import { Mark } from '../parts/Mark';
import { Notice } from '../parts/Notice';
import { When } from '../parts/When';
import css from './Start.module.css';

/** PlanView is what an operation would do. */
export function PlanView({ plan }: { plan: Plan }) {
  const { t } = useTranslation();
  const { language } = useSettings();
  const effect = effectOf(plan);
  const estimate = plan.estimatedDuration;
  return (
    <>
      <Facts>
        <Fact name={t('start.effect')}>{effect && <Mark mark={effect.mark}>{t(`effect.${effect.key}`)}</Mark>}</Fact>
        <Fact name={t('cluster.machines')}>{t('start.machinesTotal', { count: machineCount(plan) })}</Fact>
        <Fact name={t('start.estimateLabel')}>
          {estimate
            ? t('start.estimate', { length: formatDuration(durationMs(estimate), language) })
            : t('start.noEstimate')}
        </Fact>
        {changesOf(plan.current, plan.target).map(({ name, from, to }) => (
          <Fact key={name} name={name}>
            {from && from !== to && (
              <>
                <span className="visually-hidden">{t('start.from')}</span> {from} <span aria-hidden="true">→</span>{' '}
                <span className="visually-hidden">{t('start.to')}</span>
              </>
            )}
            <strong>{to}</strong>
          </Fact>
        ))}
        <Fact name={t('start.held')}>{plan.held.join(', ')}</Fact>
        <Fact name={t('start.liveGates')}>{plan.liveGates.join(', ')}</Fact>
        <Fact name={t('start.observedAt')}>{plan.observedTime && <When time={plan.observedTime} />}</Fact>
      </Facts>
      {plan.warnings.length > 0 && (
        <Notice mark="soon" title={t('start.warnings')}>
          <ul lang="en">
            {plan.warnings.map((warning) => (
              <li key={warning.code + warning.message}>{warning.message}</li>
            ))}
          </ul>
        </Notice>
      )}
      {plan.writesSpec && <p>{t('start.writesSpec')}</p>}
      <div className={css.order}>
        <h3>{t('start.order')}</h3>
        {plan.stages.map((stage) => (
          <Stage key={stage.name} stage={stage} />
        ))}
      </div>
    </>
  );
}

function Stage({ stage }: { stage: PlanStage }) {
  const { t } = useTranslation();
  return (
    <section className={css.stage} aria-label={stage.name}>
      <p>
        <strong>{stage.name}</strong> {stage.disruptive && <span className={css.quiet}>{t('start.disruptive')}</span>}
      </p>
      <ol className={css.groups}>
        {stage.groups.map((group, index) => (
          <li key={group.machines[0]?.name ?? index} className={css.group}>
            <span className={css.quiet}>{t('start.step', { number: index + 1 })}</span>
            {group.machines.map((machine) => (
              <span key={machine.name} className={css.machine}>
                {machine.node || machine.name}
                {machine.role === MachineRole.CONTROL_PLANE && (
                  <span className={css.quiet}> {t('cluster.controlPlane')}</span>
                )}
              </span>
            ))}
            {group.machines.length > 1 && <span className={css.quiet}>{t('start.together')}</span>}
          </li>
        ))}
      </ol>
    </section>
  );
}
