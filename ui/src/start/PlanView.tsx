// SPDX-License-Identifier: Apache-2.0
import { durationMs } from '@bufbuild/protobuf/wkt';
import { useTranslation } from 'react-i18next';
import { useSettings } from '../app/settings';
import type { Plan, PlanMachine, PlanStage } from '../gen/ichor/v1alpha1/operation_pb';
import { MachineRole } from '../gen/ichor/v1alpha1/types_pb';
import { formatDuration } from '../lib/format';
import { changesOf, effectOf, machinesOf, sameOrder, staysUp } from '../lib/plans';
import { gateWords, stageWords, warningWords } from '../parts/code';
import { Fact, Facts } from '../parts/Facts';
import { Mark } from '../parts/Mark';
import { Notice } from '../parts/Notice';
import { When } from '../parts/When';
import { MachineDiff } from './ConfigFields';
import css from './Start.module.css';

/** PlanView is what an operation would do. */
export function PlanView({ plan }: { plan: Plan }) {
  const { t } = useTranslation();
  const { language } = useSettings();
  const effect = effectOf(plan);
  const estimate = plan.estimatedDuration;
  const machines = machinesOf(plan);
  const changed = machines.filter((machine) => machine.diff !== '');
  return (
    <>
      <Facts>
        <Fact name={t('start.effect')} wide>
          {effect && <Mark mark={effect.mark}>{t(`effect.${effect.key}`)}</Mark>}
        </Fact>
        <Fact name={t('cluster.machines')}>{t('start.machinesTotal', { count: machines.length })}</Fact>
        <Fact name={t('start.estimateLabel')}>
          {estimate
            ? t('start.estimate', { length: formatDuration(durationMs(estimate), language) })
            : t('start.noEstimate')}
        </Fact>
        {changesOf(plan).map(({ name, from, to }) => (
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
        <Fact name={t('start.observedAt')}>{plan.observedTime && <When time={plan.observedTime} />}</Fact>
        <Fact name={t('start.liveGates')} wide>
          {plan.liveGates.map((gate) => gateWords(t, gate)).join(', ')}
        </Fact>
      </Facts>
      {plan.losses.length > 0 && (
        <Notice mark="failed" title={t('start.losses')}>
          <ul lang="en">
            {plan.losses.map((loss) => (
              <li key={loss}>{loss}</li>
            ))}
          </ul>
        </Notice>
      )}
      {plan.warnings.length > 0 && (
        <Notice mark="soon" title={t('start.warnings')}>
          <ul>
            {plan.warnings.map((warning) => (
              <li key={warning.code + warning.message}>
                <strong>{warningWords(t, warning.code)}</strong> <span lang="en">{warning.message}</span>
              </li>
            ))}
          </ul>
        </Notice>
      )}
      {plan.writesSpec && <p>{t('start.writesSpec')}</p>}
      {changed.length > 0 && (
        <div className={css.order}>
          <h3>{t('start.changes')}</h3>
          {changed.map((machine) => (
            <MachineDiff key={machine.name} name={machine.node || machine.name} diff={machine.diff} />
          ))}
        </div>
      )}
      <div className={css.order}>
        <h3>{t('start.order')}</h3>
        {plan.stages.map((stage, index) => (
          <Stage
            key={stage.name}
            stage={stage}
            before={sameOrder(stage, plan.stages.slice(0, index))}
            away={!staysUp(plan)}
          />
        ))}
      </div>
    </>
  );
}

interface StageProps {
  stage: PlanStage;
  /** before is a stage that takes the same machines in the same order. */
  before: PlanStage | undefined;
  /** away says that a disruptive stage takes machines away, and not only something on them. */
  away: boolean;
}

function Stage({ stage, before, away }: StageProps) {
  const { t } = useTranslation();
  return (
    <section className={css.stage} aria-label={stageWords(t, stage.name)}>
      <p>
        <strong>{stageWords(t, stage.name)}</strong>{' '}
        {stage.disruptive && (
          <span className={css.quiet}>{t(away ? 'start.disruptive' : 'start.changesMachines')}</span>
        )}{' '}
        {before && <span className={css.quiet}>{t('start.sameOrder', { stage: stageWords(t, before.name) })}</span>}
      </p>
      {stage.groups.length > 0 && !before && <Groups stage={stage} />}
    </section>
  );
}

function Groups({ stage }: { stage: PlanStage }) {
  const { t } = useTranslation();
  return (
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
              <MachineEffect machine={machine} />
            </span>
          ))}
          {group.machines.length > 1 && <span className={css.quiet}>{t('start.together')}</span>}
        </li>
      ))}
    </ol>
  );
}

/** MachineEffect is what one machine goes through, where they differ. */
function MachineEffect({ machine }: { machine: PlanMachine }) {
  const { t } = useTranslation();
  const effect = effectOf(machine);
  return effect ? (
    <>
      {' '}
      <Mark mark={effect.mark}>{t(`machineEffect.${effect.key}`)}</Mark>
    </>
  ) : null;
}
