// SPDX-License-Identifier: Apache-2.0
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import type { Cluster } from '../gen/ichor/v1alpha1/cluster_pb';
import { OperationKind } from '../gen/ichor/v1alpha1/operation_pb';
import type { Draft } from '../lib/orders';
import { problemsOf } from '../lib/orders';
import { Button } from '../parts/Button';
import { Buttons } from '../parts/Dialog';
import { CallFailure } from '../parts/Failure';
import { Field, Input, Select } from '../parts/Field';
import { Quiet } from '../parts/Section';
import css from './Start.module.css';

interface Props {
  cluster: Cluster;
  draft: Draft;
  asking: boolean;
  error: Error | null;
  onReview: (draft: Draft) => void;
  onClose: () => void;
}

type Change = (change: Partial<Draft>) => void;
type FieldsProps = {
  cluster: Cluster;
  draft: Draft;
  change: Change;
  problem: (field: keyof Draft) => string | undefined;
};

/** OrderForm is what shall be done. It complains when somebody wants to go on, not while they type. */
export function OrderForm({ cluster, draft: first, asking, error, onReview, onClose }: Props) {
  const { t } = useTranslation();
  const [draft, setDraft] = useState(first);
  const [complained, complain] = useState(false);
  const problems = problemsOf(draft);
  const problem = (field: keyof Draft) => {
    const found = problems[field];
    return complained && found ? t(`start.problem.${found}`) : undefined;
  };
  const submit = (event: React.FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    complain(true);
    if (Object.keys(problems).length === 0) {
      onReview(draft);
      return;
    }
    const form = event.currentTarget;
    requestAnimationFrame(() => form.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus());
  };
  const fields = { cluster, draft, problem, change: (change: Partial<Draft>) => setDraft({ ...draft, ...change }) };
  return (
    <form className={css.form} onSubmit={submit} noValidate>
      {draft.kind === OperationKind.TALOS && <TalosFields {...fields} />}
      {draft.kind === OperationKind.KUBERNETES && <KubernetesFields {...fields} />}
      {draft.kind === OperationKind.NODE && <NodeFields {...fields} />}
      {draft.kind !== OperationKind.NODE && <MaxUnavailable {...fields} />}
      {error && <CallFailure error={error} />}
      <Buttons>
        <Quiet>{t('start.reviewHint')}</Quiet>
        <Button onClick={onClose}>{t('app.cancel')}</Button>
        <Button type="submit" look="primary">
          {t(asking ? 'start.reviewing' : 'start.review')}
        </Button>
      </Buttons>
    </form>
  );
}

function TalosFields({ cluster, draft, change, problem }: FieldsProps) {
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

function KubernetesFields({ cluster, draft, change, problem }: FieldsProps) {
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

function NodeFields({ draft, change, problem }: FieldsProps) {
  const { t } = useTranslation();
  return (
    <>
      <Field label={t('start.machine')} problem={problem('machine')}>
        {(ids) => <Input {...ids} readOnly value={draft.machine} />}
      </Field>
      <Field label={t('start.rebootMode')}>
        {(ids) => (
          <Select {...ids} value={draft.rebootMode} onChange={(event) => change({ rebootMode: event.target.value })}>
            <option value="">{t('start.rebootModes.default')}</option>
            <option value="PowerCycle">{t('start.rebootModes.PowerCycle')}</option>
            <option value="Force">{t('start.rebootModes.Force')}</option>
          </Select>
        )}
      </Field>
    </>
  );
}

function MaxUnavailable({ draft, change, problem }: FieldsProps) {
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
