// SPDX-License-Identifier: Apache-2.0
import { memo } from 'react';
import { useTranslation } from 'react-i18next';
import { Link } from 'wouter';
import type { GroupLine as Group } from '../../lib/fleetquery';
import type { FleetRow, RowOperation } from '../../lib/fleetrow';
import { clusterPath, operationPath } from '../../lib/refs';
import { kindKey } from '../../lib/rights';
import { marks } from '../../lib/state';
import { stageWords } from '../../parts/code';
import { Mark, Shape } from '../../parts/Mark';
import { Progress } from '../../parts/Progress';
import css from './FleetTable.module.css';

/** RowLine is a cluster. It is drawn again only if its row is another one. */
export const RowLine = memo(function RowLine({ row, active }: { row: FleetRow; active: boolean }) {
  return (
    <>
      <div role="gridcell" className={css.state}>
        <Mark mark={row.mark} />
      </div>
      <div role="gridcell" className={css.name}>
        <Link href={clusterPath(row)} tabIndex={active ? 0 : -1} data-line>
          {row.name}
        </Link>
        <span className={css.quiet}>{row.namespace}</span>
      </div>
      <div role="gridcell" className={css.talos}>
        <Versions name="Talos" lowest={row.talos} highest={row.talosHighest} wanted={row.talosWanted} />
      </div>
      <div role="gridcell" className={css.kubernetes}>
        <Versions name="K8s" lowest={row.kubernetes} highest={row.kubernetesHighest} wanted={row.kubernetesWanted} />
      </div>
      <div role="gridcell" className={css.machines}>
        <Machines row={row} />
      </div>
      <div role="gridcell" className={css.lock}>
        <Holder row={row} />
      </div>
      <div role="gridcell" className={css.operation}>
        {row.operation ? <Operation operation={row.operation} others={row.unfinished - 1} /> : <Reason row={row} />}
      </div>
    </>
  );
});

function Versions({
  name,
  lowest,
  highest,
  wanted,
}: {
  name: string;
  lowest: string;
  highest: string;
  wanted: string;
}) {
  const { t } = useTranslation();
  const mixed = highest !== '' && highest !== lowest;
  return (
    <>
      <span className={css.phoneLabel}>{name} </span>
      {mixed ? t('fleet.versions', { lowest, highest }) : lowest}
      {wanted !== '' && wanted !== highest && (
        <span className={css.wanted}>{t('fleet.wanted', { version: wanted })}</span>
      )}
    </>
  );
}

function Machines({ row }: { row: FleetRow }) {
  const { t } = useTranslation();
  return (
    <>
      <span aria-hidden="true">{t('fleet.ready', { ready: row.ready, count: row.machines })}</span>
      <span className="visually-hidden">{t('fleet.readyLong', { ready: row.ready, count: row.machines })}</span>
      {row.pending > 0 && <span className={css.note}>{t('fleet.pending', { count: row.pending })}</span>}
      {row.held > 0 && <span className={css.note}>{t('fleet.held', { count: row.held })}</span>}
    </>
  );
}

/** Holder is who holds the lock; where it is the operation beside it, saying so once is enough. */
function Holder({ row }: { row: FleetRow }) {
  const { t } = useTranslation();
  if (row.holder === '') {
    return <span className={css.quiet}>{t('fleet.free')}</span>;
  }
  return <span title={row.holder}>{row.holder}</span>;
}

function Operation({ operation, others }: { operation: RowOperation; others: number }) {
  const { t } = useTranslation();
  const progress = t('fleet.progress', { done: operation.completed, count: operation.total });
  return (
    <>
      <Shape mark={operation.mark} />
      <Link href={operationPath(operation)} tabIndex={-1}>
        {t(`kind.${kindKey(operation.kind)}`)}
      </Link>
      <Progress done={operation.completed} total={operation.total} mark={operation.mark} label={progress} />
      <span className={css.quiet} aria-hidden="true">
        {operation.completed}/{operation.total}
      </span>
      <span className={css.quiet}>{stageWords(t, operation.stage)}</span>
      {others > 0 && (
        <span className={css.quiet} title={t('fleet.more', { count: others })}>
          <span aria-hidden="true">+{others}</span>
          <span className="visually-hidden">{t('fleet.more', { count: others })}</span>
        </span>
      )}
    </>
  );
}

function Reason({ row }: { row: FleetRow }) {
  return (
    <span className={css.reason} lang="en" title={row.reason}>
      {row.reason}
    </span>
  );
}

interface GroupProps {
  group: Group;
  active: boolean;
  closed: boolean;
  onToggle: () => void;
}

/** GroupLine begins a group, and closes and opens it. */
export function GroupLine({ group, active, closed, onToggle }: GroupProps) {
  const { t } = useTranslation();
  return (
    <div role="gridcell" aria-colspan={7} className={css.group}>
      <button type="button" data-line tabIndex={active ? 0 : -1} aria-expanded={!closed} onClick={onToggle}>
        <svg viewBox="0 0 16 16" aria-hidden="true">
          <path d={closed ? 'm6 3 5 5-5 5' : 'm3 6 5 5 5-5'} />
        </svg>
        {group.group || t('fleet.withoutLabel')}
      </button>
      <span className={css.quiet}>{t('fleet.groupClusters', { count: group.rows })}</span>
      {marks.map((mark) => {
        const count = group.counts[mark];
        return (
          count !== undefined &&
          mark !== 'ok' && (
            <Mark key={mark} mark={mark}>
              {count} <span className={css.wide}>{t(`mark.${mark}`)}</span>
            </Mark>
          )
        );
      })}
    </div>
  );
}
