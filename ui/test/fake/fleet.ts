// SPDX-License-Identifier: Apache-2.0
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import type { Cluster } from '../../src/gen/ichor/v1alpha1/cluster_pb';
import { ClusterMode } from '../../src/gen/ichor/v1alpha1/cluster_pb';
import { OperationKind, OperationPhase, UnitPhase } from '../../src/gen/ichor/v1alpha1/operation_pb';
import { Attention, ConditionStatus, MachineRole } from '../../src/gen/ichor/v1alpha1/types_pb';
import { addSnapshots } from './snapshots';
import { World } from './world';

const regions = ['eu-central', 'eu-west', 'us-east', 'us-west', 'ap-northeast'];
const environments = ['prod', 'prod', 'prod', 'stage', 'dev'];
const hour = 3_600_000;

const { TRUE, FALSE } = ConditionStatus;

/** conditions of a cluster that is in order, but for those that are named. */
export function conditions(other: Record<string, [ConditionStatus, string, string]> = {}, now = Date.now()) {
  const all: Record<string, [ConditionStatus, string, string]> = {
    Available: [TRUE, 'Available', 'credentials, both APIs and machines are as they should be'],
    CredentialsValid: [TRUE, 'Valid', 'kubeconfig until 2027-10-01, talosconfig until 2027-10-01'],
    KubernetesReachable: [TRUE, 'Reachable', 'answered by 10.0.0.10:6443'],
    TalosReachable: [TRUE, 'Reachable', 'every machine answers'],
    Owned: [TRUE, 'Owned', 'the record on the target names this hub'],
    EtcdHealthy: [TRUE, 'Healthy', '3 of 3 members are voters and healthy'],
    MachinesDiscovered: [TRUE, 'Discovered', 'every member and every Node has a machine'],
    SpecInSync: [TRUE, 'InSync', 'the machines run what the spec asks for'],
    ...other,
  };
  return Object.entries(all).map(([type, [status, reason, message]]) => ({
    type,
    status,
    reason,
    message,
    lastTransitionTime: timestampFromMs(now - 26 * hour),
  }));
}

/** addCluster adds a cluster with three control planes and some workers. */
export function addCluster(world: World, name: string, index: number, workers = 2): Cluster {
  const namespace = ['platform', 'retail', 'edge'][index % 3] ?? 'platform';
  const ref = { namespace, name };
  return world.putCluster({
    ref,
    uid: `uid-${name}`,
    labels: {
      region: regions[index % regions.length] ?? '',
      env: environments[index % environments.length] ?? '',
      team: `team-${index % 7}`,
    },
    mode: index % 4 === 0 ? ClusterMode.ADOPTED : ClusterMode.IMPORTED,
    attention: Attention.NONE,
    endpoint: `10.${Math.floor(index / 250) % 250}.${index % 250}.10:6443`,
    desired: { talosVersion: 'v1.13.2', kubernetesVersion: 'v1.35.1' },
    talosVersions: { lowest: 'v1.13.2', highest: 'v1.13.2' },
    kubernetesVersions: { lowest: 'v1.35.1', highest: 'v1.35.1' },
    controlPlanes: 3,
    workers,
    machinesReady: 3 + workers,
    conditions: conditions(),
    createTime: timestampFromMs(Date.now() - (index + 24) * hour),
  });
}

