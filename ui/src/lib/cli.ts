// SPDX-License-Identifier: Apache-2.0
import type { Reference } from '../gen/ichor/v1alpha1/types_pb';

type Named = Pick<Reference, 'namespace' | 'name'>;

/** quote makes a word safe for a shell. */
export function quote(word: string): string {
  return /^[A-Za-z0-9@%+=:,./_-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

function line(...words: string[]): string {
  return ['ichor', ...words.map(quote)].join(' ');
}

/** The lines that do what the page does. Retrying is resuming: the command does what the state calls for. */
export const cli = {
  pause: (operation: Named) => line('operation', 'pause', operation.name, '-n', operation.namespace),
  resume: (operation: Named) => line('operation', 'resume', operation.name, '-n', operation.namespace),
  remove: (operation: Named) => line('operation', 'delete', operation.name, '-n', operation.namespace),
  watch: (operation: Named) => line('operation', 'watch', operation.name, '-n', operation.namespace),
  confirm: (operation: Named, stage: string) =>
    line('operation', 'confirm', operation.name, '--stage', stage, '-n', operation.namespace),
  turnBack: (operation: Named) => line('operation', 'turn-back', operation.name, '-n', operation.namespace),
  hold: (cluster: Named, machine: string) =>
    line('machine', 'hold', machine, '--cluster', cluster.name, '-n', cluster.namespace),
  unhold: (cluster: Named, machine: string) =>
    line('machine', 'unhold', machine, '--cluster', cluster.name, '-n', cluster.namespace),
  approve: (cluster: Named, machine: string) =>
    line('machine', 'approve', machine, '--cluster', cluster.name, '-n', cluster.namespace),
  cluster: (cluster: Named) => line('cluster', 'get', cluster.name, '-n', cluster.namespace),
  exportBundle: (cluster: Named) =>
    line('cluster', 'bundle-export', cluster.name, '--file', `${cluster.name}-secrets.yaml`, '-n', cluster.namespace),
  takeSnapshot: (cluster: Named, name: string) =>
    line('snapshot', 'take', '--cluster', cluster.name, ...(name ? ['--name', name] : []), '-n', cluster.namespace),
  audit: () => line('audit', '--follow'),
};
