// SPDX-License-Identifier: Apache-2.0
import { timestampMs } from '@bufbuild/protobuf/wkt';
import type { Cluster, OperationSummary } from '../gen/ichor/v1alpha1/cluster_pb';
import type { OperationKind } from '../gen/ichor/v1alpha1/operation_pb';
import { OperationPhase } from '../gen/ichor/v1alpha1/operation_pb';
import type { Reference } from '../gen/ichor/v1alpha1/types_pb';
import { Attention, ConditionStatus } from '../gen/ichor/v1alpha1/types_pb';
import { refKey } from './refs';
import type { Mark } from './state';
import { attentionMark, conditionMark, operationMark, urgent } from './state';

/** Issue is what keeps a cluster from being in order. A cluster can have several. */
export type Issue = 'failed' | 'person' | 'unreachable' | 'credentials' | 'drift';

/** issues are all of them, the most urgent first. */
export const issues: readonly Issue[] = ['failed', 'person', 'unreachable', 'credentials', 'drift'];

/** RowOperation is what a row shows of the operation that matters most. */
export interface RowOperation {
  key: string;
  namespace: string;
  name: string;
  kind: OperationKind;
  mark: Mark;
  stage: string;
  reason: string;
  completed: number;
  total: number;
}

/**
 * FleetRow is what the fleet page keeps of a cluster. Ten thousand of them must stay small, so it is made of few plain values, and what only the page
 * of a cluster shows is not there.
 */
export interface FleetRow {
  key: string;
  namespace: string;
  name: string;
  labels: Record<string, string>;
  attention: number;
  mark: Mark;
  reason: string;
  /** since is when the worst condition turned, in milliseconds; 0 where no condition says why it needs somebody. */
  since: number;
  issues: readonly Issue[];
  talos: string;
  talosHighest: string;
  talosWanted: string;
  kubernetes: string;
  kubernetesHighest: string;
  kubernetesWanted: string;
  machines: number;
  ready: number;
  pending: number;
  held: number;
  holder: string;
  operation: RowOperation | undefined;
  running: number;
  unfinished: number;
  /** text is what a search looks at, in lower case. */
  text: string;
}

/** fleetRow makes the row of a cluster. */
export function fleetRow(cluster: Cluster): FleetRow {
  const running = cluster.operations.filter((o) => o.phase === OperationPhase.IN_PROGRESS).length;
  const operation = foremost(cluster.operations);
  // Others may wait behind what runs: that it runs says more.
  const moves = operation?.mark === 'running' && cluster.attention <= Attention.WAITING;
  const row: FleetRow = {
    key: refKey(cluster.ref),
    namespace: cluster.ref?.namespace ?? '',
    name: cluster.ref?.name ?? '',
    labels: cluster.labels,
    attention: cluster.attention,
    mark: moves ? 'running' : attentionMark(cluster.attention, false),
    reason: cluster.attentionReason,
    since: sinceOf(cluster),
    issues: issuesOf(cluster),
    talos: cluster.talosVersions?.lowest ?? '',
    talosHighest: cluster.talosVersions?.highest ?? '',
    talosWanted: wanted(cluster.desired?.talosVersion, cluster.talosVersions),
    kubernetes: cluster.kubernetesVersions?.lowest ?? '',
    kubernetesHighest: cluster.kubernetesVersions?.highest ?? '',
    kubernetesWanted: wanted(cluster.desired?.kubernetesVersion, cluster.kubernetesVersions),
    machines: cluster.controlPlanes + cluster.workers,
    ready: cluster.machinesReady,
    pending: cluster.machinesPending,
    held: cluster.machinesHeld,
    holder: holderName(cluster.lock?.operation, cluster.lock?.holder),
    operation,
    running,
    unfinished: cluster.operations.length,
    text: '',
  };
  row.text = searchText(row);
  return row;
}

/** wanted is the version that the spec asks for, unless all machines run it. */
function wanted(desired: string | undefined, range: { lowest: string; highest: string } | undefined): string {
  if (!desired || (range?.lowest === desired && range.highest === desired)) {
    return '';
  }
  return desired;
}

/** holderName is the operation that holds the lock, or what else does. */
export function holderName(operation: Reference | undefined, holder: string | undefined): string {
  return operation?.name ?? holder ?? '';
}

function issuesOf(cluster: Cluster): Issue[] {
  const found: Issue[] = [];
  const mark = attentionMark(cluster.attention, false);
  if (mark === 'failed') {
    found.push('failed');
  }
  const is = (type: string, status: ConditionStatus) =>
    cluster.conditions.some((c) => c.type === type && c.status === status);
  const unreachable = is('KubernetesReachable', ConditionStatus.FALSE) || is('TalosReachable', ConditionStatus.FALSE);
  if (unreachable) {
    found.push('unreachable');
  }
  const credentials = cluster.conditions.find((c) => c.type === 'CredentialsValid');
  if (credentials?.status === ConditionStatus.FALSE || credentials?.reason === 'ExpiringSoon') {
    found.push('credentials');
  }
  if (cluster.drift.length > 0) {
    found.push('drift');
  }
  const waits =
    cluster.operations.some((o) => operationMark(o.phase, o.attention) === 'person') || cluster.machinesPending > 0;
  if (waits || (mark === 'person' && found.length === 0)) {
    found.push('person');
  }
  return found;
}

/** sinceOf is when that turned which needs somebody now: the first of the conditions that are as bad as the cluster is. */
function sinceOf(cluster: Cluster): number {
  const mark = attentionMark(cluster.attention, false);
  const times = cluster.conditions
    .filter((condition) => urgent.includes(mark) && conditionMark(condition) === mark)
    .map((condition) => (condition.lastTransitionTime ? timestampMs(condition.lastTransitionTime) : 0));
  return times.length > 0 ? Math.min(...times) : 0;
}

/** foremost is the operation to show: what failed before what runs, and what runs before what waits. */
function foremost(operations: readonly OperationSummary[]): RowOperation | undefined {
  const order: readonly Mark[] = ['failed', 'person', 'running', 'waiting', 'soon', 'ok', 'unknown'];
  const rank = (o: OperationSummary) => order.indexOf(operationMark(o.phase, o.attention));
  const first = operations.reduce<OperationSummary | undefined>(
    (best, o) => (!best || rank(o) < rank(best) ? o : best),
    undefined,
  );
  return first && rowOperation(first);
}

/** rowOperation is what is shown of an operation in few words. */
export function rowOperation(o: OperationSummary): RowOperation {
  return {
    key: refKey(o.ref),
    namespace: o.ref?.namespace ?? '',
    name: o.ref?.name ?? '',
    kind: o.kind,
    mark: operationMark(o.phase, o.attention),
    stage: o.stage,
    reason: o.reason,
    completed: o.machinesCompleted,
    total: o.machinesTotal,
  };
}

function searchText(row: FleetRow): string {
  const labels = Object.entries(row.labels).map(([key, value]) => `${key}=${value}`);
  const versions = [row.talos, row.talosHighest, row.kubernetes, row.kubernetesHighest];
  return [row.name, row.namespace, row.reason, row.holder, ...versions, ...labels].join('\n').toLowerCase();
}
