// SPDX-License-Identifier: Apache-2.0
import { useId, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { useRights } from '../../app/hub';
import type { Operation } from '../../gen/ichor/v1alpha1/operation_pb';
import type { Steering as SteeringName } from '../../lib/operations';
import { steerings, steerObstacle } from '../../lib/operations';
import { Button } from '../../parts/Button';
import { obstacleWords } from '../../parts/obstacle';
import css from './Operation.module.css';
import { SteerDialog } from './SteerDialog';

/** Steering is what can be done to an operation, and why not. */
export function Steering({ operation }: { operation: Operation }) {
  const { t } = useTranslation();
  const rights = useRights(operation.ref?.namespace ?? '');
  const [open, show] = useState<SteeringName>();
  const id = useId();
  const names = steerings(operation);
  const why = names.map((name) => obstacleWords(t, steerObstacle(operation, name, rights)));
  const looks = {
    pause: 'plain',
    resume: 'primary',
    retry: 'primary',
    turnBack: 'plain',
    confirm: 'primary',
    remove: 'danger',
  } as const;
  return (
    <div className={css.steering}>
      <div className={css.buttons}>
        {names.map((name, index) => (
          <Button
            key={name}
            look={looks[name]}
            obstacle={why[index]}
            describedBy={why[index] && `${id}${name}`}
            onClick={() => show(name)}
          >
            {t(`operation.${name}`)}
          </Button>
        ))}
      </div>
      {names.map(
        (name, index) =>
          why[index] && (
            <p key={name} id={`${id}${name}`} className={css.why} hidden={why.indexOf(why[index]) !== index}>
              {why[index]}
            </p>
          ),
      )}
      {open && <SteerDialog operation={operation} steering={open} onClose={() => show(undefined)} />}
    </div>
  );
}
