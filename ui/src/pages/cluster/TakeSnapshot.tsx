// SPDX-License-Identifier: Apache-2.0
import { useMutation } from '@connectrpc/connect-query';
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import type { Cluster } from '../../gen/ichor/v1alpha1/cluster_pb';
import { SnapshotService } from '../../gen/ichor/v1alpha1/snapshot_pb';
import { cli } from '../../lib/cli';
import { Button } from '../../parts/Button';
import { Command } from '../../parts/Command';
import { Buttons, Dialog } from '../../parts/Dialog';
import { CallFailure } from '../../parts/Failure';
import { Field, Input } from '../../parts/Field';
import css from './Cluster.module.css';

interface Props {
  cluster: Cluster;
  onTaken: () => void;
  onClose: () => void;
}

/** TakeSnapshot asks for a snapshot of the etcd of a cluster. */
export function TakeSnapshot({ cluster, onTaken, onClose }: Props) {
  const { t } = useTranslation();
  const [wanted, want] = useState('');
  const { namespace = '', name = '' } = cluster.ref ?? {};
  const ref = { namespace, name };
  const take = useMutation(SnapshotService.method.createSnapshot, {
    onSuccess: () => {
      onTaken();
      onClose();
    },
  });
  return (
    <Dialog open onClose={onClose} title={t('snapshots.takeTitle', { name })}>
      <form
        className={css.form}
        onSubmit={(event) => {
          event.preventDefault();
          take.mutate({ cluster: ref, name: wanted });
        }}
      >
        <p>{t('snapshots.takeText')}</p>
        <Field label={`${t('snapshots.name')} (${t('start.optional')})`} help={t('snapshots.nameHelp')}>
          {(ids) => (
            <Input {...ids} maxLength={253} value={wanted} onChange={(event) => want(event.target.value.trim())} />
          )}
        </Field>
        <Command line={cli.takeSnapshot(ref, wanted)} />
        {take.error && <CallFailure error={take.error} />}
        <Buttons>
          <Button onClick={onClose}>{t('app.cancel')}</Button>
          <Button type="submit" look="primary">
            {t('snapshots.take')}
          </Button>
        </Buttons>
      </form>
    </Dialog>
  );
}
