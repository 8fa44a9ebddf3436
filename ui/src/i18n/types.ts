// SPDX-License-Identifier: Apache-2.0
import type { en } from './en';

/**
 * Messages is what a language has to say: every text of the source. A language without a singular leaves out the texts that end with _one, as the
 * plural rules of ICU have it.
 */
export type Messages<T = typeof en> = {
  [K in keyof T as K extends `${string}_one` ? never : K]: T[K] extends string ? string : Messages<T[K]>;
} & {
  [K in keyof T as K extends `${string}_one` ? K : never]?: string;
};
