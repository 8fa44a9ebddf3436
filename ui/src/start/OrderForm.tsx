// SPDX-License-Identifier: Apache-2.0
import { useId, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { useRights, useSession } from '../app/hub';
import type { Cluster } from '../gen/ichor/v1alpha1/cluster_pb';
import { OperationKind } from '../gen/ichor/v1alpha1/operation_pb';
import type { Snapshot } from '../gen/ichor/v1alpha1/snapshot_pb';
import type { MachineRole } from '../gen/ichor/v1alpha1/types_pb';
import type { Draft } from '../lib/orders';
import { problemsOf, startObstacle } from '../lib/orders';
import { Button } from '../parts/Button';
import { Buttons } from '../parts/Dialog';
import { CallFailure } from '../parts/Failure';
import { obstacleWords } from '../parts/obstacle';
import { Quiet } from '../parts/Section';
import { ConfigFields } from './ConfigFields';
import type { FieldsProps } from './fields';
import { NodeFields } from './NodeFields';
import { RestoreFields } from './RestoreFields';
import { CARotationFields, KeyRotationFields } from './RotationFields';
import { ShutdownFields } from './ShutdownFields';
import css from './Start.module.css';
import { BudgetField, KubernetesFields, TalosFields } from './VersionFields';

interface Props {
  cluster: Cluster;
  role: MachineRole | undefined;
  snapshot: Snapshot | undefined;
  draft: Draft;
  asking: boolean;
  error: Error | null;
  onDraft: (draft: Draft) => void;
  onReview: () => void;
  onClose: () => void;
}

/** forms are the fields of each kind. */
const forms: Partial<Record<OperationKind, React.ComponentType<FieldsProps>>> = {
  [OperationKind.TALOS]: TalosFields,
  [OperationKind.KUBERNETES]: KubernetesFields,
  [OperationKind.CONFIG]: ConfigFields,
  [OperationKind.NODE]: NodeFields,
  [OperationKind.SHUTDOWN]: ShutdownFields,
  [OperationKind.CA_ROTATION]: CARotationFields,
  [OperationKind.KEY_ROTATION]: KeyRotationFields,
  [OperationKind.ETCD_RESTORE]: RestoreFields,
};

/** rolling are the kinds that take workers away one after the other. */
const rolling = [OperationKind.TALOS, OperationKind.KUBERNETES, OperationKind.CONFIG, OperationKind.CA_ROTATION];

/** OrderForm is what shall be done. It complains when somebody wants to go on, not while they type. */
export function OrderForm({ cluster, role, snapshot, draft, asking, error, onDraft, onReview, onClose }: Props) {
  const { t } = useTranslation();
  const { hub } = useSession();
  const rights = useRights(cluster.ref?.namespace ?? '');
  const [complained, complain] = useState(false);
  const id = useId();
  const problems = problemsOf(draft);
  const problem = (field: keyof Draft) => {
    const found = problems[field];
    return complained && found ? t(`start.problem.${found}`) : undefined;
  };
  // Another action needs another right.
  const obstacle = obstacleWords(t, startObstacle(cluster, draft, rights, hub.kinds));
  const submit = (event: React.FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (obstacle !== undefined) {
      return;
    }
    complain(true);
    if (Object.keys(problems).length === 0) {
      onReview();
      return;
    }
    const form = event.currentTarget;
    requestAnimationFrame(() => form.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus());
  };
  const change = (part: Partial<Draft>) => onDraft({ ...draft, ...part });
  const fields = { cluster, role, snapshot, draft, problem, change };
  const Form = forms[draft.kind];
  return (
    <form className={css.form} onSubmit={submit} noValidate>
      {Form && <Form {...fields} />}
      {rolling.includes(draft.kind) && <BudgetField {...fields} />}
      {error && <CallFailure error={error} />}
      <Buttons>
        <Quiet>
          <span id={id}>{obstacle ?? t('start.reviewHint')}</span>
        </Quiet>
        <Button onClick={onClose}>{t('app.cancel')}</Button>
        <Button type="submit" look="primary" obstacle={obstacle} describedBy={id}>
          {t(asking ? 'start.reviewing' : 'start.review')}
        </Button>
      </Buttons>
    </form>
  );
}
