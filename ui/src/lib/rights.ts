// SPDX-License-Identifier: Apache-2.0
import type { NamespaceRights } from '../gen/ichor/v1alpha1/hub_pb';
import { OperationKind } from '../gen/ichor/v1alpha1/operation_pb';

/** Rights are what the user may do in one namespace. */
export interface Rights {
  read: boolean;
  operate: boolean;
  start: ReadonlySet<string>;
  override: boolean;
  machines: boolean;
  clusters: boolean;
}

/** rightsIn joins the rights in a namespace with those in every one. */
export function rightsIn(all: readonly NamespaceRights[], namespace: string): Rights {
  const some = all.filter((rights) => rights.namespace === '' || rights.namespace === namespace);
  return {
    read: some.some((r) => r.read),
    operate: some.some((r) => r.operate),
    start: new Set(some.flatMap((r) => r.start)),
    override: some.some((r) => r.override),
    machines: some.some((r) => r.machines),
    clusters: some.some((r) => r.clusters),
  };
}

/** anyRight says whether somebody may do anything in a namespace. */
export function anyRight(r: NamespaceRights): boolean {
  return r.read || r.operate || r.override || r.machines || r.clusters || r.start.length > 0;
}

/** KindName is the name of a kind in objects and on the command line. */
export type KindName =
  | 'talos'
  | 'kubernetes'
  | 'ichor'
  | 'cni'
  | 'config'
  | 'node'
  | 'shutdown'
  | 'ca-rotation'
  | 'key-rotation'
  | 'etcd-restore';

/** kindNames are the names of all kinds. */
export const kindNames: Record<OperationKind, KindName | ''> = {
  [OperationKind.UNSPECIFIED]: '',
  [OperationKind.TALOS]: 'talos',
  [OperationKind.KUBERNETES]: 'kubernetes',
  [OperationKind.ICHOR]: 'ichor',
  [OperationKind.CNI]: 'cni',
  [OperationKind.CONFIG]: 'config',
  [OperationKind.NODE]: 'node',
  [OperationKind.SHUTDOWN]: 'shutdown',
  [OperationKind.CA_ROTATION]: 'ca-rotation',
  [OperationKind.KEY_ROTATION]: 'key-rotation',
  [OperationKind.ETCD_RESTORE]: 'etcd-restore',
};

/** kindKey is the name of a kind among the texts of the page; a hub that is newer than the page may know others. */
export function kindKey(kind: OperationKind): KindName | 'unknown' {
  return kindNames[kind] || 'unknown';
}

/** startVerb is the name below talosoperations that the right to start is asked for. Actions on one machine have one each. */
export function startVerb(kind: OperationKind, action = ''): string {
  const dashed = action.replace(/(?<=.)[A-Z]/g, '-$&').toLowerCase();
  return kind === OperationKind.NODE ? `node-${dashed}` : kindNames[kind];
}
