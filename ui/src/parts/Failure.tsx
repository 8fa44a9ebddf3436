// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import { failedCall } from '../api/problems';
import type { Failure } from '../gen/ichor/v1alpha1/types_pb';
import { namedGate } from './code';
import { Notice } from './Notice';

/** CallFailure is what came of a call that failed, with everything that the hub said about it. */
export function CallFailure({ error, title }: { error: unknown; title?: string }) {
  const { t } = useTranslation();
  const failed = failedCall(error);
  const { partlyDone } = failed;
  return (
    <Notice mark="failed" role="alert" title={title ?? t(`problem.${failed.kind}`)}>
      {title && <p>{t(`problem.${failed.kind}`)}</p>}
      {failed.refusals.length === 0 && <p lang="en">{failed.message}</p>}
      {failed.refusals.map((refusal) => (
        <p key={refusal.gate + refusal.message}>
          <strong>{namedGate(t, refusal.gate)}</strong>{' '}
          <span lang="en">
            {refusal.message} {refusal.help && <>({refusal.help})</>}
          </span>
        </p>
      ))}
      {partlyDone && (
        <ul lang="en">
          <li>{t('start.done', { text: partlyDone.done })}</li>
          <li>{t('start.missing', { text: partlyDone.missing })}</li>
          <li>{t('start.finish', { text: partlyDone.finish })}</li>
        </ul>
      )}
    </Notice>
  );
}

/** MissingParts says what an answer does not hold, and why. */
export function MissingParts({ failures }: { failures: readonly Failure[] }) {
  const { t } = useTranslation();
  if (failures.length === 0) {
    return null;
  }
  return (
    <Notice mark="soon" title={t('app.missing')}>
      <ul lang="en">
        {failures.map((failure) => (
          <li key={`${failure.scope?.namespace}/${failure.scope?.name}/${failure.code}`}>
            {[failure.scope?.namespace, failure.scope?.name].filter(Boolean).join('/')}: {failure.message}
          </li>
        ))}
      </ul>
    </Notice>
  );
}
