// SPDX-License-Identifier: Apache-2.0
import { useId } from 'react';
import css from './Choice.module.css';

/** Option is one of a choice, and what it means. */
export interface Option<Value extends string> {
  value: Value;
  label: string;
  help?: string | undefined;
}

interface Props<Value extends string> {
  label: string;
  value: Value;
  options: readonly Option<Value>[];
  onChange: (value: Value) => void;
  problem?: string | undefined;
}

/** Choice is one of a few, all of them in sight: what each of them does matters more than the room that it takes. */
export function Choice<Value extends string>({ label, value, options, onChange, problem }: Props<Value>) {
  const id = useId();
  return (
    <fieldset className={css.choice} aria-describedby={problem && `${id}-problem`}>
      <legend>{label}</legend>
      {options.map((option) => (
        <label key={option.value} className={css.option}>
          <input
            type="radio"
            name={id}
            checked={option.value === value}
            aria-invalid={problem ? true : undefined}
            onChange={() => onChange(option.value)}
          />
          <span>
            {option.label} {option.help && <span className={css.help}>{option.help}</span>}
          </span>
        </label>
      ))}
      {problem && (
        <p id={`${id}-problem`} className={css.problem}>
          {problem}
        </p>
      )}
    </fieldset>
  );
}
