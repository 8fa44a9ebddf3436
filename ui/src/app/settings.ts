// SPDX-License-Identifier: Apache-2.0
import { useSyncExternalStore } from 'react';
import type { Language } from '../i18n';
import { isLanguage, preferredLanguage, speak } from '../i18n';
import { Store } from '../lib/store';

export type Theme = 'system' | 'light' | 'dark';

/** Settings are what a person chooses for this browser. */
export interface Settings {
  theme: Theme;
  language: Language;
  zone: string;
}

const storageKey = 'ichor.settings';

/** knownZone says whether the browser knows a time zone: a stored one may be of another browser. */
function knownZone(zone: unknown): zone is string {
  if (zone === 'local') {
    return true;
  }
  try {
    return typeof zone === 'string' && Intl.DateTimeFormat('en', { timeZone: zone }) !== undefined;
  } catch {
    return false;
  }
}

/** readSettings reads what is stored, and what is usual for the rest. */
export function readSettings(stored: string | null, browserLanguages: readonly string[]): Settings {
  let found: Partial<Record<keyof Settings, unknown>> = {};
  try {
    found = JSON.parse(stored ?? '{}') ?? {};
  } catch {
    // What cannot be read is as good as nothing.
  }
  const { theme, language, zone } = found;
  return {
    theme: theme === 'light' || theme === 'dark' ? theme : 'system',
    language: typeof language === 'string' && isLanguage(language) ? language : preferredLanguage(browserLanguages),
    zone: knownZone(zone) ? zone : 'local',
  };
}

function load(): string | null {
  try {
    return localStorage.getItem(storageKey);
  } catch {
    return null;
  }
}

export const settings = new Store<Settings>(readSettings(load(), navigator.languages));

const dark = window.matchMedia('(prefers-color-scheme: dark)');

function applyTheme(): void {
  const { theme } = settings.get();
  document.documentElement.dataset.theme = theme === 'system' ? (dark.matches ? 'dark' : 'light') : theme;
}

/** applySettings makes the page look as it was chosen, now and whenever the system changes. */
export function applySettings(): void {
  applyTheme();
  dark.addEventListener('change', applyTheme);
}

/** choose changes some settings and keeps them. */
export function choose(change: Partial<Settings>): void {
  settings.set({ ...settings.get(), ...change });
  try {
    localStorage.setItem(storageKey, JSON.stringify(settings.get()));
  } catch {
    // A browser that keeps nothing forgets them with the page.
  }
  applyTheme();
  if (change.language) {
    void speak(change.language);
  }
}

/** useSettings are the settings of now. */
export function useSettings(): Settings {
  return useSyncExternalStore(settings.subscribe, settings.get);
}
