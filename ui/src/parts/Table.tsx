// SPDX-License-Identifier: Apache-2.0
import css from './Table.module.css';

/** Column is a column of a table. */
export interface Column<Row> {
  title: string;
  cell: (row: Row) => React.ReactNode;
  /** grow lets the column have the room that is left. */
  grow?: boolean;
  /** hidden titles are read, but not shown: for columns of buttons. */
  hidden?: boolean;
}

interface Props<Row> {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
}

/**
 * Table is a table of some dozens of rows. On a phone each row becomes a small list; the roles are written out because browsers forget those of tables
 * that are laid out otherwise.
 */
export function Table<Row>({ label, columns, rows, keyOf }: Props<Row>) {
  return (
    <div className={css.frame}>
      {/* biome-ignore-start lint/a11y/noRedundantRoles: the layout of the phone takes them away. */}
      <table className={css.table} role="table" aria-label={label}>
        <thead role="rowgroup">
          <tr role="row">
            {columns.map((column) => (
              <th key={column.title} role="columnheader" scope="col" className={column.grow ? css.grow : undefined}>
                <span className={column.hidden ? 'visually-hidden' : undefined}>{column.title}</span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {rows.map((row) => (
            <tr key={keyOf(row)} role="row">
              {columns.map((column) => (
                <td key={column.title} role="cell" data-label={column.hidden ? undefined : column.title}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {/* biome-ignore-end lint/a11y/noRedundantRoles: see above. */}
    </div>
  );
}
