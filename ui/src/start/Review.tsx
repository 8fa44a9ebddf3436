// SPDX-License-Identifier: Apache-2.0
import type { TFunction } from 'i18next';
import { useLayoutEffect, useRef, useState } from 'react';
import { useTranslation } from 'react-i18next';
import type { Plan } from '../gen/ichor/v1alpha1/operation_pb';
import type { Draft } from '../lib/orders';
import { confirmed, machineOf } from '../lib/orders';
import { confirmationName } from '../lib/plans';
import { Button } from '../parts/Button';
import { Command } from '../parts/Command';
import { Buttons } from '../parts/Dialog';
import { CallFailure } from '../parts/Failure';
import { Field, Input } from '../parts/Field';
import { Notice } from '../parts/Notice';
import { PlanView } from './PlanView';
import { Refusals } from './Refusals';
import css from './Start.module.css';

interface Props {
  plan: Plan;
  draft: Draft;
  namespace: string;
  asking: boolean;
  starting: boolean;
  error: Error | null;
  onDraft: (draft: Draft) => void;
  onBack: () => void;
  onStart: () => void;
}

/** Review shows the plan, and starts it. */
export function Review({ plan, draft, namespace, asking, starting, error, onDraft, onBack, onStart }: Props) {
  const { t } = useTranslation();
  const [typed, setTyped] = useState('');
  const form = useRef<HTMLFormElement>(null);
  const name = confirmationName(plan, machineOf(draft));
  const refused = plan.refusals.length > 0;
  const obstacle = startObstacle(t, plan, name, typed);
  // What was pressed is gone: whoever uses a keyboard or a screen reader goes on at the plan. Any later the dialog would have taken the focus.
  // biome-ignore lint/correctness/useExhaustiveDependencies: another plan is another thing to read.
  useLayoutEffect(() => form.current?.focus(), [plan]);
  return (
    <form
      ref={form}
      tabIndex={-1}
      aria-label={t('start.stepReview')}
      className={css.form}
      onSubmit={(event) => {
        event.preventDefault();
        if (obstacle === undefined && !starting) {
          onStart();
        }
      }}
    >
      {plan.atTarget && <Notice mark="ok" title={t('start.nothingToDo')} />}
      <Refusals plan={plan} draft={draft} namespace={namespace} asking={asking} onDraft={onDraft} />
      <PlanView plan={plan} />
      {plan.command && <Command line={plan.command} label={t('start.commandHelp')} />}
      {name !== undefined && !refused && !plan.atTarget && (
        <Field
          label={t('start.confirm', { name })}
          problem={typed !== '' && !confirmed(name, typed) ? t('start.confirmMismatch', { name }) : undefined}
        >
          {(ids) => <Input {...ids} value={typed} onChange={(event) => setTyped(event.target.value)} />}
        </Field>
      )}
      {error && <CallFailure error={error} title={t('start.failedStart')} />}
      <Buttons>
        <Button onClick={onBack}>{t('app.back')}</Button>
        <Button type="submit" look={name === undefined ? 'primary' : 'danger'} obstacle={obstacle}>
          {t(starting ? 'start.beginning' : 'start.begin')}
        </Button>
      </Buttons>
    </form>
  );
}

/** startObstacle is why the reviewed plan cannot be started. */
function startObstacle(t: TFunction, plan: Plan, name: string | undefined, typed: string): string | undefined {
  if (plan.refusals.length > 0) {
    return t('start.refusals');
  }
  if (plan.atTarget) {
    return t('start.nothingToDo');
  }
  return name === undefined || confirmed(name, typed) ? undefined : t('start.confirm', { name });
}
