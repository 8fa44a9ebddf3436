// SPDX-License-Identifier: Apache-2.0
import type { TFunction } from 'i18next';
import type { Condition } from '../gen/ichor/v1alpha1/types_pb';
import { en } from '../i18n/en';

type Words = keyof typeof en.conditionWords;

/** conditionWords are what a condition says where the hub says nothing but its reason; undefined if the page has no words for it. */
export function conditionWords(t: TFunction, { type, reason }: Pick<Condition, 'type' | 'reason'>): string | undefined {
  const key = [`${type}/${reason}`, reason].find((each): each is Words => each in en.conditionWords);
  return key && t(`conditionWords.${key}`);
}
