// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import type { Operation } from '../../gen/ichor/v1alpha1/operation_pb';
import { stagesOf } from '../../lib/operations';
import { operationMark } from '../../lib/state';
import { stageWords } from '../../parts/code';
import { Shape } from '../../parts/Mark';
import css from './StageRail.module.css';

/** StageRail are the stages of an operation: those that are over, the one under way, and those that are to come. */
export function StageRail({ operation }: { operation: Operation }) {
  const { t } = useTranslation();
  const stages = stagesOf(operation);
  if (stages.length === 0) {
    return null;
  }
  const mark = operationMark(operation.phase, operation.attention);
  return (
    <ol className={css.rail} aria-label={t('operation.stages')}>
      {stages.map(({ name, state }) => (
        <li key={name} className={`${css.stage} ${css[state]}`} aria-current={state === 'current' ? 'step' : undefined}>
          {state === 'done' && <Shape mark="ok" />}
          {state === 'current' && <Shape mark={mark} />}
          <span>
            {stageWords(t, name)}
            {state !== 'current' && <span className="visually-hidden"> {t(`operation.stage.${state}`)}</span>}
          </span>
        </li>
      ))}
    </ol>
  );
}
