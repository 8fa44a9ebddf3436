// SPDX-License-Identifier: Apache-2.0
import { useMemo } from 'react';
import { useTranslation } from 'react-i18next';
import { useLocation, useSearch } from 'wouter';
import { useFeed, useRows, useSession } from '../../app/hub';
import { useTitle } from '../../app/Shell';
import type { Operation } from '../../gen/ichor/v1alpha1/operation_pb';
import { OperationPhase } from '../../gen/ichor/v1alpha1/operation_pb';
import type { OperationQuery } from '../../lib/operationquery';
import { filterOperations, formatOperationQuery, parseOperationQuery } from '../../lib/operationquery';
import { openPhases, urgentFirst } from '../../lib/operations';
import { kindKey } from '../../lib/rights';
import { operationFeed } from '../../live/feed';
import { Field, Input, Select } from '../../parts/Field';
import { Page, Quiet, Section } from '../../parts/Section';
import { DoneOperations } from './DoneOperations';
import { OpenOperations } from './OpenOperations';
import css from './Operations.module.css';

/** Operations are those of every cluster: what is not over is live, what is over comes in pages. */
export function Operations() {
  const { t } = useTranslation();
  const [query, setQuery] = useOperationQuery();
  const feed = useFeed('operations', (transport) => operationFeed(transport, { phases: openPhases }));
  const { rows, synced } = useRows(feed);
  const shown = useMemo(() => filterOperations(rows, query).sort(urgentFirst), [rows, query]);
  useTitle(t('operations.title'));
  return (
    <Page>
      <header className={css.head}>
        <h1>{t('operations.title')}</h1>
        {synced && <Quiet>{t('operations.openCount', { count: rows.length })}</Quiet>}
      </header>
      <Toolbar query={query} onQuery={setQuery} />
      <Section title={t('operations.open')} bare={shown.length > 0}>
        <Open shown={shown} all={rows.length} synced={synced} />
      </Section>
      <Section title={t('operations.done')} bare>
        <DoneOperations
          filter={{ phases: [OperationPhase.COMPLETED], kinds: query.kind ? [query.kind] : [], text: query.text }}
          age={rows.map((row) => row.uid).join()}
          empty={t('operations.noDone')}
          withCluster
        />
      </Section>
    </Page>
  );
}

function Open({ shown, all, synced }: { shown: readonly Operation[]; all: number; synced: boolean }) {
  const { t } = useTranslation();
  if (shown.length > 0) {
    return <OpenOperations operations={shown} />;
  }
  if (!synced) {
    return <Quiet>{t('app.loading')}</Quiet>;
  }
  return <Quiet>{t(all === 0 ? 'operations.noOpen' : 'operations.noMatch')}</Quiet>;
}

function Toolbar({ query, onQuery }: { query: OperationQuery; onQuery: (change: Partial<OperationQuery>) => void }) {
  const { t } = useTranslation();
  const { hub } = useSession();
  return (
    <search className={css.toolbar}>
      <Field label={t('fleet.search')}>
        {(ids) => (
          <Input
            {...ids}
            type="search"
            value={query.text}
            onChange={(event) => onQuery({ text: event.target.value })}
          />
        )}
      </Field>
      <Field label={t('operations.kind')}>
        {(ids) => (
          <Select {...ids} value={query.kind} onChange={(event) => onQuery({ kind: Number(event.target.value) })}>
            <option value={0}>{t('operations.anyKind')}</option>
            {hub.kinds.map((kind) => (
              <option key={kind} value={kind}>
                {t(`kind.${kindKey(kind)}`)}
              </option>
            ))}
          </Select>
        )}
      </Field>
    </search>
  );
}

function useOperationQuery(): [OperationQuery, (change: Partial<OperationQuery>) => void] {
  const search = useSearch();
  const [path, go] = useLocation();
  const query = useMemo(() => parseOperationQuery(search), [search]);
  return [
    query,
    (change) => {
      const next = formatOperationQuery({ ...query, ...change });
      go(next ? `${path}?${next}` : path, { replace: true });
    },
  ];
}
