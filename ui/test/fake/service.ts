// SPDX-License-Identifier: Apache-2.0

import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt';
import type { ConnectRouter, HandlerContext } from '@connectrpc/connect';
import { Code, ConnectError } from '@connectrpc/connect';
import type { ClusterFilter } from '../../src/gen/ichor/v1alpha1/cluster_pb';
import { ClusterService } from '../../src/gen/ichor/v1alpha1/cluster_pb';
import type { AuditFilter } from '../../src/gen/ichor/v1alpha1/hub_pb';
import { AuditResult, AuditService, HubService } from '../../src/gen/ichor/v1alpha1/hub_pb';
import type { Operation, OperationFilter } from '../../src/gen/ichor/v1alpha1/operation_pb';
import { OperationKind, OperationService, RefusalsSchema } from '../../src/gen/ichor/v1alpha1/operation_pb';
import { SnapshotReason, SnapshotService } from '../../src/gen/ichor/v1alpha1/snapshot_pb';
import type { Page, Reference } from '../../src/gen/ichor/v1alpha1/types_pb';
import { Attention } from '../../src/gen/ichor/v1alpha1/types_pb';
import { refKey } from '../../src/lib/refs';
import { configOf, planOf } from './plans';
import { Runner } from './runner';
import { stored } from './snapshots';
import type { Entry, World } from './world';

/** Orders are what tests want the fake to do. */
export interface Orders {
  /** heartbeat is how often watches say something when nothing changes. */
  heartbeat: number;
  /** stepLength is how long a step of an operation takes, in milliseconds. It is read when the step begins. */
  stepLength: number;
  /** confirmName asks for the name to be typed. */
  confirmName: boolean;
  /** kinds are those that the hub knows, and starts what may be started. */
  kinds: OperationKind[];
  starts: string[];
  /** sent counts the objects that watches have sent. */
  sent: number;
}

/** everyKind and everyStart are a hub on which everything can be started. */
export const everyKind = [
  OperationKind.TALOS,
  OperationKind.KUBERNETES,
  OperationKind.CONFIG,
  OperationKind.NODE,
  OperationKind.SHUTDOWN,
  OperationKind.CA_ROTATION,
  OperationKind.KEY_ROTATION,
  OperationKind.ETCD_RESTORE,
];
export const everyStart = [
  'talos',
  'kubernetes',
  'config',
  'shutdown',
  'ca-rotation',
  'key-rotation',
  'etcd-restore',
  ...['reboot', 'shutdown', 'restart-service', 'etcd-defrag', 'etcd-forfeit-leadership', 'reset'].map(
    (action) => `node-${action}`,
  ),
];

function who(context: HandlerContext): string {
  const user = /(?:^|; )session=(\w+)/.exec(context.requestHeader.get('cookie') ?? '')?.[1] ?? '';
  if (user === '') {
    throw new ConnectError('sign in first', Code.Unauthenticated);
  }
  return user;
}

function writer(context: HandlerContext): string {
  const user = who(context);
  if (user === 'viewer') {
    throw new ConnectError('viewer may not do this', Code.PermissionDenied);
  }
  return user;
}

const missing = (ref: Reference | undefined) => new ConnectError(`there is no ${refKey(ref)}`, Code.NotFound);

function pageOf<T>(
  all: readonly T[],
  page: Page | undefined,
): { items: T[]; nextPageToken: string; totalSize: number } {
  const start = Number(page?.token || 0);
  const size = page?.size || 100;
  const more = start + size < all.length;
  return {
    items: all.slice(start, start + size),
    nextPageToken: more ? String(start + size) : '',
    totalSize: all.length,
  };
}

function named(filter: { names: Reference[] } | undefined, key: string): boolean {
  return !filter || filter.names.length === 0 || filter.names.some((ref) => refKey(ref) === key);
}

