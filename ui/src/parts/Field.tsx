// SPDX-License-Identifier: Apache-2.0
import { useId } from 'react';
import css from './Field.module.css';

interface FieldProps {
  label: string;
  help?: React.ReactNode;
  problem?: string | undefined;
  children: (ids: {
    id: string;
    'aria-describedby': string | undefined;
    'aria-invalid': boolean | undefined;
  }) => React.ReactNode;
}

/** Field is a label, a control, and what helps to fill it in. */
export function Field({ label, help, problem, children }: FieldProps) {
  const id = useId();
  const described = [help && `${id}-help`, problem && `${id}-problem`].filter(Boolean).join(' ') || undefined;
  return (
    <div className={css.field}>
      <label htmlFor={id}>{label}</label>
      {children({ id, 'aria-describedby': described, 'aria-invalid': problem ? true : undefined })}
      {problem && (
        <p id={`${id}-problem`} className={css.problem}>
          {problem}
        </p>
      )}
      {help && (
        <p id={`${id}-help`} className={css.help}>
          {help}
        </p>
      )}
    </div>
  );
}

/** Input is a text field. */
export function Input({ className, ...rest }: React.ComponentPropsWithRef<'input'>) {
  return (
    <input
      {...rest}
      className={[css.control, className].filter(Boolean).join(' ')}
      autoComplete="off"
      spellCheck={false}
    />
  );
}

/** Select is the browser's own select: it is the best one on a phone, and the only one that everybody knows. */
export function Select({ className, ...rest }: React.ComponentPropsWithRef<'select'>) {
  return <select {...rest} className={[css.control, css.select, className].filter(Boolean).join(' ')} />;
}
