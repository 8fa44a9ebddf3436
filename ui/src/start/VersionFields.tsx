// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import { Field, Input } from '../parts/Field';
import type { FieldsProps } from './fields';

/** TalosFields are those of a Talos upgrade. */
export function TalosFields({ cluster, draft, change, problem }: FieldsProps) {
  const { t } = useTranslation();
  const runs = cluster.talosVersions?.lowest || t('app.unknown');
  return (
    <>
      <Field
        label={t('start.talosVersion')}
        help={t('start.observed', { version: runs })}
        problem={problem('talosVersion')}
      >
        {(ids) => (
          <Input
            {...ids}
            required
            value={draft.talosVersion}
            onChange={(event) => change({ talosVersion: event.target.value })}
          />
        )}
      </Field>
      <Field
        label={`${t('start.schematic')} (${t('start.optional')})`}
        help={t('start.schematicHelp')}
        problem={problem('schematicID')}
      >
        {(ids) => (
          <Input
            {...ids}
            value={draft.schematicID}
            onChange={(event) => change({ schematicID: event.target.value.trim() })}
          />
        )}
      </Field>
    </>
  );
}

/** KubernetesFields are those of a Kubernetes upgrade. */
export function KubernetesFields({ cluster, draft, change, problem }: FieldsProps) {
  const { t } = useTranslation();
  const runs = cluster.kubernetesVersions?.lowest || t('app.unknown');
  return (
    <Field
      label={t('start.kubernetesVersion')}
      help={t('start.observed', { version: runs })}
      problem={problem('kubernetesVersion')}
    >
      {(ids) => (
        <Input
          {...ids}
          required
          value={draft.kubernetesVersion}
          onChange={(event) => change({ kubernetesVersion: event.target.value })}
        />
      )}
    </Field>
  );
}

/** BudgetField is how many workers may be away at once. */
export function BudgetField({ draft, change, problem }: FieldsProps) {
  const { t } = useTranslation();
  return (
    <Field
      label={`${t('start.maxUnavailable')} (${t('start.optional')})`}
      help={t('start.maxUnavailableHelp')}
      problem={problem('maxUnavailable')}
    >
      {(ids) => (
        <Input
          {...ids}
          value={draft.maxUnavailable}
          onChange={(event) => change({ maxUnavailable: event.target.value.trim() })}
        />
      )}
    </Field>
  );
}
