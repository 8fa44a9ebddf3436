// SPDX-License-Identifier: Apache-2.0
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import type { Cluster, Machine } from '../../src/gen/ichor/v1alpha1/cluster_pb';
import type { OperationOrder } from '../../src/gen/ichor/v1alpha1/operation_pb';
import { Confirmation, Effect, OperationKind } from '../../src/gen/ichor/v1alpha1/operation_pb';
import { MachineRole } from '../../src/gen/ichor/v1alpha1/types_pb';
import { refKey } from '../../src/lib/refs';
import { kindNames } from '../../src/lib/rights';
import { compareVersions } from '../../src/lib/versions';
import type { Orders } from './service';
import { stageNames as stagesOfKind, wholeStage } from './stages';
import type { World } from './world';

interface Refused {
  gate: string;
  message: string;
  help: string;
  overridable: boolean;
}

const configDiff = `--- active
+++ desired
@@ -12,6 +12,6 @@
     sysctls:
-        net.core.somaxconn: "1024"
+        net.core.somaxconn: "4096"
     token: "***"
`;

/** configOf is how the config of a machine differs: on a worker it needs a reboot. */
export function configOf(machine: Machine) {
  const worker = machine.role === MachineRole.WORKER;
  return {
    machine: machine.ref,
    node: machine.node,
    role: machine.role,
    effect: machine.approved ? (worker ? 'Reboot' : 'Live') : '',
    diff: machine.approved ? configDiff : '',
    pending: machine.node === 'cp-2' ? 'a config is tried until 10:42' : '',
    trouble: machine.approved ? '' : 'the hub has not compared its config yet',
  };
}

/** planOf is what a hub would say to an order. */
export function planOf(world: World, order: OperationOrder | undefined, orders: Orders) {
  const key = refKey(order?.cluster);
  const cluster = world.clusters.get(key);
  if (!cluster || !order) {
    throw new ConnectError(`there is no ${key}`, Code.NotFound);
  }
  const machines = taken(world, order);
  const { refusals, overridden } = order.kind === OperationKind.TALOS ? versionGates(order, cluster) : nothing;
  const target = targetOf(order, cluster);
  const effect = effectOf(order);
  return {
    cluster: order.cluster,
    kind: order.kind,
    effect,
    stages: stagesOf(order, machines, target),
    held: world
      .machinesOf(key)
      .filter((machine) => machine.held)
      .map((machine) => machine.node),
    current: cluster.desired,
    target,
    refusals,
    overridden,
    warnings: warnings[order.kind] ?? [],
    losses: losses[effect] ?? [],
    estimatedDuration: { seconds: BigInt(216 * machines.length), nanos: 0 },
    observedTime: timestampFromMs(Date.now() - 3_000),
    atTarget:
      order.kind === OperationKind.TALOS && machines.every((machine) => machine.talosVersion === target.talosVersion),
    confirmation: orders.confirmName || byName.includes(effect) ? Confirmation.NAME : Confirmation.YES,
    writesSpec: order.kind === OperationKind.TALOS && target.talosVersion !== cluster.desired?.talosVersion,
    command: commandOf(order, cluster, machines),
    liveGates: ['EtcdHealthy', 'WorkersAvailable'],
  };
}

/** byName are the effects before which the name has to be typed. */
const byName = [Effect.RESET, Effect.STOP, Effect.CA_ROTATION, Effect.KEY_ROTATION, Effect.RESTORE];

const losses: Partial<Record<Effect, string[]>> = {
  [Effect.RESET]: ['the volume EPHEMERAL of w-1: 84 GiB', 'the user volume data: 412 GiB'],
  [Effect.CA_ROTATION]: ['credentials that the old authorities have signed are refused in the end, whoever keeps them'],
  [Effect.RESTORE]: ['whatever was written to the Kubernetes API since the snapshot was taken'],
};

const warnings: Partial<Record<OperationKind, { code: string; message: string }[]>> = {
  [OperationKind.TALOS]: [{ code: 'NoSnapshot', message: 'there is no etcd snapshot of this cluster' }],
  [OperationKind.CA_ROTATION]: [
    {
      code: 'NotRotated',
      message: 'not rotated: the authorities of etcd and of the API aggregator, of which Talos accepts no second one',
    },
    {
      code: 'CredentialsChange',
      message: 'who trusts the old authority alone cannot tell servers from others after the swap',
    },
  ],
  [OperationKind.KEY_ROTATION]: [
    { code: 'TokensExpire', message: 'once the old key is dropped, every token that it signed is void' },
  ],
  [OperationKind.ETCD_RESTORE]: [
    { code: 'Outage', message: 'the Kubernetes API is away until the first control plane is back with the snapshot' },
    { code: 'Rewinds', message: 'whatever follows the cluster sees time go back' },
  ],
};

export type FakePlan = ReturnType<typeof planOf>;

const nothing: { refusals: Refused[]; overridden: Refused[] } = { refusals: [], overridden: [] };

function actionOf(order: OperationOrder): string {
  const parameters = order.parameters?.parameters;
  return parameters?.case === 'node' || parameters?.case === 'shutdown' ? parameters.value.action : '';
}

/** taken are the machines that an order is about. */
function taken(world: World, order: OperationOrder): Machine[] {
  const parameters = order.parameters?.parameters;
  const machines = world.machinesOf(refKey(order.cluster)).filter((machine) => machine.approved);
  if (parameters?.case === 'node' && parameters.value.machine === '') {
    return machines.filter((machine) => machine.role === MachineRole.CONTROL_PLANE);
  }
  const { value } = parameters ?? {};
  const names = parameters?.case === 'node' ? [parameters.value.machine] : [];
  const chosen = value && parameters?.case === 'config' ? parameters.value.machines : names;
  return chosen.length === 0 ? machines : machines.filter((machine) => chosen.includes(machine.ref?.name ?? ''));
}

