// SPDX-License-Identifier: Apache-2.0
import { useId, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { useRights } from '../../app/hub';
import type { Operation } from '../../gen/ichor/v1alpha1/operation_pb';
import type { Awaited } from '../../lib/operations';
import { awaitedOf, steerObstacle } from '../../lib/operations';
import type { Mark } from '../../lib/state';
import { Button } from '../../parts/Button';
import { stageWords } from '../../parts/code';
import { Notice } from '../../parts/Notice';
import { obstacleWords } from '../../parts/obstacle';
import css from './Operation.module.css';
import { SteerDialog } from './SteerDialog';

/** Tokens are refreshed by themselves in time; the others wait for as long as it takes. */
const marks: Record<Awaited, Mark> = { talos: 'person', kubernetes: 'person', tokens: 'waiting', other: 'person' };

/** Awaits says what people have to do before the operation goes on, and lets them say that it is done. */
export function Awaits({ operation, awaited }: { operation: Operation; awaited: Awaited }) {
  const { t } = useTranslation();
  const rights = useRights(operation.ref?.namespace ?? '');
  const [open, show] = useState(false);
  const id = useId();
  const why = obstacleWords(t, steerObstacle(operation, 'confirm', rights));
  const { answer } = operation;
  const cluster = operation.cluster?.name ?? '';
  return (
    <Notice
      mark={marks[awaited]}
      title={t(`operation.awaits.${awaited}.title`, { stage: stageWords(t, operation.awaits) })}
    >
      <p>{t(`operation.awaits.${awaited}.text`, { cluster })}</p>
      {(answer?.why || answer?.doing) && <p lang="en">{answer.why || answer.doing}</p>}
      <div className={css.buttons}>
        <Button look="primary" obstacle={why} describedBy={why && id} onClick={() => show(true)}>
          {t('operation.confirm')}
        </Button>
      </div>
      {why && (
        <p id={id} className={css.why}>
          {why}
        </p>
      )}
      {open && awaitedOf(operation) && (
        <SteerDialog operation={operation} steering="confirm" onClose={() => show(false)} />
      )}
    </Notice>
  );
}
