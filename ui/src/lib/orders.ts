// SPDX-License-Identifier: Apache-2.0
import type { MessageInitShape } from '@bufbuild/protobuf';
import type { Cluster } from '../gen/ichor/v1alpha1/cluster_pb';
import type {
  NodeParametersSchema,
  OperationOrderSchema,
  OperationParametersSchema,
} from '../gen/ichor/v1alpha1/operation_pb';
import { OperationKind } from '../gen/ichor/v1alpha1/operation_pb';
import type { Reference } from '../gen/ichor/v1alpha1/types_pb';
import { MachineRole } from '../gen/ichor/v1alpha1/types_pb';
import type { Rights } from './rights';
import { kindNames, startVerb } from './rights';
import { canonicalVersion, isVersion } from './versions';

/** Draft is what somebody has filled in so far. What is empty is left to the hub. */
export interface Draft {
  kind: OperationKind;
  /** action is that of kinds node and shutdown. */
  action: string;
  /** machine is that of kind node; empty where an action is about the whole cluster. */
  machine: string;
  rebootMode: string;
  service: string;
  /** members is whose etcd is defragmented: that of the machine, or every one. */
  members: 'one' | 'every';
  alarms: string;
  resetManner: string;
  wipe: 'System' | 'UserVolumes' | 'Both';
  afterReset: string;
  /** machines are those of kind config; undefined is all of them. */
  machines: readonly string[] | undefined;
  snapshot: string;
  /** authorities are those of kind ca-rotation, and keys those of kind key-rotation. */
  authorities: 'Both' | 'Talos' | 'Kubernetes';
  keys: 'Both' | 'ServiceAccount' | 'Secretbox';
  /** restored is the snapshot of kind etcd-restore. */
  restored: string;
  safetySnapshot: string;
  integrity: string;
  talosVersion: string;
  schematicID: string;
  kubernetesVersion: string;
  maxUnavailable: string;
  overrides: Record<string, string>;
}

/** Start is something that can be started, and has a form. */
export interface Start {
  kind: OperationKind;
  action: string;
}

/** clusterStarts are about a whole cluster, in the order of their buttons. */
export const clusterStarts: readonly Start[] = [
  { kind: OperationKind.TALOS, action: '' },
  { kind: OperationKind.KUBERNETES, action: '' },
  { kind: OperationKind.CONFIG, action: '' },
  { kind: OperationKind.CA_ROTATION, action: '' },
  { kind: OperationKind.KEY_ROTATION, action: '' },
  { kind: OperationKind.NODE, action: 'EtcdDefrag' },
  { kind: OperationKind.SHUTDOWN, action: 'Stop' },
  { kind: OperationKind.SHUTDOWN, action: 'Start' },
];

/** nodeActions are what can be done to one machine. Only control planes have a member of etcd. */
export function nodeActions(role: MachineRole): string[] {
  const etcd = role === MachineRole.CONTROL_PLANE ? ['EtcdDefrag', 'EtcdForfeitLeadership'] : [];
  return ['Reboot', 'Shutdown', 'RestartService', ...etcd, 'Reset'];
}

/** draftFor begins a draft: it asks for what the spec of the cluster asks for. */
export function draftFor(start: Start, cluster: Pick<Cluster, 'desired'>, machine = ''): Draft {
  return {
    ...start,
    machine,
    rebootMode: '',
    service: 'kubelet',
    members: machine === '' ? 'every' : 'one',
    alarms: '',
    resetManner: '',
    wipe: 'System',
    afterReset: '',
    machines: undefined,
    snapshot: '',
    authorities: 'Both',
    keys: 'Both',
    restored: '',
    safetySnapshot: '',
    integrity: '',
    talosVersion: cluster.desired?.talosVersion ?? '',
    schematicID: cluster.desired?.schematicId ?? '',
    kubernetesVersion: cluster.desired?.kubernetesVersion ?? '',
    maxUnavailable: '',
    overrides: {},
  };
}

/** restoreOf begins a draft that puts a cluster back to a snapshot. */
export function restoreOf(cluster: Pick<Cluster, 'desired'>, snapshot: string): Draft {
  return { ...draftFor({ kind: OperationKind.ETCD_RESTORE, action: '' }, cluster), restored: snapshot };
}