/** routes serves a world as a hub would. */
export function routes(router: ConnectRouter, world: World, orders: Orders): void {
  const runner = new Runner(world, orders);
  router.service(HubService, {
    getHub: () => ({
      version: 'v0.0.0-fake',
      name: 'hub.example.com',
      signIn: { token: true, link: true, oidc: { issuer: 'https://id.example.com', clientId: 'ichor' } },
      kinds: orders.kinds,
    }),
    getSession: (_, context) => {
      const user = who(context);
      const all = { operate: true, start: orders.starts, override: true, machines: true, clusters: true };
      return {
        user: user === 'viewer' ? 'vi@example.com' : 'mei@example.com',
        method: 'token',
        groups: ['platform'],
        rights: [{ namespace: '', read: true, ...(user === 'viewer' ? {} : all) }],
      };
    },
  });
  router.service(ClusterService, {
    async *watchClusters(request, context) {
      who(context);
      const selects = (entry: Entry) =>
        (entry.sort === 'cluster' && named(request.filter, entry.key)) ||
        (entry.sort === 'machine' && request.machines && named(request.filter, entry.cluster));
      for await (const { entry, ...rest } of watch(world, orders, request.resumeToken, context.signal, selects, () =>
        everything(world, request.filter, request.machines),
      )) {
        yield { ...rest, event: rest.event ?? clusterEvent(entry) };
      }
    },
    holdMachine: (request, context) => {
      const user = writer(context);
      const machine = world.machines.get(refKey(request.ref));
      if (!machine) {
        throw missing(request.ref);
      }
      world.recordAudit({
        user,
        action: 'HoldMachine',
        cluster: machine.cluster,
        machine: request.ref,
        detail: request.note,
      });
      return {
        machine: world.putMachine({ ...machine, held: request.held, holdNote: request.held ? request.note : '' }),
        changed: true,
      };
    },
    approveMachine: (request, context) => {
      writer(context);
      const machine = world.machines.get(refKey(request.ref));
      if (!machine) {
        throw missing(request.ref);
      }
      return { machine: world.putMachine({ ...machine, approved: true, attention: Attention.NONE }), changed: true };
    },
    diffConfig: (request, context) => {
      who(context);
      return { machines: world.machinesOf(refKey(request.cluster)).map(configOf) };
    },
  });
  router.service(OperationService, {
    async *watchOperations(request, context) {
      who(context);
      const wanted = (operation: Operation) => selected(operation, request.filter);
      const shown = new Set<string>();
      for await (const { entry, ...rest } of watch(
        world,
        orders,
        request.resumeToken,
        context.signal,
        (each) => each.sort === 'operation',
        () => operations(world, wanted),
      )) {
        const event = rest.event ?? operationEvent(entry, wanted, shown);
        if (event) {
          yield { ...rest, event };
        }
      }
    },
    listOperations: (request, context) => {
      who(context);
      const ends = (o: Operation) => (o.completionTime ? timestampMs(o.completionTime) : 0);
      const all = [...world.operations.values()]
        .filter((o) => selected(o, request.filter))
        .sort((a, b) => ends(b) - ends(a));
      const { items, ...rest } = pageOf(all, request.page);
      return { operations: items, ...rest };
    },
    getOperation: (request, context) => {
      who(context);
      const operation = world.operations.get(refKey(request.ref));
      if (!operation) {
        throw missing(request.ref);
      }
      return { operation, events: world.events.get(refKey(request.ref)) ?? [] };
    },
    planOperation: (request, context) => {
      who(context);
      return { plan: planOf(world, request.order, orders) };
    },
    createOperation: (request, context) => {
      const user = writer(context);
      const plan = planOf(world, request.order, orders);
      if (plan.refusals.length > 0) {
        world.recordAudit({
          user,
          action: 'CreateOperation',
          cluster: request.order?.cluster,
          result: AuditResult.REFUSED,
          message: plan.refusals[0]?.message,
        });
        throw new ConnectError('refused', Code.FailedPrecondition, undefined, [
          { desc: RefusalsSchema, value: { refusals: plan.refusals } },
        ]);
      }
      const operation = runner.start(request.order, plan, user);
      world.recordAudit({
        user,
        action: 'CreateOperation',
        cluster: operation.cluster,
        operation: operation.ref,
        detail: plan.command,
        overrides: request.order?.overrides ?? [],
      });
      return { operation };
    },
    setOperationPaused: (request, context) => {
      const user = writer(context);
      world.recordAudit({
        user,
        action: 'SetOperationPaused',
        operation: request.ref,
        detail: request.paused ? 'pause' : 'resume',
      });
      return { operation: runner.pause(refKey(request.ref), request.paused), changed: true };
    },
    retryOperation: (request, context) => {
      const user = writer(context);
      world.recordAudit({ user, action: 'RetryOperation', operation: request.ref });
      return { operation: runner.retry(refKey(request.ref)), changed: true };
    },
    confirmOperation: (request, context) => {
      const user = writer(context);
      const { stage } = request;
      if (world.operations.get(refKey(request.ref))?.awaits !== stage) {
        throw new ConnectError(`stage ${stage} waits for nobody`, Code.FailedPrecondition);
      }
      world.recordAudit({ user, action: 'ConfirmOperation', operation: request.ref, detail: stage });
      return { operation: runner.confirm(refKey(request.ref)), changed: true };
    },
    turnBackOperation: (request, context) => {
      const user = writer(context);
      world.recordAudit({ user, action: 'TurnBackOperation', operation: request.ref });
      return { operation: runner.turnBack(refKey(request.ref)), changed: true };
    },
    deleteOperation: (request, context) => {
      writer(context);
      world.removeOperation(refKey(request.ref));
      return { gone: true };
    },
  });
  router.service(SnapshotService, {
    listSnapshots: (request, context) => {
      who(context);
      const all = request.clusters.flatMap((cluster) => world.snapshotsOf(refKey(cluster)));
      const { items, ...rest } = pageOf(all, request.page);
      return { snapshots: items, ...rest };
    },
    createSnapshot: (request, context) => {
      const user = writer(context);
      const { namespace = '', name = '' } = request.cluster ?? {};
      const ref = { namespace, name: request.name || `${name}-manual-${world.snapshots.size}` };
      const asked = {
        ref,
        cluster: request.cluster,
        reason: SnapshotReason.MANUAL,
        createTime: timestampFromMs(Date.now()),
      };
      const snapshot = world.putSnapshot(asked);
      setTimeout(() => world.putSnapshot({ ...asked, ...stored(Date.now()) }), orders.stepLength);
      world.recordAudit({ user, action: 'CreateSnapshot', cluster: request.cluster, detail: ref.name });
      return { snapshot, changed: true };
    },
  });
  router.service(AuditService, {
    listAudit: (request, context) => {
      who(context);
      const { items, ...rest } = pageOf(
        world.audit.filter((entry) => audited(entry, request.filter)),
        request.page,
      );
      return { entries: items, ...rest };
    },
    async *watchAudit(request, context) {
      who(context);
      for await (const { entry, ...rest } of watch(
        world,
        orders,
        request.resumeToken || String(world.sequence),
        context.signal,
        (each) => each.sort === 'audit',
        () => [],
      )) {
        if (rest.event) {
          yield { ...rest, event: rest.event };
        } else if (entry?.sort === 'audit' && audited(entry.value, request.filter)) {
          yield { ...rest, event: { case: 'entry' as const, value: entry.value } };
        }
      }
    },
  });
}

