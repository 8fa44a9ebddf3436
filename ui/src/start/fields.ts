// SPDX-License-Identifier: Apache-2.0
import type { Cluster } from '../gen/ichor/v1alpha1/cluster_pb';
import type { Snapshot } from '../gen/ichor/v1alpha1/snapshot_pb';
import type { MachineRole } from '../gen/ichor/v1alpha1/types_pb';
import type { Draft } from '../lib/orders';

/** FieldsProps are what the fields of every kind get. */
export interface FieldsProps {
  cluster: Cluster;
  /** role is that of the machine that the draft is about, if it is about one. */
  role: MachineRole | undefined;
  /** snapshot is the one that the draft goes back to, if it does. */
  snapshot: Snapshot | undefined;
  draft: Draft;
  change: (change: Partial<Draft>) => void;
  /** problem is what is wrong with a field, in words. */
  problem: (field: keyof Draft) => string | undefined;
}
