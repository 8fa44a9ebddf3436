// SPDX-License-Identifier: Apache-2.0
import { useQuery } from '@connectrpc/connect-query';
import { useTranslation } from 'react-i18next';
import type { ConfigDiff } from '../gen/ichor/v1alpha1/cluster_pb';
import { ClusterService } from '../gen/ichor/v1alpha1/cluster_pb';
import { configEffect, toggled } from '../lib/configs';
import { Diff } from '../parts/Diff';
import { CallFailure } from '../parts/Failure';
import { Mark } from '../parts/Mark';
import { Quiet } from '../parts/Section';
import type { FieldsProps } from './fields';
import css from './Start.module.css';

/** ConfigFields are the machines of a config roll-out: what changes on each, and what that takes. */
export function ConfigFields({ cluster, draft, change, problem }: FieldsProps) {
  const { t } = useTranslation();
  const { namespace = '', name = '' } = cluster.ref ?? {};
  const { data, error } = useQuery(ClusterService.method.diffConfig, { cluster: { namespace, name } });
  if (error) {
    return <CallFailure error={error} />;
  }
  if (!data) {
    return <Quiet>{t('app.loading')}</Quiet>;
  }
  const all = data.machines.map(nameOf);
  const wrong = problem('machines');
  return (
    <fieldset className={css.machines} aria-describedby={wrong && 'machines-problem'}>
      <legend>{t('cluster.machines')}</legend>
      {data.machines.map((machine) => (
        <ConfigLine
          key={nameOf(machine)}
          machine={machine}
          chosen={draft.machines?.includes(nameOf(machine)) ?? true}
          invalid={wrong !== undefined}
          onToggle={() => change({ machines: toggled(draft.machines, all, nameOf(machine)) })}
        />
      ))}
      {wrong && (
        <p id="machines-problem" className={css.problem}>
          {wrong}
        </p>
      )}
    </fieldset>
  );
}

const nameOf = (machine: ConfigDiff) => machine.machine?.name ?? '';

interface LineProps {
  machine: ConfigDiff;
  chosen: boolean;
  invalid: boolean;
  onToggle: () => void;
}

function ConfigLine({ machine, chosen, invalid, onToggle }: LineProps) {
  const { t } = useTranslation();
  const { key, mark } = configEffect(machine.effect);
  const name = machine.node || nameOf(machine);
  return (
    <div className={css.configLine}>
      <label className={css.tick}>
        <input type="checkbox" checked={chosen} aria-invalid={invalid || undefined} onChange={onToggle} />
        <strong>{name}</strong>
      </label>
      <Mark mark={mark}>{t(`configEffect.${key}`)}</Mark>
      {machine.trouble && (
        <p className={css.wide} lang="en">
          {machine.trouble}
        </p>
      )}
      {machine.pending && (
        <p className={css.wide}>
          {t('start.pendingConfig')} <span lang="en">{machine.pending}</span>
        </p>
      )}
      {machine.diff && <MachineDiff name={name} diff={machine.diff} />}
    </div>
  );
}

/** MachineDiff is what changes in the config of a machine, for who asks. */
export function MachineDiff({ name, diff }: { name: string; diff: string }) {
  const { t } = useTranslation();
  return (
    <details className={css.wide}>
      <summary>{t('start.diffOf', { name })}</summary>
      <Diff text={diff} />
    </details>
  );
}
