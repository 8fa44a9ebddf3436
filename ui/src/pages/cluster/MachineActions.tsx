// SPDX-License-Identifier: Apache-2.0
import { useMutation } from '@connectrpc/connect-query';
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import { useRights, useSession } from '../../app/hub';
import type { Cluster, Machine } from '../../gen/ichor/v1alpha1/cluster_pb';
import { ClusterService } from '../../gen/ichor/v1alpha1/cluster_pb';
import { OperationKind } from '../../gen/ichor/v1alpha1/operation_pb';
import { cli } from '../../lib/cli';
import type { Obstacle, Start } from '../../lib/orders';
import { draftFor, nodeActions, startObstacle } from '../../lib/orders';
import { Button } from '../../parts/Button';
import { Command } from '../../parts/Command';
import { Buttons, Dialog } from '../../parts/Dialog';
import { CallFailure } from '../../parts/Failure';
import { Field, Input } from '../../parts/Field';
import { obstacleWords } from '../../parts/obstacle';
import { StartDialog } from '../../start/StartDialog';
import css from './Cluster.module.css';

interface Props {
  cluster: Cluster;
  machine: Machine;
}

/** MachineActions are what can be done to a machine. */
export function MachineActions({ cluster, machine }: Props) {
  const { t } = useTranslation();
  const { hub } = useSession();
  const namespace = cluster.ref?.namespace ?? '';
  const rights = useRights(namespace);
  const [open, show] = useState<'hold' | 'approve' | Start>();
  const name = machine.node || machine.ref?.name || '';
  const machines: Obstacle | undefined = rights.machines ? undefined : { why: 'machines', namespace };
  const actions = nodeActions(machine.role).map((action) => ({ kind: OperationKind.NODE, action }));
  const obstacles = actions.map((each) =>
    machine.approved ? startObstacle(cluster, each, rights, hub.kinds) : ({ why: 'approval' } as const),
  );
  // The first that can be started, or the first of all, with its reason.
  const others = Math.max(1, obstacles.indexOf(undefined, 1));
  const close = () => show(undefined);
  return (
    <div className={css.actions} role="group" aria-label={t('cluster.actions', { name })}>
      {!machine.approved && (
        <Button obstacle={obstacleWords(t, machines)} onClick={() => show('approve')}>
          {t('cluster.approve')}
        </Button>
      )}
      <Button obstacle={obstacleWords(t, machines)} onClick={() => show('hold')}>
        {t(machine.held ? 'cluster.unhold' : 'cluster.hold')}
      </Button>
      {hub.kinds.includes(OperationKind.NODE) && (
        <>
          <Button obstacle={obstacleWords(t, obstacles[0])} onClick={() => show(actions[0])}>
            {t('cluster.reboot')}
          </Button>
          <Button obstacle={obstacleWords(t, obstacles[others])} onClick={() => show(actions[others])}>
            {t('cluster.otherActions')}
          </Button>
        </>
      )}
      {open === 'hold' && <HoldDialog cluster={cluster} machine={machine} onClose={close} />}
      {open === 'approve' && <ApproveDialog cluster={cluster} machine={machine} onClose={close} />}
      {typeof open === 'object' && (
        <StartDialog
          cluster={cluster}
          role={machine.role}
          draft={draftFor(open, cluster, machine.ref?.name)}
          onClose={close}
        />
      )}
    </div>
  );
}

type DialogProps = Props & { onClose: () => void };

function HoldDialog({ cluster, machine, onClose }: DialogProps) {
  const { t } = useTranslation();
  const [note, setNote] = useState('');
  const hold = useMutation(ClusterService.method.holdMachine, { onSuccess: onClose });
  const name = machine.node || machine.ref?.name || '';
  const { namespace = '', name: clusterName = '' } = cluster.ref ?? {};
  const held = !machine.held;
  const line = held ? cli.hold : cli.unhold;
  return (
    <Dialog open onClose={onClose} title={held ? t('cluster.holdTitle', { name }) : `${t('cluster.unhold')}: ${name}`}>
      <form
        className={css.form}
        onSubmit={(event) => {
          event.preventDefault();
          hold.mutate({ ref: machine.ref, held, note });
        }}
      >
        <p>{t('cluster.holdText')}</p>
        {held && (
          <Field label={t('cluster.note')}>
            {(ids) => <Input {...ids} value={note} maxLength={256} onChange={(e) => setNote(e.target.value)} />}
          </Field>
        )}
        <Command line={line({ namespace, name: clusterName }, name)} />
        {hold.error && <CallFailure error={hold.error} />}
        <Buttons>
          <Button onClick={onClose}>{t('app.cancel')}</Button>
          <Button type="submit" look="primary">
            {t(held ? 'cluster.hold' : 'cluster.unhold')}
          </Button>
        </Buttons>
      </form>
    </Dialog>
  );
}

function ApproveDialog({ cluster, machine, onClose }: DialogProps) {
  const { t } = useTranslation();
  const approve = useMutation(ClusterService.method.approveMachine, { onSuccess: onClose });
  const name = machine.node || machine.ref?.name || '';
  const { namespace = '', name: clusterName = '' } = cluster.ref ?? {};
  return (
    <Dialog open onClose={onClose} title={`${t('cluster.approve')}: ${name}`}>
      <p>{t('cluster.approveText')}</p>
      <p>
        UUID <code>{machine.uuid}</code> · <code>{machine.address}</code>
      </p>
      <Command line={cli.approve({ namespace, name: clusterName }, name)} />
      {approve.error && <CallFailure error={approve.error} />}
      <Buttons>
        <Button onClick={onClose}>{t('app.cancel')}</Button>
        <Button look="primary" onClick={() => approve.mutate({ ref: machine.ref })}>
          {t('cluster.approve')}
        </Button>
      </Buttons>
    </Dialog>
  );
}
