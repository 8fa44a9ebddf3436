// SPDX-License-Identifier: Apache-2.0
import { useInfiniteQuery } from '@connectrpc/connect-query';
import { useMemo } from 'react';
import { useTranslation } from 'react-i18next';
import { useLocation, useSearch } from 'wouter';
import { useFeed, useRows } from '../../app/hub';
import { useTitle } from '../../app/Shell';
import type { AuditEntry } from '../../gen/ichor/v1alpha1/hub_pb';
import { AuditService } from '../../gen/ichor/v1alpha1/hub_pb';
import type { AuditQuery } from '../../lib/auditquery';
import { auditFilter, auditResults, formatAuditQuery, joinEntries, parseAuditQuery } from '../../lib/auditquery';
import { cli } from '../../lib/cli';
import { auditFeed } from '../../live/feed';
import { Button } from '../../parts/Button';
import { Command } from '../../parts/Command';
import { CallFailure, MissingParts } from '../../parts/Failure';
import { Field, Input, Select } from '../../parts/Field';
import { Page, Quiet } from '../../parts/Section';
import css from './Audit.module.css';
import { AuditTable } from './AuditTable';

const pageSize = 50;

/** Audit is who did what. Followed, it shows new entries as they come. */
export function Audit() {
  const { t } = useTranslation();
  const [query, setQuery] = useAuditQuery();
  const filter = useMemo(() => auditFilter(query), [query]);
  const list = useInfiniteQuery(
    AuditService.method.listAudit,
    { filter, page: { size: pageSize, token: '' } },
    {
      pageParamKey: 'page',
      getNextPageParam: (last) => (last.nextPageToken ? { size: pageSize, token: last.nextPageToken } : undefined),
    },
  );
  useTitle(t('audit.title'));
  const entries = (list.data?.pages ?? []).flatMap((page) => page.entries);
  return (
    <Page>
      <h1>{t('audit.title')}</h1>
      <Toolbar query={query} onQuery={setQuery} />
      {list.error && <CallFailure error={list.error} />}
      <MissingParts failures={list.data?.pages[0]?.failures ?? []} />
      {query.follow ? (
        <Followed key={formatAuditQuery(query)} query={query} entries={entries} />
      ) : (
        <Entries entries={entries} pending={list.isPending} />
      )}
      {list.hasNextPage && (
        <div className={css.more}>
          <Button onClick={() => void list.fetchNextPage()}>{t('app.more')}</Button>
        </div>
      )}
      <Command line={cli.audit()} label={t('start.commandHelp')} />
    </Page>
  );
}

function Entries({ entries, pending }: { entries: readonly AuditEntry[]; pending: boolean }) {
  const { t } = useTranslation();
  return entries.length > 0 ? (
    <AuditTable entries={entries} />
  ) : (
    <Quiet>{t(pending ? 'app.loading' : 'audit.nothing')}</Quiet>
  );
}

/** Followed puts what a watch brings on top of what was read. */
function Followed({ query, entries }: { query: AuditQuery; entries: readonly AuditEntry[] }) {
  const feed = useFeed(`audit ${formatAuditQuery(query)}`, (transport) => auditFeed(transport, auditFilter(query)));
  const { rows } = useRows(feed);
  const all = useMemo(() => joinEntries(rows, entries), [rows, entries]);
  return <Entries entries={all} pending={false} />;
}

function Toolbar({ query, onQuery }: { query: AuditQuery; onQuery: (change: Partial<AuditQuery>) => void }) {
  const { t } = useTranslation();
  return (
    <search className={css.toolbar}>
      <Field label={t('audit.search')}>
        {(ids) => (
          <Input
            {...ids}
            type="search"
            value={query.text}
            onChange={(event) => onQuery({ text: event.target.value })}
          />
        )}
      </Field>
      <Field label={t('audit.result')}>
        {(ids) => (
          <Select
            {...ids}
            value={query.result}
            onChange={(event) => onQuery({ result: event.target.value as AuditQuery['result'] })}
          >
            <option value="">{t('audit.anyResult')}</option>
            {auditResults.map((result) => (
              <option key={result} value={result}>
                {t(`audit.${result}`)}
              </option>
            ))}
          </Select>
        )}
      </Field>
      <label className={css.follow}>
        <input type="checkbox" checked={query.follow} onChange={(event) => onQuery({ follow: event.target.checked })} />
        {t('audit.follow')}
      </label>
      {query.follow && <Quiet>{t('audit.following')}</Quiet>}
    </search>
  );
}

function useAuditQuery(): [AuditQuery, (change: Partial<AuditQuery>) => void] {
  const search = useSearch();
  const [path, go] = useLocation();
  const query = useMemo(() => parseAuditQuery(search), [search]);
  return [
    query,
    (change) => {
      const next = formatAuditQuery({ ...query, ...change });
      go(next ? `${path}?${next}` : path, { replace: true });
    },
  ];
}
