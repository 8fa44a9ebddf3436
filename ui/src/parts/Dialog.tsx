// SPDX-License-Identifier: Apache-2.0
import { Dialog as Base } from '@base-ui/react/dialog';
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

/** Dialog is a dialog. Escape closes it, and the focus goes back to where it came from. */
export function Dialog({ open, onClose, title, wide, children }: Props) {
  const { t } = useTranslation();
  return (
    <Base.Root open={open} onOpenChange={(next) => !next && onClose()}>
      <Base.Portal>
        <Base.Backdrop className={css.veil} />
        <Base.Popup className={`${css.dialog} ${wide ? css.wide : ''}`}>
          <header className={css.head}>
            <Base.Title className={css.title}>{title}</Base.Title>
            <Base.Close className={css.close} aria-label={t('app.close')}>
              <svg viewBox="0 0 16 16" aria-hidden="true">
                <path d="m3 3 10 10M13 3 3 13" />
              </svg>
            </Base.Close>
          </header>
          <div className={css.body}>{children}</div>
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}

/** Buttons are those at the end of a dialog. */
export function Buttons({ children }: { children: React.ReactNode }) {
  return <div className={css.buttons}>{children}</div>;
}
