// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import { Link } from 'wouter';
import type { Cluster, Machine } from '../../gen/ichor/v1alpha1/cluster_pb';
import { MachineRole } from '../../gen/ichor/v1alpha1/types_pb';
import { operationPath, refKey } from '../../lib/refs';
import { attentionMark } from '../../lib/state';
import { stepWords } from '../../parts/code';
import { Mark } from '../../parts/Mark';
import { Quiet, Section } from '../../parts/Section';
import { Table } from '../../parts/Table';
import css from './Cluster.module.css';
import { MachineActions } from './MachineActions';

/** Machines are the machines of a cluster, and what can be done to each. */
export function Machines({ cluster, machines }: { cluster: Cluster; machines: readonly Machine[] }) {
  const { t } = useTranslation();
  const desired = cluster.desired;
  return (
    <Section title={t('cluster.machines')} bare={machines.length > 0}>
      {machines.length === 0 ? (
        <Quiet>{t('cluster.noMachines')}</Quiet>
      ) : (
        <Table
          label={t('cluster.machines')}
          rows={machines}
          keyOf={(machine) => refKey(machine.ref)}
          columns={[
            { title: t('cluster.node'), cell: (machine) => <Name machine={machine} /> },
            { title: t('cluster.state'), cell: (machine) => <State machine={machine} /> },
            {
              title: 'Talos',
              cell: (machine) => <Version runs={machine.talosVersion} wanted={desired?.talosVersion ?? ''} />,
            },
            {
              title: 'Kubernetes',
              cell: (machine) => <Version runs={machine.kubernetesVersion} wanted={desired?.kubernetesVersion ?? ''} />,
            },
            { title: t('cluster.address'), cell: (machine) => <code>{machine.address}</code> },
            { title: t('cluster.doing'), cell: (machine) => <Doing machine={machine} /> },
            {
              title: t('cluster.start'),
              hidden: true,
              cell: (machine) => <MachineActions cluster={cluster} machine={machine} />,
            },
          ]}
        />
      )}
    </Section>
  );
}

function Name({ machine }: { machine: Machine }) {
  const { t } = useTranslation();
  return (
    <div className={css.machine}>
      <strong>{machine.node || machine.ref?.name}</strong>
      <span className={css.quiet}>
        {t(machine.role === MachineRole.CONTROL_PLANE ? 'cluster.controlPlane' : 'cluster.worker')}
      </span>
    </div>
  );
}

function State({ machine }: { machine: Machine }) {
  const { t } = useTranslation();
  const message = machine.conditions.find((condition) => condition.type === 'Ready')?.message;
  return (
    <div className={css.machine}>
      <Mark
        mark={machine.operation ? attentionMark(machine.attention, true) : attentionMark(machine.attention, false)}
      />
      {!machine.approved && <span>{t('cluster.notApproved')}</span>}
      {machine.held && (
        <span>
          {t('cluster.held')} {machine.holdNote && <span className={css.quiet}>({machine.holdNote})</span>}
        </span>
      )}
      {!machine.ready && message && (
        <span className={css.quiet} lang="en">
          {message}
        </span>
      )}
    </div>
  );
}

function Version({ runs, wanted }: { runs: string; wanted: string }) {
  const { t } = useTranslation();
  return (
    <div className={css.machine}>
      <span>{runs || t('app.unknown')}</span>
      {wanted !== '' && runs !== '' && wanted !== runs && (
        <span className={css.wanted}>{t('fleet.wanted', { version: wanted })}</span>
      )}
    </div>
  );
}

function Doing({ machine }: { machine: Machine }) {
  const { t } = useTranslation();
  return machine.operation ? (
    <div className={css.machine}>
      <span>{stepWords(t, machine.step)}</span>
      <Link href={operationPath(machine.operation)}>{machine.operation.name}</Link>
    </div>
  ) : null;
}
