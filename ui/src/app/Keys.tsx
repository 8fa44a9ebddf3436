// SPDX-License-Identifier: Apache-2.0
import { useEffect, useRef } from 'react';
import { useTranslation } from 'react-i18next';
import { useLocation } from 'wouter';
import { Dialog } from '../parts/Dialog';
import css from './Keys.module.css';

const pages: Record<string, string> = { f: '/', o: '/operations', a: '/audit' };

/** writing says whether keys belong to a field, or to a dialog. */
function writing(target: EventTarget | null): boolean {
  return (
    target instanceof Element && target.closest('input, select, textarea, [role="dialog"], [role="menu"]') !== null
  );
}

/** useKeys takes the keys that work everywhere. None of them does anything but go somewhere. */
export function useKeys(help: () => void): void {
  const [, go] = useLocation();
  const before = useRef('');
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || writing(event.target)) {
        before.current = '';
        return;
      }
      const page = before.current === 'g' ? pages[event.key] : undefined;
      before.current = event.key;
      if (page) {
        go(page);
      } else if (event.key === '?') {
        help();
      } else if (event.key === '/') {
        const field = document.querySelector<HTMLInputElement>('input[type="search"]');
        field?.focus();
        field?.select();
      } else {
        return;
      }
      event.preventDefault();
    };
    window.addEventListener('keydown', press);
    return () => window.removeEventListener('keydown', press);
  }, [go, help]);
}

const list = [
  [['/'], 'search'],
  [['g', 'f'], 'fleet'],
  [['g', 'o'], 'operations'],
  [['g', 'a'], 'audit'],
  [['↑', '↓', 'Home', 'End'], 'move'],
  [['Enter'], 'open'],
  [['?'], 'help'],
] as const;

/** KeyList is the list of keys. */
export function KeyList({ open, onClose }: { open: boolean; onClose: () => void }) {
  const { t } = useTranslation();
  return (
    <Dialog open={open} onClose={onClose} title={t('keys.title')}>
      <dl className={css.keys}>
        {list.map(([keys, does]) => (
          <div key={does}>
            <dt>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{t(`keys.${does}`)}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
