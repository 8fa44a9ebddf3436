// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import { useSettings } from '../app/settings';
import { formatBytes, formatNumber } from '../lib/format';
import { Choice } from '../parts/Choice';
import { Fact, Facts } from '../parts/Facts';
import { When } from '../parts/When';
import type { FieldsProps } from './fields';

/** RestoreFields are those of a restore: the snapshot that was chosen, and what is kept of what runs. That has to be said. */
export function RestoreFields({ snapshot, draft, change, problem }: FieldsProps) {
  const { t } = useTranslation();
  const { language } = useSettings();
  const contents = snapshot?.contents;
  // A database has whole sectors; behind it, a snapshot that etcd has sent has its hash.
  const rawCopy = contents && contents.sizeBytes % 512n === 0n;
  return (
    <>
      <p>{t('start.restoreHelp')}</p>
      <Facts>
        <Fact name={t('snapshots.snapshot')}>{draft.restored}</Fact>
        {contents && (
          <>
            <Fact name={t('snapshots.taken')}>
              <When time={contents.takenTime} show="absolute" />
              <div>
                <When time={contents.takenTime} />
              </div>
            </Fact>
            <Fact name={t('snapshots.revision')}>{formatNumber(Number(contents.revision), language)}</Fact>
            <Fact name={t('snapshots.size')}>{formatBytes(Number(contents.sizeBytes), language)}</Fact>
            <Fact name="Kubernetes">{contents.kubernetesVersion}</Fact>
            <Fact name="etcd">{contents.etcdVersion}</Fact>
          </>
        )}
      </Facts>
      <Choice
        label={t('start.safety')}
        value={draft.safetySnapshot}
        options={[
          { value: 'Take', label: t('start.snapshotTake'), help: t('start.safetyTakeHelp') },
          { value: 'None', label: t('start.snapshotNone'), help: t('start.safetyNoneHelp') },
        ]}
        problem={problem('safetySnapshot')}
        onChange={(safetySnapshot) => change({ safetySnapshot })}
      />
      {rawCopy && (
        <Choice
          label={t('start.integrity')}
          value={draft.integrity}
          options={[
            { value: '', label: t('start.integrityHash'), help: t('start.integrityHashHelp') },
            { value: 'RawCopy', label: t('start.integrityRaw'), help: t('start.integrityRawHelp') },
          ]}
          onChange={(integrity) => change({ integrity })}
        />
      )}
    </>
  );
}
