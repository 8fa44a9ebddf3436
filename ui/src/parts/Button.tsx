// SPDX-License-Identifier: Apache-2.0
import { useId, useState } from 'react';
import css from './Button.module.css';

interface Props extends React.ComponentPropsWithRef<'button'> {
  look?: 'plain' | 'primary' | 'danger' | 'quiet';
  /** obstacle is why it cannot be pressed. It keeps its place in the order of the keyboard, so that everybody can learn why. */
  obstacle?: string | undefined;
  /** describedBy is where the words of the obstacle stand, if that is not beside the button. */
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
  const [told, tell] = useState(false);
  const dead = obstacle !== undefined;
  const alone = dead && !describedBy;
  return (
    <>
      <button
        {...rest}
        type={type}
        className={[css.button, css[look], className].filter(Boolean).join(' ')}
        aria-disabled={dead || undefined}
        aria-describedby={alone ? id : describedBy}
        title={dead ? obstacle : rest.title}
        onClick={(event) => {
          if (dead) {
            event.preventDefault();
            tell(true);
          } else {
            onClick?.(event);
          }
        }}
        onBlur={(event) => {
          tell(false);
          rest.onBlur?.(event);
        }}
      >
        {children}
      </button>
      {alone && (
        // There is no pointer that rests on a button of a phone: who presses it wants to know, too.
        <span id={id} role="status" className={css.obstacle} hidden={!told}>
          {obstacle}
        </span>
      )}
    </>
  );
}
