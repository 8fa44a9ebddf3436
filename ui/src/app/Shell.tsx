// SPDX-License-Identifier: Apache-2.0
import { useEffect, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { Link, useLocation } from 'wouter';
import { attentionRows } from '../lib/fleetquery';
import { Announcer } from '../parts/announce';
import { useHub, useRows, useSession } from './hub';
import { KeyList, useKeys } from './Keys';
import { useMilestones } from './milestones';
import { Preferences } from './Preferences';
import css from './Shell.module.css';
import { StreamBanner, StreamState } from './Stream';

const pages = [
  { path: '/', name: 'fleet' },
  { path: '/operations', name: 'operations' },
  { path: '/audit', name: 'audit' },
] as const;

/** Shell is what stands around every page. */
export function Shell({ children }: { children: React.ReactNode }) {
  const { t } = useTranslation();
  const { hub } = useSession();
  const [keys, showKeys] = useState(false);
  useKeys(() => showKeys(true));
  useMilestones();
  return (
    <>
      <a className={css.skip} href="#content">
        {t('app.skip')}
      </a>
      <header className={css.bar}>
        <Link href="/" className={css.hub}>
          <svg viewBox="0 0 16 16" aria-hidden="true">
            <path d="M8 1 14.1 4.5v7L8 15l-6.1-3.5v-7z" />
          </svg>
          {hub.name || 'Ichor hub'}
        </Link>
        <Navigation />
        <div className={css.end}>
          <StreamState />
          <Preferences onKeys={() => showKeys(true)} />
        </div>
      </header>
      <StreamBanner />
      <main id="content" className={css.content} tabIndex={-1}>
        {children}
      </main>
      <Announcer />
      <KeyList open={keys} onClose={() => showKeys(false)} />
    </>
  );
}

function Navigation() {
  const { t } = useTranslation();
  const [path] = useLocation();
  return (
    <nav className={css.pages} aria-label={t('app.pages')}>
      {pages.map((page) => {
        const here = page.path === '/' ? path === '/' || path.startsWith('/clusters/') : path.startsWith(page.path);
        return (
          <Link key={page.path} href={page.path} className={css.page} aria-current={here ? 'page' : undefined}>
            {t(`app.${page.name}`)}
          </Link>
        );
      })}
    </nav>
  );
}

/** useTitle names the page in the browser's tab, with how many clusters need attention. */
export function useTitle(page: string): void {
  const { t } = useTranslation();
  const { hub } = useSession();
  const { fleet } = useHub();
  const { rows } = useRows(fleet);
  const count = attentionRows(rows, Number.POSITIVE_INFINITY).filter((row) => row.mark !== 'soon').length;
  const name = hub.name || 'Ichor hub';
  useEffect(() => {
    document.title =
      count > 0 ? t('app.titleAttention', { page, hub: name, count }) : t('app.title', { page, hub: name });
  }, [page, name, count, t]);
}
