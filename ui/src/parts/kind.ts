// SPDX-License-Identifier: Apache-2.0
import type { TFunction } from 'i18next';
import type { OperationKind } from '../gen/ichor/v1alpha1/operation_pb';
import { en } from '../i18n/en';
import { kindKey } from '../lib/rights';

function isAction(action: string): action is keyof typeof en.action {
  return action in en.action;
}

/** kindWords are what an operation does: its action if it has one, its kind otherwise. A hub can know more than the page. */
export function kindWords(t: TFunction, kind: OperationKind, action: string): string {
  return isAction(action) ? t(`action.${action}`) : t(`kind.${kindKey(kind)}`);
}