function audited(
  entry: { user: string; action: string; detail: string; result: AuditResult },
  filter: AuditFilter | undefined,
): boolean {
  const text = `${entry.user} ${entry.action} ${entry.detail}`.toLowerCase();
  return (
    (!filter?.results.length || filter.results.includes(entry.result)) &&
    text.includes((filter?.text ?? '').toLowerCase())
  );
}

type StreamEvent =
  | { case: 'synced'; value: object }
  | { case: 'reset'; value: object }
  | { case: 'heartbeat'; value: object };

async function* watch(
  world: World,
  orders: Orders,
  token: string,
  signal: AbortSignal,
  selects: (entry: Entry) => boolean,
  all: () => Entry[],
): AsyncGenerator<{ entry?: Entry; event?: StreamEvent; resumeToken: string }> {
  let place = Number(token || -1);
  if (world.since(place) === undefined) {
    if (token !== '') {
      yield { event: { case: 'reset', value: {} }, resumeToken: '' };
    }
    place = world.sequence;
    for (const entry of all()) {
      orders.sent++;
      yield { entry, resumeToken: '' };
    }
    yield { event: { case: 'synced', value: {} }, resumeToken: String(place) };
  } else {
    yield { event: { case: 'heartbeat', value: {} }, resumeToken: token };
  }
  while (!signal.aborted) {
    const changes = world.since(place) ?? [];
    place += changes.length;
    for (const entry of changes.filter(selects)) {
      orders.sent++;
      yield { entry, resumeToken: String(place) };
    }
    const before = world.sequence;
    if (before === place) {
      await world.changed(signal, orders.heartbeat);
    }
    if (world.sequence === before && !signal.aborted) {
      yield {
        event: { case: 'heartbeat', value: { serverTime: timestampFromMs(Date.now()) } },
        resumeToken: String(place),
      };
    }
  }
}

