// SPDX-License-Identifier: Apache-2.0
import { useCallback, useMemo } from 'react';
import { useTranslation } from 'react-i18next';
import { useLocation, useSearch } from 'wouter';
import { useHub, useRows } from '../../app/hub';
import { useTitle } from '../../app/Shell';
import type { FleetQuery } from '../../lib/fleetquery';
import { filterRows, formatFleetQuery, labelKeys, parseFleetQuery, sortRows } from '../../lib/fleetquery';
import { Page, Quiet, Section } from '../../parts/Section';
import { AttentionList } from './AttentionList';
import { FleetTable } from './FleetTable';
import { Summary } from './Summary';
import { Toolbar } from './Toolbar';

/** Fleet is the start page: what needs attention first, then every cluster. */
export function Fleet() {
  const { t } = useTranslation();
  const { fleet } = useHub();
  const { rows, synced } = useRows(fleet);
  const [query, setQuery] = useFleetQuery();
  const { text, marks, issue, sort, descending } = query;
  // What is shown depends on these parts alone; the grouping is the table's.
  // biome-ignore lint/correctness/useExhaustiveDependencies: query is another object at every render.
  const shown = useMemo(
    () => sortRows(filterRows(rows, query), sort, descending),
    [rows, text, marks.join(), issue, sort, descending],
  );
  const keys = useMemo(() => labelKeys(rows), [rows]);
  useTitle(t('fleet.title'));

  if (synced && rows.length === 0) {
    return (
      <Page>
        <h1>{t('fleet.title')}</h1>
        <Quiet>{t('fleet.empty')}</Quiet>
        <Quiet>{t('fleet.emptyHelp')}</Quiet>
      </Page>
    );
  }
  return (
    <Page>
      <Summary rows={rows} synced={synced} query={query} />
      <AttentionList rows={rows} />
      <Section
        title={t('fleet.all')}
        aside={<Quiet>{t('fleet.shown', { shown: shown.length, count: rows.length })}</Quiet>}
        bare
      >
        <Toolbar query={query} onQuery={setQuery} keys={keys} />
        <FleetTable rows={shown} query={query} onQuery={setQuery} />
      </Section>
    </Page>
  );
}

/** useFleetQuery keeps what is shown in the address. */
function useFleetQuery(): [FleetQuery, (change: Partial<FleetQuery>) => void] {
  const search = useSearch();
  const [path, go] = useLocation();
  const query = useMemo(() => parseFleetQuery(search), [search]);
  const change = useCallback(
    (part: Partial<FleetQuery>) => {
      const next = formatFleetQuery({ ...query, ...part });
      go(next ? `${path}?${next}` : path, { replace: true });
    },
    [query, path, go],
  );
  return [query, change];
}
