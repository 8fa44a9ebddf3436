// SPDX-License-Identifier: Apache-2.0
import { Code, ConnectError } from '@connectrpc/connect';
import type { PartlyDone, Refusal } from '../gen/ichor/v1alpha1/operation_pb';
import { PartlyDoneSchema, RefusalsSchema } from '../gen/ichor/v1alpha1/operation_pb';

/** ProblemKind is which words introduce what the hub said. */
export type ProblemKind =
  | 'denied'
  | 'refused'
  | 'conflict'
  | 'unreachable'
  | 'missing'
  | 'signedOut'
  | 'invalid'
  | 'failed';

/** Failed is a call that failed, as people need to see it. */
export interface Failed {
  kind: ProblemKind;
  message: string;
  refusals: Refusal[];
  partlyDone: PartlyDone | undefined;
}

const kinds: Partial<Record<Code, ProblemKind>> = {
  [Code.PermissionDenied]: 'denied',
  [Code.FailedPrecondition]: 'refused',
  [Code.Aborted]: 'conflict',
  [Code.AlreadyExists]: 'conflict',
  [Code.Unavailable]: 'unreachable',
  [Code.DeadlineExceeded]: 'unreachable',
  [Code.Unknown]: 'unreachable',
  [Code.NotFound]: 'missing',
  [Code.Unauthenticated]: 'signedOut',
  [Code.InvalidArgument]: 'invalid',
};

/** failedCall reads an error of a call. */
export function failedCall(thrown: unknown): Failed {
  const error = ConnectError.from(thrown);
  return {
    kind: kinds[error.code] ?? 'failed',
    message: error.rawMessage,
    refusals: error.findDetails(RefusalsSchema).flatMap((details) => details.refusals),
    partlyDone: error.findDetails(PartlyDoneSchema)[0],
  };
}

/** isAway says whether a call failed because the hub did not answer, or knows nothing yet: the same call may go through later. */
export function isAway(thrown: unknown): boolean {
  return failedCall(thrown).kind === 'unreachable';
}
