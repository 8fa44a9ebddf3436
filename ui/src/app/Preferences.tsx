// SPDX-License-Identifier: Apache-2.0
import { Popover } from '@base-ui/react/popover';
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import { Link } from 'wouter';
import { signOut } from '../api/signin';
import type { Language } from '../i18n';
import { languages } from '../i18n';
import { zoneName } from '../lib/format';
import { Button } from '../parts/Button';
import { Field, Select } from '../parts/Field';
import { useSession } from './hub';
import css from './Preferences.module.css';
import type { Theme } from './settings';
import { choose, useSettings } from './settings';

/** Preferences are how the page looks and speaks, and who uses it. */
export function Preferences({ onKeys }: { onKeys: () => void }) {
  const { t } = useTranslation();
  const { session } = useSession();
  const [open, setOpen] = useState(false);
  return (
    <Popover.Root open={open} onOpenChange={setOpen}>
      <Popover.Trigger
        className={css.trigger}
        aria-label={`${t('prefs.open')}: ${t('prefs.user', { user: session.user })}`}
      >
        <span className={css.user}>{session.user}</span>
        <svg viewBox="0 0 16 16" aria-hidden="true">
          <path d="m3.5 6 4.5 4.5L12.5 6" />
        </svg>
      </Popover.Trigger>
      <Popover.Portal>
        <Popover.Positioner sideOffset={6} align="end" className={css.place}>
          <Popover.Popup className={css.popup} aria-label={t('prefs.open')}>
            <Choices />
            <hr className={css.rule} />
            <Popover.Close className={css.item} onClick={onKeys} render={<Button look="quiet" />}>
              {t('prefs.keys')}
            </Popover.Close>
            <Link href="/session" className={css.item} onClick={() => setOpen(false)}>
              {t('prefs.rights')}
            </Link>
            <Button look="quiet" className={css.item} onClick={() => void signOut()}>
              {t('prefs.signOut')}
            </Button>
          </Popover.Popup>
        </Popover.Positioner>
      </Popover.Portal>
    </Popover.Root>
  );
}

function Choices() {
  const { t } = useTranslation();
  const { theme, language, zone } = useSettings();
  return (
    <>
      <Field label={t('prefs.theme')}>
        {(ids) => (
          <Select {...ids} value={theme} onChange={(event) => choose({ theme: event.target.value as Theme })}>
            <option value="system">{t('prefs.system')}</option>
            <option value="light">{t('prefs.light')}</option>
            <option value="dark">{t('prefs.dark')}</option>
          </Select>
        )}
      </Field>
      <Field label={t('prefs.language')}>
        {(ids) => (
          <Select {...ids} value={language} onChange={(event) => choose({ language: event.target.value as Language })}>
            {Object.entries(languages).map(([tag, name]) => (
              <option key={tag} value={tag} lang={tag}>
                {name}
              </option>
            ))}
          </Select>
        )}
      </Field>
      <Field label={t('prefs.zone')}>
        {(ids) => (
          <Select {...ids} value={zone} onChange={(event) => choose({ zone: event.target.value })}>
            <option value="local">{t('prefs.localZone', { zone: zoneName('local') })}</option>
            <option value="UTC">UTC</option>
            {Intl.supportedValuesOf('timeZone').map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </Select>
        )}
      </Field>
    </>
  );
}
