// SPDX-License-Identifier: Apache-2.0
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import { useRights } from '../app/hub';
import type { Plan, Refusal } from '../gen/ichor/v1alpha1/operation_pb';
import type { Draft } from '../lib/orders';
import { Button } from '../parts/Button';
import { gateWords, namedGate } from '../parts/code';
import { Field, Input } from '../parts/Field';
import { Notice } from '../parts/Notice';
import css from './Start.module.css';

interface Props {
  plan: Plan;
  draft: Draft;
  namespace: string;
  asking: boolean;
  onDraft: (draft: Draft) => void;
}

/** Refusals are what stands against a start. Those that allow it can be overridden, with a reason; the plan is asked for again then. */
export function Refusals({ plan, draft, namespace, asking, onDraft }: Props) {
  const { t } = useTranslation();
  const override = (gate: string, reason: string) =>
    onDraft({ ...draft, overrides: { ...draft.overrides, [gate]: reason } });
  const takeBack = (gate: string) => {
    const { [gate]: _, ...overrides } = draft.overrides;
    onDraft({ ...draft, overrides });
  };
  return (
    <>
      {plan.refusals.map((refusal) => (
        <Notice
          key={refusal.gate + refusal.message}
          mark="failed"
          title={`${t('start.refusals')}: ${namedGate(t, refusal.gate)}`}
        >
          <Words refusal={refusal} />
          <Override
            refusal={refusal}
            namespace={namespace}
            asking={asking}
            onOverride={(reason) => override(refusal.gate, reason)}
          />
        </Notice>
      ))}
      {plan.overridden.map((refusal) => (
        <Notice
          key={refusal.gate + refusal.message}
          mark="soon"
          title={`${t('start.overridden')}: ${namedGate(t, refusal.gate)}`}
        >
          <Words refusal={refusal} />
          <p>{draft.overrides[refusal.gate]}</p>
          <div>
            <Button onClick={() => takeBack(refusal.gate)}>{t('start.overrideRemove')}</Button>
          </div>
        </Notice>
      ))}
    </>
  );
}

function Words({ refusal }: { refusal: Refusal }) {
  const { t } = useTranslation();
  return (
    <>
      <p lang="en">{refusal.message}</p>
      {refusal.help && (
        <p>
          {t('start.help')} <span lang="en">{refusal.help}</span>
        </p>
      )}
    </>
  );
}

interface OverrideProps {
  refusal: Refusal;
  namespace: string;
  asking: boolean;
  onOverride: (reason: string) => void;
}

function Override({ refusal, namespace, asking, onOverride }: OverrideProps) {
  const { t } = useTranslation();
  const rights = useRights(namespace);
  const [open, setOpen] = useState(false);
  const [reason, setReason] = useState('');
  if (!refusal.overridable) {
    return <p className={css.quiet}>{t('start.notOverridable')}</p>;
  }
  if (!rights.override) {
    return <p className={css.quiet}>{t('start.overrideDenied', { namespace })}</p>;
  }
  if (!open) {
    return (
      <div>
        <Button onClick={() => setOpen(true)}>{t('start.override')}</Button>
      </div>
    );
  }
  const empty = reason.trim() === '';
  return (
    <div className={css.override}>
      <Field label={t('start.overrideReason', { gate: gateWords(t, refusal.gate) })}>
        {(ids) => (
          <Input
            {...ids}
            autoFocus
            maxLength={256}
            value={reason}
            onChange={(event) => setReason(event.target.value)}
          />
        )}
      </Field>
      <Button
        obstacle={empty ? t('start.overrideReason', { gate: gateWords(t, refusal.gate) }) : undefined}
        onClick={() => onOverride(reason.trim())}
      >
        {t(asking ? 'start.reviewing' : 'start.overrideApply')}
      </Button>
    </div>
  );
}
