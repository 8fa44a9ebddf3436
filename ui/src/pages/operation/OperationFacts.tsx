// SPDX-License-Identifier: Apache-2.0
import { timestampMs } from '@bufbuild/protobuf/wkt';
import { useTranslation } from 'react-i18next';
import { useSettings } from '../../app/settings';
import type { Operation } from '../../gen/ichor/v1alpha1/operation_pb';
import { cli } from '../../lib/cli';
import { formatDuration } from '../../lib/format';
import { targetParts } from '../../lib/operations';
import { Command } from '../../parts/Command';
import { namedGate, rotatedWords } from '../../parts/code';
import { Fact, Facts } from '../../parts/Facts';
import { Section } from '../../parts/Section';
import { When } from '../../parts/When';

/** OperationFacts are who started it when, what it shall do, and how. */
export function OperationFacts({ operation }: { operation: Operation }) {
  const { t } = useTranslation();
  const { language } = useSettings();
  const { startTime, completionTime, ref } = operation;
  const took =
    startTime && completionTime ? formatDuration(timestampMs(completionTime) - timestampMs(startTime), language) : '';
  return (
    <Section title={t('operation.facts')}>
      <Facts>
        {targetParts(operation.target).map((part) => (
          <Fact key={part.name} name={`${t('operation.target')}: ${part.name}`}>
            {part.value}
          </Fact>
        ))}
        <Parameters operation={operation} />
        <Fact name={t('operation.createdBy')}>{operation.createdBy}</Fact>
        <Fact name={t('operation.created')}>
          <When time={operation.createTime} show="absolute" />
        </Fact>
        <Fact name={t('operation.started')}>{startTime && <When time={startTime} show="absolute" />}</Fact>
        <Fact name={t('operation.completed')}>{completionTime && <When time={completionTime} show="absolute" />}</Fact>
        <Fact name={t('operations.took')}>{took}</Fact>
        <Fact name={t('operation.lastRetry')}>
          {operation.lastRetryTime && <When time={operation.lastRetryTime} show="absolute" />}
        </Fact>
        <Fact name={t('operation.lock')}>{t(operation.lockHeld ? 'operation.lockHeld' : 'operation.lockNotHeld')}</Fact>
        <Fact name={t('operation.maxUnavailable')}>{operation.maxUnavailable}</Fact>
        <Fact name={t('operation.heldMachines')}>{operation.held.join(', ')}</Fact>
        <Fact name={t('operation.overrides')}>
          {operation.overrides.length > 0 && (
            <ul>
              {operation.overrides.map(({ gate, reason }) => (
                <li key={gate}>{t('operation.override', { gate: namedGate(t, gate), reason })}</li>
              ))}
            </ul>
          )}
        </Fact>
      </Facts>
      {ref && <Command line={cli.watch(ref)} label={t('app.command')} />}
    </Section>
  );
}

/** Parameters are what an operation is about, where its title does not say it. */
function Parameters({ operation }: { operation: Operation }) {
  const { t } = useTranslation();
  const parameters = operation.parameters?.parameters;
  switch (parameters?.case) {
    case 'caRotation':
      return <Fact name={t('start.authorities')}>{rotatedWords(t, 'authority', parameters.value.authorities)}</Fact>;
    case 'keyRotation':
      return <Fact name={t('start.keys')}>{rotatedWords(t, 'key', parameters.value.keys)}</Fact>;
    case 'etcdRestore':
      return (
        <>
          <Fact name={t('snapshots.snapshot')}>{parameters.value.snapshotName}</Fact>
          <Fact name={t('start.safety')}>
            {t(parameters.value.safetySnapshot === 'Take' ? 'start.snapshotTake' : 'start.snapshotNone')}
          </Fact>
        </>
      );
    default:
      return null;
  }
}
