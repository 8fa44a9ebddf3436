// SPDX-License-Identifier: Apache-2.0
import { Dialog as Base } from '@base-ui/react/dialog';
import { useRef } from 'react';
import { useTranslation } from 'react-i18next';
import css from './Dialog.module.css';

interface Props {
  open: boolean;
  onClose: () => void;
  title: string;
  /** wide is for what holds a plan. */
  wide?: boolean;
  children: React.ReactNode;
}

/** What somebody wants to fill in first: of a choice it is what is chosen. */
const firstField = 'input:not([type="radio"]), input:checked, select, textarea';

/** Dialog is a dialog. Its first field has the focus. Escape closes it, and the focus goes back to where it came from. */
export function Dialog({ open, onClose, title, wide, children }: Props) {
  const { t } = useTranslation();
  const body = useRef<HTMLDivElement>(null);
  return (
    <Base.Root open={open} onOpenChange={(next) => !next && onClose()}>
      <Base.Portal>
        <Base.Backdrop className={css.veil} />
        <Base.Popup
          className={`${css.dialog} ${wide ? css.wide : ''}`}
          initialFocus={() => body.current?.querySelector<HTMLElement>(firstField) ?? true}
        >
          <header className={css.head}>
            <Base.Title className={css.title}>{title}</Base.Title>
            <Base.Close className={css.close} aria-label={t('app.close')}>
              <svg viewBox="0 0 16 16" aria-hidden="true">
                <path d="m3 3 10 10M13 3 3 13" />
              </svg>
            </Base.Close>
          </header>
          <div ref={body} className={css.body}>
            {children}
          </div>
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}

/** Buttons are those at the end of a dialog. */
export function Buttons({ children }: { children: React.ReactNode }) {
  return <div className={css.buttons}>{children}</div>;
}
