// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import { Choice } from '../parts/Choice';
import type { FieldsProps } from './fields';

/** ShutdownFields are those of the shutdown and the start of a cluster. Whether a snapshot is kept has to be said. */
export function ShutdownFields({ draft, change, problem }: FieldsProps) {
  const { t } = useTranslation();
  if (draft.action === 'Start') {
    return <p>{t('start.startHelp')}</p>;
  }
  return (
    <>
      <p>{t('start.stopHelp')}</p>
      <Choice
        label={t('start.snapshot')}
        value={draft.snapshot}
        options={[
          { value: 'Take', label: t('start.snapshotTake'), help: t('start.snapshotTakeHelp') },
          { value: 'None', label: t('start.snapshotNone'), help: t('start.snapshotNoneHelp') },
        ]}
        problem={problem('snapshot')}
        onChange={(snapshot) => change({ snapshot })}
      />
    </>
  );
}
