// SPDX-License-Identifier: Apache-2.0
import { useMemo } from 'react';
import { useTranslation } from 'react-i18next';
import { Link } from 'wouter';
import { useSettings } from '../../app/settings';
import type { FleetCounts, FleetQuery } from '../../lib/fleetquery';
import { countFleet, formatFleetQuery } from '../../lib/fleetquery';
import type { FleetRow } from '../../lib/fleetrow';
import { issues } from '../../lib/fleetrow';
import { formatNumber } from '../../lib/format';
import { marks } from '../../lib/state';
import { Shape } from '../../parts/Mark';
import css from './Summary.module.css';

interface Props {
  rows: readonly FleetRow[];
  synced: boolean;
  query: FleetQuery;
}

/** Summary is the fleet in figures. Each of them leads to the clusters that it counts. */
export function Summary({ rows, synced, query }: Props) {
  const { t } = useTranslation();
  const counts = useMemo(() => countFleet(rows), [rows]);
  const words = [
    t('fleet.clusters', { count: counts.clusters }),
    t('fleet.machines', { ready: counts.ready, count: counts.machines }),
    t('fleet.running', { count: counts.running }),
  ];
  return (
    <section className={css.summary} aria-label={t('fleet.summary')}>
      <div className={css.title}>
        <h1>{t('fleet.title')}</h1>
        <p>{synced ? words.join(' · ') : t('fleet.receiving', { count: rows.length })}</p>
      </div>
      <States counts={counts} query={query} />
      <Share counts={counts} />
      <Issues counts={counts} query={query} />
    </section>
  );
}

type PartProps = { counts: FleetCounts; query: FleetQuery };

/** States are the clusters by state: each is in one of them. */
function States({ counts, query }: PartProps) {
  const { t } = useTranslation();
  const { language } = useSettings();
  const shown = marks.filter((mark) => mark !== 'unknown' || counts.marks.unknown);
  return (
    <ul className={css.states} aria-label={t('fleet.byState')}>
      {shown.map((mark) => {
        const count = counts.marks[mark] ?? 0;
        const here = query.marks.length === 1 && query.marks[0] === mark;
        const to = formatFleetQuery({ ...query, issue: '', marks: here ? [] : [mark] });
        return (
          <li key={mark} className={count === 0 ? css.none : undefined}>
            <Link href={to ? `/?${to}` : '/'} replace className={css.state} aria-current={here || undefined}>
              <Shape mark={mark} />
              <span className={css.count}>{formatNumber(count, language)}</span>
              <span>{t(`mark.${mark}`)}</span>
            </Link>
          </li>
        );
      })}
    </ul>
  );
}

/** Share shows the states in proportion; the figures above say the same in words. */
function Share({ counts }: { counts: FleetCounts }) {
  return (
    <div className={css.share} aria-hidden="true">
      {marks.map((mark) => {
        const count = counts.marks[mark] ?? 0;
        return count > 0 && <span key={mark} className={css[mark]} style={{ flexGrow: count }} />;
      })}
    </div>
  );
}

/** Issues are what is wrong; a cluster can have several. */
function Issues({ counts, query }: PartProps) {
  const { t } = useTranslation();
  const { language } = useSettings();
  const found = issues.filter((issue) => counts.issues[issue] > 0);
  if (found.length === 0) {
    return null;
  }
  return (
    <ul className={css.issues} aria-label={t('fleet.byIssue')}>
      {found.map((issue) => {
        const here = query.issue === issue;
        const to = formatFleetQuery({ ...query, marks: [], issue: here ? '' : issue });
        return (
          <li key={issue}>
            <Link href={to ? `/?${to}` : '/'} replace className={css.issue} aria-current={here || undefined}>
              {t(`issue.${issue}`)} <strong>{formatNumber(counts.issues[issue], language)}</strong>
            </Link>
          </li>
        );
      })}
    </ul>
  );
}
