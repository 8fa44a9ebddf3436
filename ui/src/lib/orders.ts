// SPDX-License-Identifier: Apache-2.0
import type { MessageInitShape } from '@bufbuild/protobuf';
import type { Cluster } from '../gen/ichor/v1alpha1/cluster_pb';
import type { OperationOrderSchema } from '../gen/ichor/v1alpha1/operation_pb';
import { OperationKind } from '../gen/ichor/v1alpha1/operation_pb';
import type { Reference } from '../gen/ichor/v1alpha1/types_pb';
import type { Rights } from './rights';
import { kindNames, startVerb } from './rights';
import { canonicalVersion, isVersion } from './versions';

/** Draft is what somebody has filled in so far. */
export interface Draft {
  kind: OperationKind;
  /** machine and action are those of kind node. */
  machine: string;
  action: string;
  rebootMode: string;
  talosVersion: string;
  schematicID: string;
  kubernetesVersion: string;
  maxUnavailable: string;
  overrides: Record<string, string>;
}

/** startable are the kinds that the page has a form for, in the order of their buttons. */
export const startable: readonly OperationKind[] = [OperationKind.TALOS, OperationKind.KUBERNETES, OperationKind.NODE];

/** draftFor begins a draft: it asks for what the spec of the cluster asks for. */
export function draftFor(
  kind: OperationKind,
  cluster: Pick<Cluster, 'desired'>,
  machine = '',
  action = 'Reboot',
): Draft {
  return {
    kind,
    machine,
    action: kind === OperationKind.NODE ? action : '',
    rebootMode: '',
    talosVersion: cluster.desired?.talosVersion ?? '',
    schematicID: cluster.desired?.schematicId ?? '',
    kubernetesVersion: cluster.desired?.kubernetesVersion ?? '',
    maxUnavailable: '',
    overrides: {},
  };
}

/** Problem is what is wrong with a field of a draft. */
export type Problem = 'version' | 'schematic' | 'maxUnavailable' | 'machine';

/** problemsOf finds what the page can tell to be wrong; everything else is the plan's to refuse. */
export function problemsOf(draft: Draft): Partial<Record<keyof Draft, Problem>> {
  const problems: Partial<Record<keyof Draft, Problem>> = {};
  if (draft.kind === OperationKind.TALOS && !isVersion(draft.talosVersion)) {
    problems.talosVersion = 'version';
  }
  if (draft.kind === OperationKind.TALOS && draft.schematicID !== '' && !/^[0-9a-f]{64}$/.test(draft.schematicID)) {
    problems.schematicID = 'schematic';
  }
  if (draft.kind === OperationKind.KUBERNETES && !isVersion(draft.kubernetesVersion)) {
    problems.kubernetesVersion = 'version';
  }
  if (draft.maxUnavailable !== '' && !/^([1-9]\d{0,2}|1000|([1-9]\d?|100)%)$/.test(draft.maxUnavailable)) {
    problems.maxUnavailable = 'maxUnavailable';
  }
  if (draft.kind === OperationKind.NODE && draft.machine === '') {
    problems.machine = 'machine';
  }
  return problems;
}

/** orderOf is what the service is asked for. */
export function orderOf(
  cluster: Pick<Reference, 'namespace' | 'name'>,
  draft: Draft,
): MessageInitShape<typeof OperationOrderSchema> {
  const overrides = Object.entries(draft.overrides).map(([gate, reason]) => ({ gate, reason }));
  const order = {
    cluster: { namespace: cluster.namespace, name: cluster.name },
    kind: draft.kind,
    maxUnavailable: draft.maxUnavailable,
    overrides,
  };
  switch (draft.kind) {
    case OperationKind.TALOS:
      return {
        ...order,
        target: { talosVersion: canonicalVersion(draft.talosVersion), schematicId: draft.schematicID },
      };
    case OperationKind.KUBERNETES:
      return { ...order, target: { kubernetesVersion: canonicalVersion(draft.kubernetesVersion) } };
    case OperationKind.NODE: {
      const node = { machine: draft.machine, action: draft.action, rebootMode: draft.rebootMode };
      return { ...order, parameters: { parameters: { case: 'node', value: node } } };
    }
    default:
      return order;
  }
}

/** Obstacle is why something cannot be started, with the values that its words need. */
export type Obstacle =
  | { why: 'operate' | 'machines'; namespace: string }
  | { why: 'start'; namespace: string; verb: string }
  | { why: 'unfinished'; operation: string }
  | { why: 'deleting' | 'kind' | 'gone' | 'approval' };

/** startObstacle is what is known to stand against a start before anybody asks for a plan. The plan knows more. */
export function startObstacle(
  cluster: Pick<Cluster, 'ref' | 'operations' | 'deleting'>,
  kind: OperationKind,
  action: string,
  rights: Rights,
  kinds: readonly OperationKind[],
): Obstacle | undefined {
  const namespace = cluster.ref?.namespace ?? '';
  const verb = startVerb(kind, action);
  if (!kinds.includes(kind)) {
    return { why: 'kind' };
  }
  if (!rights.operate) {
    return { why: 'operate', namespace };
  }
  if (!rights.start.has(verb)) {
    return { why: 'start', namespace, verb };
  }
  if (cluster.deleting) {
    return { why: 'deleting' };
  }
  const unfinished = cluster.operations[0];
  return unfinished ? { why: 'unfinished', operation: unfinished.ref?.name ?? kindNames[unfinished.kind] } : undefined;
}

/** confirmed says whether what was typed is the name that a plan asks for. */
export function confirmed(needed: string | undefined, typed: string): boolean {
  return needed === undefined || typed.trim() === needed;
}
