// SPDX-License-Identifier: Apache-2.0
import { useMutation } from '@connectrpc/connect-query';
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import { useRights } from '../../app/hub';
import type { Operation } from '../../gen/ichor/v1alpha1/operation_pb';
import { OperationService } from '../../gen/ichor/v1alpha1/operation_pb';
import { cli } from '../../lib/cli';
import type { Steering } from '../../lib/operations';
import { awaitedOf, isOver } from '../../lib/operations';
import { Button } from '../../parts/Button';
import { Command } from '../../parts/Command';
import { Buttons, Dialog } from '../../parts/Dialog';
import { CallFailure } from '../../parts/Failure';
import { Field, Input } from '../../parts/Field';
import css from './Operation.module.css';

interface Props {
  operation: Operation;
  steering: Steering;
  onClose: () => void;
}

/** SteerDialog says what a pause, a retry, a confirmation, a way back or a deletion does, and does it. */
export function SteerDialog({ operation, steering, onClose }: Props) {
  return steering === 'remove' ? (
    <RemoveDialog operation={operation} onClose={onClose} />
  ) : (
    <GoOnDialog operation={operation} steering={steering} onClose={onClose} />
  );
}

function GoOnDialog({ operation, steering, onClose }: Props & { steering: Exclude<Steering, 'remove'> }) {
  const { t } = useTranslation();
  const pause = useMutation(OperationService.method.setOperationPaused, { onSuccess: onClose });
  const retry = useMutation(OperationService.method.retryOperation, { onSuccess: onClose });
  const confirm = useMutation(OperationService.method.confirmOperation, { onSuccess: onClose });
  const back = useMutation(OperationService.method.turnBackOperation, { onSuccess: onClose });
  // What it waits for may change while somebody reads: they confirm what they have read.
  const [stage] = useState(operation.awaits);
  const [awaited] = useState(awaitedOf(operation) ?? 'other');
  const { namespace = '', name = '' } = operation.ref ?? {};
  const ref = { namespace, name };
  const does = {
    pause: () => pause.mutate({ ref, paused: true }),
    resume: () => pause.mutate({ ref, paused: false }),
    retry: () => retry.mutate({ ref }),
    confirm: () => confirm.mutate({ ref, stage }),
    turnBack: () => back.mutate({ ref }),
  };
  const words = {
    pause: t('operation.pauseText'),
    resume: t('operation.resumeText'),
    retry: t('operation.retryText'),
    confirm: t(`operation.awaits.${awaited}.confirm`),
    turnBack: t('operation.turnBackText'),
  };
  const lines = {
    pause: cli.pause(ref),
    resume: cli.resume(ref),
    retry: cli.resume(ref),
    confirm: cli.confirm(ref, stage),
    turnBack: cli.turnBack(ref),
  };
  const titles = {
    pause: t('operation.pauseTitle', { name }),
    resume: t('operation.resumeTitle', { name }),
    retry: t('operation.retryTitle', { name }),
    confirm: t('operation.confirmTitle', { name }),
    turnBack: t('operation.turnBackTitle', { name }),
  };
  const error = [pause, retry, confirm, back].find((call) => call.error)?.error;
  return (
    <Dialog open onClose={onClose} title={titles[steering]}>
      <p>{words[steering]}</p>
      {steering === 'turnBack' && <p>{t('operation.turnBackUntil')}</p>}
      <Command line={lines[steering]} />
      {error && <CallFailure error={error} />}
      <Buttons>
        <Button onClick={onClose}>{t('app.cancel')}</Button>
        <Button look="primary" onClick={does[steering]}>
          {t(`operation.${steering}`)}
        </Button>
      </Buttons>
    </Dialog>
  );
}

function RemoveDialog({ operation, onClose }: Omit<Props, 'steering'>) {
  const { t } = useTranslation();
  const { namespace = '', name = '' } = operation.ref ?? {};
  const rights = useRights(namespace);
  const [force, setForce] = useState(false);
  const [reason, setReason] = useState('');
  const remove = useMutation(OperationService.method.deleteOperation, { onSuccess: onClose });
  const over = isOver(operation);
  return (
    <Dialog open onClose={onClose} title={t('operation.removeTitle', { name })}>
      <form
        className={css.form}
        onSubmit={(event) => {
          event.preventDefault();
          remove.mutate({ ref: { namespace, name }, force, reason });
        }}
      >
        <p>{t(over ? 'operation.removeOver' : 'operation.removeText')}</p>
        {!over && rights.override && (
          <>
            <label className={css.check}>
              <input type="checkbox" checked={force} onChange={(event) => setForce(event.target.checked)} />
              {t('operation.force')}
            </label>
            <p className={css.why}>{t('operation.forceHelp')}</p>
          </>
        )}
        {!over && !rights.override && <p className={css.why}>{t('operation.forceDenied', { namespace })}</p>}
        {force && (
          <Field label={t('operation.forceReason')}>
            {(ids) => (
              <Input
                {...ids}
                required
                maxLength={256}
                value={reason}
                onChange={(event) => setReason(event.target.value)}
              />
            )}
          </Field>
        )}
        <Command line={cli.remove({ namespace, name })} />
        {remove.error && <CallFailure error={remove.error} />}
        <Buttons>
          <Button onClick={onClose}>{t('app.cancel')}</Button>
          <Button type="submit" look="danger">
            {t('operation.remove')}
          </Button>
        </Buttons>
      </form>
    </Dialog>
  );
}
