// SPDX-License-Identifier: Apache-2.0

import type { MessageInitShape } from '@bufbuild/protobuf';
import { create } from '@bufbuild/protobuf';
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt';
import type { Cluster, Machine } from '../../src/gen/ichor/v1alpha1/cluster_pb';
import { ClusterSchema, MachineSchema } from '../../src/gen/ichor/v1alpha1/cluster_pb';
import type { AuditEntry } from '../../src/gen/ichor/v1alpha1/hub_pb';
import { AuditEntrySchema, AuditResult } from '../../src/gen/ichor/v1alpha1/hub_pb';
import type { Operation, OperationEvent } from '../../src/gen/ichor/v1alpha1/operation_pb';
import { OperationEventSchema, OperationPhase, OperationSchema } from '../../src/gen/ichor/v1alpha1/operation_pb';
import type { Snapshot } from '../../src/gen/ichor/v1alpha1/snapshot_pb';
import { SnapshotSchema } from '../../src/gen/ichor/v1alpha1/snapshot_pb';
import { Attention } from '../../src/gen/ichor/v1alpha1/types_pb';
import { refKey } from '../../src/lib/refs';

/** Entry is one change of the world: what a key stands for now, undefined if it is gone. */
export type Entry =
  | { sort: 'cluster'; key: string; value: Cluster | undefined }
  | { sort: 'machine'; key: string; value: Machine | undefined; cluster: string }
  | { sort: 'operation'; key: string; value: Operation | undefined }
  | { sort: 'audit'; key: string; value: AuditEntry };

/** Parts are a message and what is to be different about it, which may be plain objects. Types cannot say that. */
type Parts = object;

/** plain makes parts the beginning of another message: a message itself would be taken as it is, with its plain parts. */
function plain(parts: Parts): object {
  return { ...parts, $typeName: undefined };
}

/** World is a fleet in memory that changes on order. It keeps a list of changes, so that watches can go on where they were cut. */
export class World {
  readonly clusters = new Map<string, Cluster>();
  readonly machines = new Map<string, Machine>();
  readonly operations = new Map<string, Operation>();
  readonly snapshots = new Map<string, Snapshot>();
  readonly events = new Map<string, OperationEvent[]>();
  readonly audit: AuditEntry[] = [];
  private log: Entry[] = [];
  private begin = 0;
  private waiting = new Set<() => void>();

  /** sequence is the place of the latest change. */
  get sequence(): number {
    return this.begin + this.log.length;
  }

  /** since are the changes after a place; undefined if they are not kept any more. */
  since(place: number): Entry[] | undefined {
    return place < this.begin || place > this.sequence ? undefined : this.log.slice(place - this.begin);
  }

  /** forget makes tokens that were given out so far too old. */
  forget(): void {
    this.begin = this.sequence + 1;
    this.log = [];
  }

  /** changed waits for another change. */
  changed(signal: AbortSignal, longest: number): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        signal.removeEventListener('abort', done);
        this.waiting.delete(done);
        resolve();
      };
      const timer = setTimeout(done, longest);
      signal.addEventListener('abort', done);
      this.waiting.add(done);
    });
  }

  putCluster(init: Parts): Cluster {
    const cluster = create(ClusterSchema, plain(init));
    const key = refKey(cluster.ref);
    this.clusters.set(key, cluster);
    this.note({ sort: 'cluster', key, value: cluster });
    return cluster;
  }

  putMachine(init: Parts): Machine {
    const machine = create(MachineSchema, plain(init));
    const key = refKey(machine.ref);
    this.machines.set(key, machine);
    this.note({ sort: 'machine', key, value: machine, cluster: refKey(machine.cluster) });
    return machine;
  }

  putOperation(init: Parts): Operation {
    const operation = create(OperationSchema, plain(init));
    const key = refKey(operation.ref);
    this.operations.set(key, operation);
    this.note({ sort: 'operation', key, value: operation });
    this.summarize(refKey(operation.cluster));
    return operation;
  }

  /** putSnapshot has no place in the list of changes: no watch tells of snapshots. */
  putSnapshot(init: Parts): Snapshot {
    const snapshot = create(SnapshotSchema, plain(init));
    this.snapshots.set(refKey(snapshot.ref), snapshot);
    return snapshot;
  }

  snapshotsOf(cluster: string): Snapshot[] {
    const made = (snapshot: Snapshot) => (snapshot.createTime ? timestampMs(snapshot.createTime) : 0);
    return [...this.snapshots.values()]
      .filter((snapshot) => refKey(snapshot.cluster) === cluster)
      .sort((a, b) => made(b) - made(a));
  }

  removeOperation(key: string): void {
    const operation = this.operations.get(key);
    this.operations.delete(key);
    this.note({ sort: 'operation', key, value: undefined });
    this.summarize(refKey(operation?.cluster));
  }

  removeCluster(key: string): void {
    this.clusters.delete(key);
    this.note({ sort: 'cluster', key, value: undefined });
  }

  recordEvent(operation: string, reason: string, message: string, warning = false): void {
    const event = create(OperationEventSchema, {
      time: timestampFromMs(Date.now()),
      reason,
      message,
      warning,
      count: 1,
    });
    this.events.set(operation, [...(this.events.get(operation) ?? []), event]);
  }

  recordAudit(init: MessageInitShape<typeof AuditEntrySchema>): void {
    const id = `a${String(this.audit.length).padStart(6, '0')}`;
    const base = {
      id,
      time: timestampFromMs(Date.now()),
      result: AuditResult.DONE,
      source: '127.0.0.1',
      client: 'page',
    };
    const entry = create(AuditEntrySchema, { ...base, ...init });
    this.audit.unshift(entry);
    this.note({ sort: 'audit', key: id, value: entry });
  }

  machinesOf(cluster: string): Machine[] {
    return [...this.machines.values()].filter((machine) => refKey(machine.cluster) === cluster);
  }

  /** summarize makes a cluster say what its operations do. */
  private summarize(key: string): void {
    const cluster = this.clusters.get(key);
    if (!cluster) {
      return;
    }
    const open = [...this.operations.values()].filter(
      (o) => refKey(o.cluster) === key && o.phase !== OperationPhase.COMPLETED,
    );
    const worst = open.reduce((found, o) => Math.max(found, o.attention), Attention.NONE) as Attention;
    const failing = open.find((o) => o.attention === worst);
    const drifts = cluster.drift.length > 0;
    const holder = open.find((o) => o.lockHeld);
    this.putCluster({
      ...cluster,
      attention: worst > Attention.NONE ? worst : drifts ? Attention.SOON : Attention.NONE,
      attentionReason:
        worst > Attention.NONE
          ? failing?.failureReason || failing?.answer?.why || ''
          : drifts
            ? 'the machines run something else than the spec asks for'
            : '',
      lock: holder && {
        holder: `ichor-controller/op/${refKey(holder.ref)}`,
        operation: holder.ref,
        since: holder.startTime,
      },
      operations: open.map((o) => ({
        ref: o.ref,
        kind: o.kind,
        phase: o.phase,
        stage: o.stage,
        reason: o.answer?.reason ?? '',
        machinesCompleted: o.machinesCompleted,
        machinesTotal: o.machinesTotal,
        startTime: o.startTime,
        attention: o.attention,
      })),
    });
  }

  private note(entry: Entry): void {
    this.log.push(entry);
    for (const wake of [...this.waiting]) {
      wake();
    }
  }
}
