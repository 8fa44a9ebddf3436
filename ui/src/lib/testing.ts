// SPDX-License-Identifier: Apache-2.0
import type { FleetRow } from './fleetrow';

/** aRow is a row of a cluster that is in order, but for what is said; for tests. */
export function aRow(name: string, part: Partial<FleetRow> = {}): FleetRow {
  return {
    key: `ns/${name}`,
    namespace: 'ns',
    name,
    labels: {},
    attention: 1,
    mark: 'ok',
    reason: '',
    since: 0,
    issues: [],
    talos: 'v1.13.2',
    talosHighest: 'v1.13.2',
    talosWanted: '',
    kubernetes: 'v1.35.1',
    kubernetesHighest: 'v1.35.1',
    kubernetesWanted: '',
    machines: 3,
    ready: 3,
    pending: 0,
    held: 0,
    holder: '',
    operation: undefined,
    running: 0,
    unfinished: 0,
    text: name,
    ...part,
  };
}
