// SPDX-License-Identifier: Apache-2.0
import type { TFunction } from 'i18next';
import { en } from '../i18n/en';
import { gateWords } from './code';

function isKnown(reason: string): reason is Exclude<keyof typeof en.reason, 'other'> {
  return reason in en.reason && reason !== 'other';
}

/** reasonWords is what the machine-readable reason of an operation means. */
export function reasonWords(t: TFunction, reason: string): string {
  return isKnown(reason) ? t(`reason.${reason}`) : t('reason.other', { reason: gateWords(t, reason) });
}
