// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import type { Cluster } from '../../gen/ichor/v1alpha1/cluster_pb';
import { OperationPhase } from '../../gen/ichor/v1alpha1/operation_pb';
import { Section } from '../../parts/Section';
import { DoneOperations } from '../operations/DoneOperations';

/** History is what was done to a cluster. It is asked for again when an operation is not among those that are not over any more. */
export function History({ cluster }: { cluster: Cluster }) {
  const { t } = useTranslation();
  const { namespace = '', name = '' } = cluster.ref ?? {};
  return (
    <Section title={t('cluster.history')} bare>
      <DoneOperations
        filter={{ clusters: [{ namespace, name }], phases: [OperationPhase.COMPLETED] }}
        age={cluster.operations.map((o) => o.ref?.name).join()}
        empty={t('cluster.noHistory')}
        withCluster={false}
      />
    </Section>
  );
}