/** machineOf is the machine that a draft is about; empty if it is about the cluster. */
export function machineOf(draft: Draft): string {
  return draft.action === 'EtcdDefrag' && draft.members === 'every' ? '' : draft.machine;
}

/** Problem is what is wrong with a field of a draft. */
export type Problem = 'version' | 'schematic' | 'maxUnavailable' | 'machine' | 'service' | 'snapshot';

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
  if (draft.kind === OperationKind.CONFIG && draft.machines?.length === 0) {
    problems.machines = 'machine';
  }
  if (draft.action === 'RestartService' && !/^(kubelet|ext-[a-z0-9.-]+)$/.test(draft.service)) {
    problems.service = 'service';
  }
  if (draft.action === 'Stop' && draft.snapshot === '') {
    problems.snapshot = 'snapshot';
  }
  if (draft.kind === OperationKind.ETCD_RESTORE && draft.safetySnapshot === '') {
    problems.safetySnapshot = 'snapshot';
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
    default:
      return { ...order, parameters: { parameters: parametersOf(draft) } };
  }
}

type Parameters = MessageInitShape<typeof OperationParametersSchema>['parameters'];

function parametersOf(draft: Draft): Parameters {
  switch (draft.kind) {
    case OperationKind.NODE:
      return { case: 'node', value: { machine: machineOf(draft), action: draft.action, ...actionParameters(draft) } };
    case OperationKind.CONFIG:
      return { case: 'config', value: { machines: [...(draft.machines ?? [])] } };
    case OperationKind.SHUTDOWN:
      return {
        case: 'shutdown',
        value: { action: draft.action, snapshot: draft.action === 'Stop' ? draft.snapshot : '' },
      };
    case OperationKind.CA_ROTATION:
      return { case: 'caRotation', value: { authorities: eachOf(draft.authorities, ['Talos', 'Kubernetes']) } };
    case OperationKind.KEY_ROTATION:
      return { case: 'keyRotation', value: { keys: eachOf(draft.keys, ['ServiceAccount', 'Secretbox']) } };
    case OperationKind.ETCD_RESTORE:
      return {
        case: 'etcdRestore',
        value: { snapshotName: draft.restored, safetySnapshot: draft.safetySnapshot, integrity: draft.integrity },
      };
    default:
      return { case: undefined };
  }
}

/** eachOf is what was chosen, or both in the order in which the hub takes them. */
const eachOf = (chosen: string, both: readonly string[]) => (chosen === 'Both' ? [...both] : [chosen]);

/** actionParameters are what goes with one action only; the hub refuses what goes with another. */
function actionParameters(draft: Draft): MessageInitShape<typeof NodeParametersSchema> {
  switch (draft.action) {
    case 'Reboot':
      return { rebootMode: draft.rebootMode };
    case 'RestartService':
      return { service: draft.service };
    case 'EtcdDefrag':
      return { alarms: draft.alarms };
    case 'Reset':
      return {
        reset: {
          manner: draft.resetManner,
          wipe: draft.wipe === 'Both' ? ['System', 'UserVolumes'] : [draft.wipe],
          after: draft.afterReset,
        },
      };
    default:
      return {};
  }
}

/** Obstacle is why something cannot be started, with the values that its words need. */
export type Obstacle =
  | { why: 'operate' | 'machines'; namespace: string }
  | { why: 'start'; namespace: string; verb: string }
  | { why: 'unfinished'; operation: string }
  | { why: Plain };

/** Plain obstacles need no values. */
type Plain =
  | 'deleting'
  | 'kind'
  | 'gone'
  | 'approval'
  | 'retrying'
  | 'turningBack'
  | 'noWayBack'
  | 'notTaken'
  | 'snapshotDeleting'
  | 'noStorage';

/** startObstacle is what is known to stand against a start before anybody asks for a plan. The plan knows more. */
export function startObstacle(
  cluster: Pick<Cluster, 'ref' | 'operations' | 'deleting'>,
  { kind, action }: Start,
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
