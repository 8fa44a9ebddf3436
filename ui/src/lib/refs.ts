// SPDX-License-Identifier: Apache-2.0
import type { Reference } from '../gen/ichor/v1alpha1/types_pb';

type Named = Pick<Reference, 'namespace' | 'name'>;

/** refKey tells objects of one sort apart. Neither part can hold a slash. */
export function refKey(ref: Named | undefined): string {
  return ref ? `${ref.namespace}/${ref.name}` : '';
}

/** clusterPath and operationPath are the addresses of pages. */
export function clusterPath(ref: Named): string {
  return `/clusters/${encodeURIComponent(ref.namespace)}/${encodeURIComponent(ref.name)}`;
}

export function operationPath(ref: Named): string {
  return `/operations/${encodeURIComponent(ref.namespace)}/${encodeURIComponent(ref.name)}`;
}
