// SPDX-License-Identifier: Apache-2.0
import { create } from '@bufbuild/protobuf';
import { useMutation } from '@connectrpc/connect-query';
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import { useLocation } from 'wouter';
import type { Cluster } from '../gen/ichor/v1alpha1/cluster_pb';
import type { Plan } from '../gen/ichor/v1alpha1/operation_pb';
import { OperationOrderSchema, OperationService } from '../gen/ichor/v1alpha1/operation_pb';
import type { Snapshot } from '../gen/ichor/v1alpha1/snapshot_pb';
import type { MachineRole } from '../gen/ichor/v1alpha1/types_pb';
import type { Draft } from '../lib/orders';
import { machineOf, orderOf } from '../lib/orders';
import { operationPath } from '../lib/refs';
import { Dialog } from '../parts/Dialog';
import { kindWords } from '../parts/kind';
import { OrderForm } from './OrderForm';
import { Review } from './Review';
import css from './Start.module.css';

interface Props {
  cluster: Cluster;
  /** role is that of the machine that the draft is about: it can be asked for something else then. */
  role?: MachineRole;
  /** snapshot is the one that the draft goes back to. */
  snapshot?: Snapshot;
  draft: Draft;
  onClose: () => void;
}

/** StartDialog starts an operation in two steps: Review shows the hub's plan and writes nothing, Start does it. */
export function StartDialog({ cluster, role, snapshot, draft: first, onClose }: Props) {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const [draft, setDraft] = useState(first);
  const [key] = useState(newKey);
  const ref = { namespace: cluster.ref?.namespace ?? '', name: cluster.ref?.name ?? '' };
  const review = useMutation(OperationService.method.planOperation);
  const start = useMutation(OperationService.method.createOperation, {
    onSuccess: ({ operation }) => {
      onClose();
      if (operation?.ref) {
        go(operationPath(operation.ref));
      }
    },
  });
  const ask = (next: Draft) => {
    setDraft(next);
    start.reset();
    review.mutate({ order: create(OperationOrderSchema, orderOf(ref, next)) });
  };
  const begin = (plan: Plan) =>
    start.mutate({
      order: create(OperationOrderSchema, orderOf(ref, draft)),
      expectedTarget: plan.target,
      idempotencyKey: key,
    });
  const plan = review.data?.plan;
  const kind = kindWords(t, draft.kind, draft.action);
  return (
    <Dialog open onClose={onClose} title={t('start.title', { kind, cluster: machineOf(draft) || ref.name })} wide>
      <Steps reviewing={plan !== undefined} />
      {plan ? (
        <Review
          plan={plan}
          draft={draft}
          namespace={ref.namespace}
          onDraft={ask}
          asking={review.isPending}
          starting={start.isPending}
          error={review.error ?? start.error}
          onBack={() => {
            start.reset();
            review.reset();
          }}
          onStart={() => begin(plan)}
        />
      ) : (
        <OrderForm
          cluster={cluster}
          role={role}
          snapshot={snapshot}
          draft={draft}
          onDraft={setDraft}
          onReview={() => ask(draft)}
          asking={review.isPending}
          error={review.error}
          onClose={onClose}
        />
      )}
    </Dialog>
  );
}

/** newKey makes the same start twice one operation, should its answer be lost on the way. */
function newKey(): string {
  return `ui-${crypto.getRandomValues(new Uint32Array(4)).join('-')}`.slice(0, 63);
}

function Steps({ reviewing }: { reviewing: boolean }) {
  const { t } = useTranslation();
  return (
    <ol className={css.steps} aria-label={t('start.steps')}>
      <li aria-current={reviewing ? undefined : 'step'}>1. {t('start.stepOrder')}</li>
      <li aria-current={reviewing ? 'step' : undefined}>2. {t('start.stepReview')}</li>
    </ol>
  );
}
