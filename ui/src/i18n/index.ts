// SPDX-License-Identifier: Apache-2.0
import i18next from 'i18next';
import { initReactI18next } from 'react-i18next';
import { formatNumber } from '../lib/format';
import { en } from './en';

/** languages are those that the page speaks, by their own names. */
export const languages = { en: 'English', ja: '日本語' } as const;
export type Language = keyof typeof languages;

declare module 'i18next' {
  interface CustomTypeOptions {
    defaultNS: 'translation';
    resources: { translation: typeof en };
  }
}

/** isLanguage says whether the page speaks a language. */
export function isLanguage(name: string): name is Language {
  return name in languages;
}

/** preferredLanguage is the first of the browser's languages that the page speaks. */
export function preferredLanguage(wanted: readonly string[]): Language {
  for (const tag of wanted) {
    const name = tag.split('-')[0] ?? '';
    if (isLanguage(name)) {
      return name;
    }
  }
  return 'en';
}

/** startLanguage makes the texts ready. English is always there; others are fetched when they are wanted. */
export async function startLanguage(language: Language): Promise<void> {
  await i18next.use(initReactI18next).init({
    lng: 'en',
    fallbackLng: 'en',
    resources: { en: { translation: en } },
    interpolation: { escapeValue: false },
  });
  // The usual formatter keeps another one for each pair of values that a text was ever shown with.
  i18next.services.formatter?.add('number', (value: number, locale) => formatNumber(value, locale ?? 'en'));
  await speak(language);
}

/** speak changes the language of the page, and says so to the browser. */
export async function speak(language: Language): Promise<void> {
  if (language === 'ja' && !i18next.hasResourceBundle('ja', 'translation')) {
    const { ja } = await import('./ja');
    i18next.addResourceBundle('ja', 'translation', ja);
  }
  await i18next.changeLanguage(language);
  document.documentElement.lang = language;
}