/** addMachines adds the machines of a cluster. */
export function addMachines(world: World, cluster: Cluster, talosVersion = 'v1.13.2'): void {
  const { namespace = '', name = '' } = cluster.ref ?? {};
  for (let i = 0; i < cluster.controlPlanes + cluster.workers; i++) {
    const control = i < cluster.controlPlanes;
    const node = control ? `cp-${i + 1}` : `w-${i - cluster.controlPlanes + 1}`;
    world.putMachine({
      ref: { namespace, name: `${name}-${node}` },
      cluster: cluster.ref,
      node,
      role: control ? MachineRole.CONTROL_PLANE : MachineRole.WORKER,
      address: `10.0.0.${10 + i}`,
      uuid: `4c4c4544-0042-4b10-8050-${String(i).padStart(12, '0')}`,
      approved: true,
      talosVersion,
      kubernetesVersion: 'v1.35.1',
      ready: true,
      attention: Attention.NONE,
      conditions: [
        {
          type: 'Ready',
          status: TRUE,
          reason: 'Ready',
          message: '',
          lastTransitionTime: timestampFromMs(Date.now() - hour),
        },
      ],
    });
  }
}

const steps = ['Pulling', 'Installing', 'Draining', 'Rebooting', 'Verifying', 'Uncordoning'];
const lengths = [40, 12, 55, 70, 35, 4];

/** unitOf is a machine of an operation that has taken so many steps since it began. */
function unitOf(name: string, begin: number, taken: number, failed = '') {
  let time = begin;
  const done = steps.slice(0, taken).map((step, index) => {
    const start = time;
    time += (lengths[index] ?? 10) * 1_000;
    const last = index === taken - 1;
    return {
      name: step,
      startTime: timestampFromMs(start),
      endTime: last && taken < steps.length ? undefined : timestampFromMs(time),
    };
  });
  const over = taken === steps.length;
  const current = done.at(-1);
  return {
    name,
    phase: over ? UnitPhase.COMPLETED : UnitPhase.IN_PROGRESS,
    stage: 'Upgrade',
    step: over ? '' : (current?.name ?? ''),
    stepStartTime: over ? undefined : current?.startTime,
    message: failed || (over ? '' : 'waits for another boot ID'),
    failed: failed !== '',
    steps: done,
  };
}

/** exampleFleet has one cluster of each sort that the page shows differently. */
export function exampleFleet(): World {
  const world = new World();
  const now = Date.now();
  const names = [
    'alpha',
    'bravo',
    'charlie',
    'delta',
    'echo',
    'foxtrot',
    'golf',
    'hotel',
    'india',
    'juliett',
    'kilo',
    'lima',
  ];
  for (const [index, name] of names.entries()) {
    const cluster = addCluster(world, name, index);
    addMachines(world, cluster);
  }
  addTrouble(world, now);
  addRunning(world, now);
  addDone(world, now);
  addSnapshots(world, { namespace: 'platform', name: 'alpha' }, now);
  for (let i = 0; i < 30; i++) {
    world.recordAudit({
      user: i % 3 ? 'mei@example.com' : 'system:serviceaccount:ci:roller',
      action: i % 4 ? 'CreateOperation' : 'SetOperationPaused',
      cluster: { namespace: 'platform', name: 'alpha' },
      operation: { namespace: 'platform', name: `talos-alpha-${i}` },
      detail: 'talos to v1.13.2, at most 1 worker away at once',
      time: timestampFromMs(now - (30 - i) * 7 * 60_000),
      result: i % 5 === 4 ? 2 : i % 7 === 6 ? 3 : 1,
      message: i % 5 === 4 ? 'user may not create talosoperations in namespace platform' : '',
    });
  }
  return world;
}

function change(world: World, key: string, part: object): void {
  const cluster = world.clusters.get(key);
  if (!cluster) {
    throw new Error(`the example has no cluster ${key}`);
  }
  world.putCluster({ ...cluster, ...part });
}

