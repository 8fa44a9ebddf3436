// SPDX-License-Identifier: Apache-2.0

import type { Operation } from '../gen/ichor/v1alpha1/operation_pb';
import { OperationKind } from '../gen/ichor/v1alpha1/operation_pb';
import { kindNames } from './rights';

/** OperationQuery is what the page of operations shows; it is in the address. */
export interface OperationQuery {
  text: string;
  kind: OperationKind;
}

/** parseOperationQuery reads an address. */
export function parseOperationQuery(search: string): OperationQuery {
  const params = new URLSearchParams(search);
  const name = params.get('kind') ?? '';
  const kind = Object.entries(kindNames).find(([, each]) => each !== '' && each === name);
  return { text: params.get('q') ?? '', kind: kind ? (Number(kind[0]) as OperationKind) : OperationKind.UNSPECIFIED };
}

/** formatOperationQuery writes an address: the inverse of parseOperationQuery. */
export function formatOperationQuery(query: OperationQuery): string {
  const params = new URLSearchParams();
  if (query.text !== '') {
    params.set('q', query.text);
  }
  if (query.kind !== OperationKind.UNSPECIFIED) {
    params.set('kind', kindNames[query.kind]);
  }
  return params.toString();
}

/** filterOperations are the operations that a query selects, as another array. */
export function filterOperations(operations: readonly Operation[], query: OperationQuery): Operation[] {
  const words = query.text.toLowerCase().split(/\s+/).filter(Boolean);
  return operations.filter((operation) => {
    if (query.kind !== OperationKind.UNSPECIFIED && operation.kind !== query.kind) {
      return false;
    }
    const { answer } = operation;
    const parts = [
      operation.ref?.name,
      operation.cluster?.name,
      operation.ref?.namespace,
      operation.createdBy,
      answer?.doing,
      answer?.why,
    ];
    const text = parts.join('\n').toLowerCase();
    return words.every((word) => text.includes(word));
  });
}
