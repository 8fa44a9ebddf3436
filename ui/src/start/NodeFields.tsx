// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import type { Draft } from '../lib/orders';
import { nodeActions } from '../lib/orders';
import { Choice } from '../parts/Choice';
import { Field, Input } from '../parts/Field';
import { kindWords } from '../parts/kind';
import type { FieldsProps } from './fields';

/** NodeFields are those of an action on a machine, or on the etcd of the whole cluster. */
export function NodeFields(props: FieldsProps) {
  const { t } = useTranslation();
  const { draft, change, role } = props;
  return (
    <>
      {role !== undefined && (
        <Choice
          label={t('audit.action')}
          value={draft.action}
          options={nodeActions(role).map((action) => ({
            value: action,
            label: kindWords(t, draft.kind, action),
            help: t(`start.actionHelp.${action as 'Reboot'}`),
          }))}
          onChange={(action) => change({ action })}
        />
      )}
      {draft.action === 'Reboot' && <RebootFields {...props} />}
      {draft.action === 'RestartService' && <ServiceField {...props} />}
      {draft.action === 'EtcdDefrag' && <EtcdFields {...props} />}
      {draft.action === 'Reset' && <ResetFields {...props} />}
    </>
  );
}

function RebootFields({ draft, change }: FieldsProps) {
  const { t } = useTranslation();
  return (
    <Choice
      label={t('start.rebootMode')}
      value={draft.rebootMode}
      options={[
        { value: '', label: t('start.rebootModes.default') },
        { value: 'PowerCycle', label: t('start.rebootModes.PowerCycle'), help: t('start.rebootModes.powerCycleHelp') },
        { value: 'Force', label: t('start.rebootModes.Force'), help: t('start.rebootModes.forceHelp') },
      ]}
      onChange={(rebootMode) => change({ rebootMode })}
    />
  );
}

function ServiceField({ draft, change, problem }: FieldsProps) {
  const { t } = useTranslation();
  return (
    <Field label={t('start.service')} help={t('start.serviceHelp')} problem={problem('service')}>
      {(ids) => (
        <Input
          {...ids}
          required
          value={draft.service}
          onChange={(event) => change({ service: event.target.value.trim() })}
        />
      )}
    </Field>
  );
}

function EtcdFields({ draft, change }: FieldsProps) {
  const { t } = useTranslation();
  return (
    <>
      {draft.machine !== '' && (
        <Choice
          label={t('start.members')}
          value={draft.members}
          options={[
            { value: 'one', label: t('start.memberOne', { name: draft.machine }) },
            { value: 'every', label: t('start.memberEvery'), help: t('start.memberEveryHelp') },
          ]}
          onChange={(members) => change({ members })}
        />
      )}
      <Choice
        label={t('start.alarms')}
        value={draft.alarms}
        options={[
          { value: '', label: t('start.alarmsKeep') },
          { value: 'Disarm', label: t('start.alarmsDisarm'), help: t('start.alarmsDisarmHelp') },
        ]}
        onChange={(alarms) => change({ alarms })}
      />
    </>
  );
}

function ResetFields({ draft, change }: FieldsProps) {
  const { t } = useTranslation();
  return (
    <>
      <Choice
        label={t('start.manner')}
        value={draft.resetManner}
        options={[
          { value: '', label: t('start.graceful'), help: t('start.gracefulHelp') },
          { value: 'Forced', label: t('start.forced'), help: t('start.forcedHelp') },
        ]}
        onChange={(resetManner) => change({ resetManner })}
      />
      <Choice<Draft['wipe']>
        label={t('start.wipe')}
        value={draft.wipe}
        options={[
          { value: 'System', label: t('start.wipes.System'), help: t('start.wipes.systemHelp') },
          { value: 'UserVolumes', label: t('start.wipes.UserVolumes') },
          { value: 'Both', label: t('start.wipes.Both') },
        ]}
        onChange={(wipe) => change({ wipe })}
      />
      <Choice
        label={t('start.after')}
        value={draft.afterReset}
        options={[
          { value: '', label: t('start.afterReboot') },
          { value: 'PowerOff', label: t('start.afterPowerOff') },
        ]}
        onChange={(afterReset) => change({ afterReset })}
      />
    </>
  );
}