function addTrouble(world: World, now: number): void {
  change(world, 'edge/charlie', {
    attention: Attention.PERSON,
    attentionReason:
      'the Kubernetes API does not answer on any control plane since 2 h: dial tcp 10.0.2.10:6443: i/o timeout',
    machinesReady: 0,
    conditions: conditions({
      Available: [FALSE, 'NotAvailable', 'the Kubernetes API does not answer'],
      KubernetesReachable: [FALSE, 'NotReachable', 'no control plane answers: dial tcp 10.0.2.10:6443: i/o timeout'],
    }),
  });
  change(world, 'platform/delta', {
    attention: Attention.SOON,
    attentionReason:
      'the client certificate of the talosconfig ends in 9 days: ichor cluster import delta --take-credentials',
    conditions: conditions({
      CredentialsValid: [TRUE, 'ExpiringSoon', 'talosconfig: the client certificate ends in 9 days'],
    }),
  });
  const drift = { field: 'talosVersion', desired: 'v1.13.2', observed: 'v1.12.4', machines: ['w-1', 'w-2'] };
  change(world, 'retail/echo', {
    attention: Attention.SOON,
    attentionReason: 'talosVersion: the spec asks for v1.13.2, 2 machines run v1.12.4',
    talosVersions: { lowest: 'v1.12.4', highest: 'v1.13.2' },
    drift: [drift],
    conditions: conditions({ SpecInSync: [FALSE, 'OutOfSync', 'w-1 and w-2 run v1.12.4, the spec asks for v1.13.2'] }),
  });
  change(world, 'edge/foxtrot', {
    attention: Attention.PERSON,
    attentionReason: '1 machine waits for an approval: ichor machine approve w-2 --cluster foxtrot',
    machinesPending: 1,
    machinesHeld: 1,
  });
  const [pending, held] = [world.machines.get('edge/foxtrot-w-2'), world.machines.get('edge/foxtrot-w-1')];
  if (pending && held) {
    world.putMachine({ ...pending, approved: false, attention: Attention.PERSON });
    world.putMachine({ ...held, held: true, holdNote: 'disk is being replaced' });
  }
  const failure = 'Installing on bravo-w-1 failed: the installer ended with exit code 17: no space left on device';
  world.putOperation({
    ...started('retail', 'bravo', 'talos-bravo-x7k2p', now - 840_000),
    phase: OperationPhase.PAUSED,
    attention: Attention.FAILED,
    failureReason: failure,
    machines: [
      unitOf('bravo-cp-1', now - 830_000, 6),
      unitOf('bravo-cp-2', now - 600_000, 6),
      unitOf('bravo-cp-3', now - 370_000, 6),
      unitOf('bravo-w-1', now - 120_000, 2, 'the installer ended with exit code 17: no space left on device'),
    ],
    machinesCompleted: 3,
    answer: {
      doing: 'nothing: a step has failed',
      why: failure,
      who: 'whoever has the right to start talos operations',
      command: 'ichor operation resume talos-bravo-x7k2p -n retail',
      reason: 'StepFailed',
    },
    conditions: operationConditions('StepFailed', failure, now),
  });
  world.recordEvent('retail/talos-bravo-x7k2p', 'LockTaken', 'took the lock of bravo');
  world.recordEvent('retail/talos-bravo-x7k2p', 'MachineCompleted', 'bravo-cp-1 is completed');
  world.recordEvent('retail/talos-bravo-x7k2p', 'StepFailed', failure, true);
}

function started(namespace: string, cluster: string, name: string, start: number) {
  return {
    ref: { namespace, name },
    uid: `uid-${name}`,
    cluster: { namespace, name: cluster },
    kind: OperationKind.TALOS,
    stage: 'Upgrade',
    completedStages: ['Pull'],
    target: { talosVersion: 'v1.13.2' },
    lockHeld: true,
    createdBy: 'mei@example.com',
    createTime: timestampFromMs(start - 20_000),
    startTime: timestampFromMs(start),
    machinesTotal: 5,
    maxUnavailable: '1',
  };
}

function operationConditions(reason: string, message: string, now: number) {
  const condition = (type: string, status: ConditionStatus, why: string, words: string) => ({
    type,
    status,
    reason: why,
    message: words,
    lastTransitionTime: timestampFromMs(now - 60_000),
  });
  return [
    condition('Succeeded', ConditionStatus.UNKNOWN, 'NotCompleted', ''),
    condition('Progressing', reason ? FALSE : TRUE, reason || 'Progressing', message),
    condition('Paused', reason === 'StepFailed' ? TRUE : FALSE, reason || 'NotPaused', message),
    condition('LockHeld', TRUE, 'Held', 'holds the lock of the cluster'),
  ];
}