function versionGates(order: OperationOrder, cluster: Cluster) {
  const target = order.target?.talosVersion ?? '';
  const runs = cluster.talosVersions?.lowest ?? '';
  const [refusals, overridden]: [Refused[], Refused[]] = [[], []];
  const gate = 'TalosVersionPath';
  if (compareVersions(target, runs) < 0) {
    const message = `${target} is older than ${runs}, which runs`;
    refusals.push({ gate, message, help: 'name a newer version', overridable: false });
  }
  if (compareVersions(target, 'v1.15.0') >= 0) {
    const message = `${target} skips a minor version: ${runs} runs`;
    const allowed = order.overrides.some((override) => override.gate === gate);
    (allowed ? overridden : refusals).push({ gate, message, help: 'go to v1.14.1 first', overridable: true });
  }
  return { refusals, overridden };
}

function targetOf(order: OperationOrder, cluster: Cluster): { talosVersion?: string; kubernetesVersion?: string } {
  switch (order.kind) {
    case OperationKind.TALOS:
      return { talosVersion: order.target?.talosVersion || (cluster.desired?.talosVersion ?? '') };
    case OperationKind.KUBERNETES:
      return { kubernetesVersion: order.target?.kubernetesVersion ?? '' };
    default:
      return {};
  }
}

const actionEffects: Record<string, Effect> = {
  Shutdown: Effect.STOP,
  Stop: Effect.STOP,
  Start: Effect.NONE,
  RestartService: Effect.RESTART_COMPONENTS,
  EtcdDefrag: Effect.RESTART_COMPONENTS,
  EtcdForfeitLeadership: Effect.NONE,
  Reset: Effect.RESET,
};

const kindEffects: Partial<Record<OperationKind, Effect>> = {
  [OperationKind.KUBERNETES]: Effect.RESTART_COMPONENTS,
  [OperationKind.CA_ROTATION]: Effect.CA_ROTATION,
  [OperationKind.KEY_ROTATION]: Effect.KEY_ROTATION,
  [OperationKind.ETCD_RESTORE]: Effect.RESTORE,
};

function effectOf(order: OperationOrder): Effect {
  return kindEffects[order.kind] ?? actionEffects[actionOf(order)] ?? Effect.REBOOT;
}

const stageNames: Partial<Record<OperationKind, string[]>> = {
  [OperationKind.TALOS]: ['Pull', 'Upgrade'],
  [OperationKind.KUBERNETES]: ['Check', 'Pull', 'APIServers', 'Kubelets'],
  [OperationKind.CONFIG]: ['Apply'],
  [OperationKind.SHUTDOWN]: ['Snapshot', 'Workers'],
};

/** stagesOf has the last stage machine by machine; those before take all of them at once, or none. */
function stagesOf(order: OperationOrder, machines: Machine[], target: object) {
  const one = (machine: Machine) => ({
    name: machine.ref?.name ?? '',
    node: machine.node,
    role: machine.role,
    current: { talosVersion: machine.talosVersion, kubernetesVersion: machine.kubernetesVersion },
    target,
    ...(order.kind === OperationKind.CONFIG && {
      effect: machine.role === MachineRole.WORKER ? Effect.REBOOT : Effect.NONE,
      diff: configOf(machine).diff,
    }),
  });
  const passes = stagesOfKind(order.parameters);
  if (passes.length > 0) {
    return passes.map((name) => ({
      name,
      disruptive: !wholeStage(name),
      groups: wholeStage(name) ? [] : machines.map((machine) => ({ machines: [one(machine)] })),
    }));
  }
  const names = stageNames[order.kind] ?? [actionOf(order)];
  return names.map((name, index) => {
    const last = index === names.length - 1;
    const groups = last
      ? machines.map((machine) => ({ machines: [one(machine)] }))
      : ['Check', 'Snapshot'].includes(name)
        ? []
        : [{ machines: machines.map(one) }];
    return { name, disruptive: last && effectOf(order) !== Effect.NONE, groups };
  });
}

function commandOf(order: OperationOrder, cluster: Cluster, machines: Machine[]): string {
  const where = `--cluster ${cluster.ref?.name} -n ${cluster.ref?.namespace}`;
  const action = actionOf(order)
    .replace(/(?<=.)[A-Z]/g, '-$&')
    .toLowerCase();
  const named = `${cluster.ref?.name} -n ${cluster.ref?.namespace}`;
  const parameters = order.parameters?.parameters;
  switch (parameters?.case) {
    case 'caRotation':
      return `ichor cluster rotate-ca ${named} --authority ${parameters.value.authorities.join().toLowerCase()}`;
    case 'keyRotation':
      return `ichor cluster rotate-keys ${named} --key ${parameters.value.keys.join()}`;
    case 'etcdRestore':
      return `ichor cluster restore ${named} --from ${parameters.value.snapshotName}`;
  }
  switch (order.kind) {
    case OperationKind.NODE:
      return `ichor node ${action} ${machines[0]?.node} ${where}`;
    case OperationKind.CONFIG:
      return `ichor config rollout ${where}`;
    case OperationKind.SHUTDOWN:
      return `ichor cluster ${action === 'stop' ? 'shutdown' : 'start'} ${cluster.ref?.name} -n ${cluster.ref?.namespace}`;
    default: {
      const version = order.target?.talosVersion || order.target?.kubernetesVersion;
      return `ichor upgrade ${kindNames[order.kind]} ${version} ${where}`;
    }
  }
}
