// SPDX-License-Identifier: Apache-2.0
import { useMemo, useState } from 'react';
import { useTranslation } from 'react-i18next';
import type { FleetQuery, Line, SortKey } from '../../lib/fleetquery';
import { groupLines } from '../../lib/fleetquery';
import type { FleetRow } from '../../lib/fleetrow';
import { Quiet } from '../../parts/Section';
import { VirtualGrid } from '../../parts/VirtualGrid';
import { GroupLine, RowLine } from './FleetLines';
import css from './FleetTable.module.css';

interface Props {
  rows: readonly FleetRow[];
  query: FleetQuery;
  onQuery: (change: Partial<FleetQuery>) => void;
}

const columns: readonly {
  sort?: SortKey;
  title: 'state' | 'name' | 'talos' | 'kubernetes' | 'machineColumn' | 'lock' | 'operation';
}[] = [
  { sort: 'state', title: 'state' },
  { sort: 'name', title: 'name' },
  { sort: 'talos', title: 'talos' },
  { sort: 'kubernetes', title: 'kubernetes' },
  { sort: 'machines', title: 'machineColumn' },
  { title: 'lock' },
  { sort: 'operation', title: 'operation' },
];

const keyOf = (line: Line) => line.key;

/** FleetTable is every cluster that the query selects, in lines of which the browser holds only those to be seen. */
export function FleetTable({ rows, query, onQuery }: Props) {
  const { t } = useTranslation();
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const lines = useMemo(() => groupLines(rows, query.group, closed), [rows, query.group, closed]);
  const toggle = (group: string) => {
    const next = new Set(closed);
    if (!next.delete(group)) {
      next.add(group);
    }
    setClosed(next);
  };
  if (rows.length === 0) {
    return <Quiet>{t('fleet.nothing')}</Quiet>;
  }
  return (
    <VirtualGrid
      label={t('fleet.all')}
      lines={lines}
      keyOf={keyOf}
      height={36}
      phoneHeight={72}
      className={css.table}
      head={<Head query={query} onQuery={onQuery} />}
      columns={columns.length}
      line={(line, active) =>
        'row' in line ? (
          <RowLine row={line.row} active={active} />
        ) : (
          <GroupLine
            group={line.group}
            active={active}
            closed={closed.has(line.group.group)}
            onToggle={() => toggle(line.group.group)}
          />
        )
      }
    />
  );
}

function Head({ query, onQuery }: Omit<Props, 'rows'>) {
  const { t } = useTranslation();
  return (
    <div role="row" aria-rowindex={1} className={`${css.head} ${css.columns}`}>
      {columns.map(({ sort, title }) => {
        const here = sort !== undefined && sort === query.sort;
        return (
          <div
            key={title}
            role="columnheader"
            aria-sort={here ? (query.descending ? 'descending' : 'ascending') : undefined}
          >
            {sort ? (
              <button
                type="button"
                className={css.sort}
                onClick={() => onQuery({ sort, descending: here && !query.descending })}
              >
                {t(`fleet.${title}`)}
                {here && (
                  <svg viewBox="0 0 16 16" aria-hidden="true">
                    <path d={query.descending ? 'M3 5h10L8 12z' : 'M3 11h10L8 4z'} />
                  </svg>
                )}
              </button>
            ) : (
              t(`fleet.${title}`)
            )}
          </div>
        );
      })}
    </div>
  );
}
