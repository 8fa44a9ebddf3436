// SPDX-License-Identifier: Apache-2.0
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import { Button } from './Button';
import css from './Command.module.css';

/** Command is a command line to copy. */
export function Command({ line, label }: { line: string; label?: string }) {
  const { t } = useTranslation();
  const [copied, setCopied] = useState(false);
  const copy = () => navigator.clipboard?.writeText(line).then(() => setCopied(true));
  return (
    <div className={css.command}>
      {label && <span className={css.label}>{label}</span>}
      <code className={css.line}>{line}</code>
      <Button look="quiet" onClick={copy} onBlur={() => setCopied(false)} aria-label={`${t('app.copy')}: ${line}`}>
        <span aria-live="polite">{copied ? t('app.copied') : t('app.copy')}</span>
      </Button>
    </div>
  );
}
