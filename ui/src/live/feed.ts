// SPDX-License-Identifier: Apache-2.0
import type { MessageInitShape } from '@bufbuild/protobuf';
import type { Transport } from '@connectrpc/connect';
import { createClient } from '@connectrpc/connect';
import type { Cluster, ClusterFilterSchema, Machine } from '../gen/ichor/v1alpha1/cluster_pb';
import { ClusterService } from '../gen/ichor/v1alpha1/cluster_pb';
import type { AuditEntry, AuditFilterSchema } from '../gen/ichor/v1alpha1/hub_pb';
import { AuditService } from '../gen/ichor/v1alpha1/hub_pb';
import type { Operation, OperationFilterSchema } from '../gen/ichor/v1alpha1/operation_pb';
import { OperationService } from '../gen/ichor/v1alpha1/operation_pb';
import type { FleetRow } from '../lib/fleetrow';
import { fleetRow } from '../lib/fleetrow';
import { refKey } from '../lib/refs';
import { Store } from '../lib/store';
import type { StreamStatus } from './follow';
import { follow } from './follow';
import { LiveMap } from './livemap';

/** Feed is a watch, what it has brought so far, and how it is doing. */
export class Feed<Row> {
  readonly map: LiveMap<Row>;
  readonly status = new Store<StreamStatus>({ state: 'connecting', since: 0 });

  constructor(
    private readonly begin: (feed: Feed<Row>) => () => void,
    delay = 100,
  ) {
    this.map = new LiveMap<Row>(delay);
  }

  /** start opens the watch and returns what ends it. */
  start(): () => void {
    return this.begin(this);
  }

  /** hooks are what every feed does alike with what it follows. */
  readonly hooks = {
    reset: () => this.map.reset(),
    synced: () => this.map.sync(),
    status: (status: StreamStatus) => this.status.set(status),
  };
}

/** Ten thousand rows are some milliseconds of work each time that they are shown anew. */
const fleetDelay = 250;

/** fleetFeed watches every cluster, and keeps a row of each. */
export function fleetFeed(transport: Transport): Feed<FleetRow> {
  const client = createClient(ClusterService, transport);
  return new Feed<FleetRow>(
    (feed) =>
      follow({
        ...feed.hooks,
        open: (resumeToken, signal) => client.watchClusters({ resumeToken }, { signal }),
        event: ({ event }) => {
          if (event.case === 'changed') {
            feed.map.changed(refKey(event.value.ref), fleetRow(event.value));
          } else if (event.case === 'removed') {
            feed.map.removed(refKey(event.value));
          }
        },
      }),
    fleetDelay,
  );
}

/** ClusterPart is a cluster, or one of its machines. */
export type ClusterPart = { cluster: Cluster } | { machine: Machine };

/** clusterFeed watches one cluster and its machines. */
export function clusterFeed(
  transport: Transport,
  filter: MessageInitShape<typeof ClusterFilterSchema>,
): Feed<ClusterPart> {
  const client = createClient(ClusterService, transport);
  return new Feed<ClusterPart>((feed) =>
    follow({
      ...feed.hooks,
      open: (resumeToken, signal) => client.watchClusters({ filter, machines: true, resumeToken }, { signal }),
      event: ({ event }) => {
        switch (event.case) {
          case 'changed':
            return feed.map.changed('cluster', { cluster: event.value });
          case 'removed':
            return feed.map.removed('cluster');
          case 'machineChanged':
            return feed.map.changed(refKey(event.value.ref), { machine: event.value });
          case 'machineRemoved':
            return feed.map.removed(refKey(event.value));
        }
      },
    }),
  );
}

/** operationFeed watches operations. */
export function operationFeed(
  transport: Transport,
  filter: MessageInitShape<typeof OperationFilterSchema>,
): Feed<Operation> {
  const client = createClient(OperationService, transport);
  return new Feed<Operation>((feed) =>
    follow({
      ...feed.hooks,
      open: (resumeToken, signal) => client.watchOperations({ filter, resumeToken }, { signal }),
      event: ({ event }) => {
        if (event.case === 'changed') {
          feed.map.changed(refKey(event.value.ref), event.value);
        } else if (event.case === 'removed') {
          feed.map.removed(refKey(event.value));
        }
      },
    }),
  );
}

/** auditFeed watches what people do. */
export function auditFeed(transport: Transport, filter: MessageInitShape<typeof AuditFilterSchema>): Feed<AuditEntry> {
  const client = createClient(AuditService, transport);
  return new Feed<AuditEntry>((feed) =>
    follow({
      ...feed.hooks,
      open: (resumeToken, signal) => client.watchAudit({ filter, resumeToken }, { signal }),
      event: ({ event }) => {
        if (event.case === 'entry') {
          feed.map.changed(event.value.id, event.value);
        }
      },
    }),
  );
}