function addRunning(world: World, now: number): void {
  world.putOperation({
    ...started('platform', 'golf', 'talos-golf-m4n8q', now - 520_000),
    phase: OperationPhase.IN_PROGRESS,
    attention: Attention.NONE,
    machines: [
      unitOf('golf-cp-1', now - 510_000, 6),
      unitOf('golf-cp-2', now - 280_000, 6),
      {
        ...unitOf('golf-cp-3', now - 50_000, 3),
        message: 'evicting 4 pods; waits for a PodDisruptionBudget of shop/cart',
      },
    ],
    machinesCompleted: 2,
    answer: {
      doing: 'Draining golf-cp-3: evicting 4 pods; waits for a PodDisruptionBudget of shop/cart',
      why: '',
      who: '',
      command: '',
      reason: '',
    },
    conditions: operationConditions('', 'Draining golf-cp-3', now),
  });
  const waits = 'the lock of golf is held by operation talos-golf-m4n8q, which is completed when 3 machines more are';
  world.putOperation({
    ...started('platform', 'golf', 'node-golf-w-2-reboot', now),
    kind: OperationKind.NODE,
    parameters: { parameters: { case: 'node', value: { machine: 'golf-w-2', action: 'Reboot' } } },
    phase: OperationPhase.PAUSED,
    attention: Attention.WAITING,
    stage: '',
    completedStages: [],
    target: {},
    lockHeld: false,
    startTime: undefined,
    machinesTotal: 1,
    answer: {
      doing: 'nothing yet',
      why: waits,
      who: 'nobody: it goes on by itself',
      command: '',
      reason: 'ClusterLockHeld',
    },
    conditions: operationConditions('ClusterLockHeld', waits, now),
  });
}

function addDone(world: World, now: number): void {
  for (let i = 0; i < 40; i++) {
    const cluster = i % 2 ? { namespace: 'platform', name: 'alpha' } : { namespace: 'retail', name: 'hotel' };
    const end = now - (i + 1) * 9 * hour;
    world.putOperation({
      ...started(cluster.namespace, cluster.name, `talos-${cluster.name}-${(i + 1000).toString(36)}`, end - 1_140_000),
      phase: OperationPhase.COMPLETED,
      attention: Attention.NONE,
      lockHeld: false,
      completedStages: ['Pull', 'Upgrade'],
      stage: '',
      machines: [unitOf(`${cluster.name}-cp-1`, end - 1_140_000, 6)],
      machinesCompleted: 5,
      completionTime: timestampFromMs(end),
      answer: { doing: 'nothing: completed within 19m0s', why: '', who: '', command: '', reason: '' },
    });
  }
}

/** largeFleet has so many clusters, of which a few have troubles. */
export function largeFleet(count: number): World {
  const world = new World();
  for (let index = 0; index < count; index++) {
    const name = `site-${String(index).padStart(5, '0')}`;
    const cluster = addCluster(world, name, index, 2 + (index % 5));
    if (index % 701 === 700) {
      world.putCluster({
        ...cluster,
        attention: Attention.PERSON,
        attentionReason: 'the Kubernetes API does not answer on any control plane',
      });
    } else if (index % 97 === 96) {
      const drift = [{ field: 'talosVersion', desired: 'v1.13.2', observed: 'v1.12.4', machines: ['w-1'] }];
      world.putCluster({
        ...cluster,
        attention: Attention.SOON,
        attentionReason: 'talosVersion: the spec asks for v1.13.2, w-1 runs v1.12.4',
        drift,
      });
    }
  }
  return world;
}
