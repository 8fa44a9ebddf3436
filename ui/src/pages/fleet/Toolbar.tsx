// SPDX-License-Identifier: Apache-2.0
import { useEffect, useRef, useState } from 'react';
import { useTranslation } from 'react-i18next';
import type { FleetQuery, SortKey } from '../../lib/fleetquery';
import { sortKeys } from '../../lib/fleetquery';
import type { Mark } from '../../lib/state';
import { marks, urgent } from '../../lib/state';
import { Button } from '../../parts/Button';
import { Field, Input, Select } from '../../parts/Field';
import css from './Toolbar.module.css';

interface Props {
  query: FleetQuery;
  onQuery: (change: Partial<FleetQuery>) => void;
  keys: readonly string[];
}

/** Toolbar is what selects, groups and orders the clusters. */
export function Toolbar({ query, onQuery, keys }: Props) {
  const { t } = useTranslation();
  const filtered = query.text !== '' || query.marks.length > 0 || query.issue !== '';
  return (
    <search className={css.toolbar}>
      <SearchField text={query.text} onText={(text) => onQuery({ text })} />
      <StateField query={query} onQuery={onQuery} />
      <Field label={t('fleet.group')}>
        {(ids) => (
          <Select {...ids} value={query.group} onChange={(event) => onQuery({ group: event.target.value })}>
            <option value="">{t('fleet.noGroup')}</option>
            <option value="namespace">{t('fleet.namespace')}</option>
            {keys.map((key) => (
              <option key={key} value={key}>
                {key}
              </option>
            ))}
          </Select>
        )}
      </Field>
      <SortField query={query} onQuery={onQuery} />
      {filtered && <Button onClick={() => onQuery({ text: '', marks: [], issue: '' })}>{t('fleet.clear')}</Button>}
    </search>
  );
}

/** Typing waits this long before the address changes. */
const pause = 150;

function SearchField({ text, onText }: { text: string; onText: (text: string) => void }) {
  const { t } = useTranslation();
  const [typed, setTyped] = useState(text);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  // Somebody else changed the address: a link, the button that clears it, the way back.
  useEffect(() => setTyped(text), [text]);
  const type = (next: string) => {
    setTyped(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onText(next.trim()), pause);
  };
  return (
    <Field label={t('fleet.search')}>
      {(ids) => (
        <Input
          {...ids}
          type="search"
          placeholder={t('fleet.searchHint')}
          value={typed}
          onChange={(event) => type(event.target.value)}
        />
      )}
    </Field>
  );
}

function StateField({ query, onQuery }: Omit<Props, 'keys'>) {
  const { t } = useTranslation();
  const all = urgent.join(',');
  const value = query.issue ? `issue:${query.issue}` : query.marks.join(',');
  const known = value === '' || value === all || marks.includes(value as Mark) || query.issue !== '';
  const choose = (next: string) =>
    onQuery({ issue: '', marks: marks.filter((mark) => next.split(',').includes(mark)) });
  return (
    <Field label={t('fleet.state')}>
      {(ids) => (
        <Select {...ids} value={value} onChange={(event) => choose(event.target.value)}>
          <option value="">{t('fleet.anyState')}</option>
          <option value={all}>{t('fleet.needsAttention')}</option>
          {marks.map((mark) => (
            <option key={mark} value={mark}>
              {t(`mark.${mark}`)}
            </option>
          ))}
          {query.issue && <option value={value}>{t(`issue.${query.issue}`)}</option>}
          {!known && <option value={value}>{query.marks.map((mark) => t(`mark.${mark}`)).join(', ')}</option>}
        </Select>
      )}
    </Field>
  );
}

/** SortField is for the phone, where the table has no head to press. */
function SortField({ query, onQuery }: Omit<Props, 'keys'>) {
  const { t } = useTranslation();
  const names: Record<SortKey, string> = {
    name: t('fleet.name'),
    state: t('fleet.state'),
    talos: t('fleet.talos'),
    kubernetes: t('fleet.kubernetes'),
    machines: t('fleet.machineColumn'),
    operation: t('fleet.operation'),
  };
  return (
    <div className={css.sort}>
      <Field label={t('fleet.sort')}>
        {(ids) => (
          <Select {...ids} value={query.sort} onChange={(event) => onQuery({ sort: event.target.value as SortKey })}>
            {sortKeys.map((key) => (
              <option key={key} value={key}>
                {names[key]}
              </option>
            ))}
          </Select>
        )}
      </Field>
      <label className={css.descending}>
        <input
          type="checkbox"
          checked={query.descending}
          onChange={(event) => onQuery({ descending: event.target.checked })}
        />
        {t('fleet.descending')}
      </label>
    </div>
  );
}
