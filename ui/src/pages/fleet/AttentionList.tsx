// SPDX-License-Identifier: Apache-2.0
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { useMemo } from 'react';
import { useTranslation } from 'react-i18next';
import { Link } from 'wouter';
import { attentionRows } from '../../lib/fleetquery';
import type { FleetRow } from '../../lib/fleetrow';
import { clusterPath, operationPath } from '../../lib/refs';
import { urgent } from '../../lib/state';
import { Mark } from '../../parts/Mark';
import { Quiet, Section } from '../../parts/Section';
import { When } from '../../parts/When';
import css from './AttentionList.module.css';

/** So many are shown; the others are a link away. */
const limit = 6;

/** AttentionList is what needs somebody, the most urgent first. */
export function AttentionList({ rows }: { rows: readonly FleetRow[] }) {
  const { t } = useTranslation();
  const first = useMemo(() => attentionRows(rows, limit), [rows]);
  const count = useMemo(() => rows.filter((row) => urgent.includes(row.mark)).length, [rows]);
  const all = count > limit && (
    <Link href={`/?state=${urgent.join(',')}&sort=-state`}>{t('fleet.showAll', { count })}</Link>
  );
  return (
    <Section title={t('fleet.attention')} aside={all} bare>
      {first.length === 0 ? (
        <Quiet>{t('fleet.allCalm')}</Quiet>
      ) : (
        <ul className={css.list}>
          {first.map((row) => (
            <Item key={row.key} row={row} />
          ))}
        </ul>
      )}
    </Section>
  );
}

function Item({ row }: { row: FleetRow }) {
  const { operation } = row;
  return (
    <li className={css.item}>
      <Mark mark={row.mark} />
      <span className={css.name}>
        <Link href={clusterPath(row)}>{row.name}</Link> <span className={css.namespace}>{row.namespace}</span>
      </span>
      <span className={css.reason} lang="en">
        {row.reason}
      </span>
      {operation ? (
        <Link className={css.operation} href={operationPath(operation)}>
          {operation.name}
        </Link>
      ) : (
        row.since > 0 && (
          <span className={css.since}>
            <When time={timestampFromMs(row.since)} />
          </span>
        )
      )}
    </li>
  );
}
