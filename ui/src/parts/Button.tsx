// SPDX-License-Identifier: Apache-2.0
import { useId } from 'react';
import css from './Button.module.css';

interface Props extends React.ComponentPropsWithRef<'button'> {
  look?: 'plain' | 'primary' | 'danger' | 'quiet';
  /** obstacle is why it cannot be pressed. It keeps its place in the order of the keyboard, so that everybody can learn why. */
  obstacle?: string | undefined;
  /** silent leaves out the words of the obstacle, where they stand elsewhere and describedBy names the place. */
  describedBy?: string | undefined;
}

/** Button is a button. One that cannot be pressed says why. */
export function Button({
  look = 'plain',
  obstacle,
  describedBy,
  className,
  onClick,
  children,
  type = 'button',
  ...rest
}: Props) {
  const id = useId();
  const dead = obstacle !== undefined;
  const described = dead && !describedBy ? id : describedBy;
  return (
    <>
      <button
        {...rest}
        type={type}
        className={[css.button, css[look], className].filter(Boolean).join(' ')}
        aria-disabled={dead || undefined}
        aria-describedby={described}
        title={dead ? obstacle : rest.title}
        onClick={(event) => (dead ? event.preventDefault() : onClick?.(event))}
      >
        {children}
      </button>
      {dead && !describedBy && (
        <span id={id} hidden>
          {obstacle}
        </span>
      )}
    </>
  );
}