function everything(world: World, filter: ClusterFilter | undefined, machines: boolean): Entry[] {
  const clusters = [...world.clusters]
    .filter(([key]) => named(filter, key))
    .map(([key, value]): Entry => ({ sort: 'cluster', key, value }));
  const all = machines
    ? [...world.machines].map(
        ([key, value]): Entry => ({ sort: 'machine', key, value, cluster: refKey(value.cluster) }),
      )
    : [];
  return [...clusters, ...all.filter((entry) => entry.sort === 'machine' && named(filter, entry.cluster))];
}

function refOf(key: string): { namespace: string; name: string } {
  const [namespace = '', name = ''] = key.split('/');
  return { namespace, name };
}

function clusterEvent(entry: Entry | undefined) {
  if (entry?.sort === 'cluster') {
    return entry.value
      ? { case: 'changed' as const, value: entry.value }
      : { case: 'removed' as const, value: refOf(entry.key) };
  }
  if (entry?.sort === 'machine') {
    return entry.value
      ? { case: 'machineChanged' as const, value: entry.value }
      : { case: 'machineRemoved' as const, value: refOf(entry.key) };
  }
  return { case: undefined };
}

function operations(world: World, wanted: (operation: Operation) => boolean): Entry[] {
  return [...world.operations]
    .filter(([, value]) => wanted(value))
    .map(([key, value]) => ({ sort: 'operation', key, value }));
}

function operationEvent(entry: Entry | undefined, wanted: (operation: Operation) => boolean, shown: Set<string>) {
  if (entry?.sort !== 'operation') {
    return undefined;
  }
  if (entry.value && wanted(entry.value)) {
    shown.add(entry.key);
    return { case: 'changed' as const, value: entry.value };
  }
  return { case: 'removed' as const, value: refOf(entry.key) };
}

function selected(operation: Operation, filter: OperationFilter | undefined): boolean {
  if (!filter) {
    return true;
  }
  const text = `${operation.ref?.name} ${operation.cluster?.name} ${operation.createdBy}`.toLowerCase();
  return (
    named(filter, refKey(operation.ref)) &&
    (filter.phases.length === 0 || filter.phases.includes(operation.phase)) &&
    (filter.kinds.length === 0 || filter.kinds.includes(operation.kind)) &&
    (filter.clusters.length === 0 || filter.clusters.some((ref) => refKey(ref) === refKey(operation.cluster))) &&
    text.includes(filter.text.toLowerCase())
  );
}
