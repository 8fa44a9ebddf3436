// SPDX-License-Identifier: Apache-2.0

/** Snapshot is what a LiveMap holds at one moment. It never changes: another one takes its place. */
export interface Snapshot<Row> {
  rows: readonly Row[];
  /** synced says that everything there was has been received once. */
  synced: boolean;
}

/** Change is what has become of one row since the last snapshot. Either side is undefined where there was, or is, none. */
export interface Change<Row> {
  before: Row | undefined;
  after: Row | undefined;
}

type Timer = (run: () => void, delay: number) => void;

/**
 * LiveMap holds the rows of a watch. Changes are gathered and shown together, so that a thousand of them a second cost as much as ten. A reset does
 * not empty it: what the server does not send again goes when it says that it has sent everything.
 */
export class LiveMap<Row> {
  private readonly rows = new Map<string, Row>();
  private readonly listeners = new Set<() => void>();
  private readonly watchers = new Set<(changes: readonly Change<Row>[]) => void>();
  private pending = new Map<string, Change<Row>>();
  private unseen: Set<string> | undefined;
  private scheduled = false;
  private synced = false;
  private current: Snapshot<Row> = { rows: [], synced: false };

  constructor(
    private readonly delay = 100,
    private readonly timer: Timer = (run, delay) => setTimeout(run, delay),
  ) {}

  /** changed puts a row in. */
  changed(key: string, row: Row): void {
    this.note(key, row);
    this.rows.set(key, row);
    this.unseen?.delete(key);
  }

  /** removed takes a row out. */
  removed(key: string): void {
    if (this.rows.has(key)) {
      this.note(key, undefined);
      this.rows.delete(key);
    }
    this.unseen?.delete(key);
  }

  /** reset begins to receive everything again. */
  reset(): void {
    this.unseen = new Set(this.rows.keys());
  }

  /** sync ends what reset, or the first connection, began. */
  sync(): void {
    for (const key of this.unseen ?? []) {
      this.note(key, undefined);
      this.rows.delete(key);
    }
    this.unseen = undefined;
    if (!this.synced) {
      this.synced = true;
      this.schedule();
    }
  }

  /** snapshot is what there is to show. */
  readonly snapshot = (): Snapshot<Row> => this.current;

  /** subscribe calls a listener whenever there is another snapshot. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** watch tells what changed, but not what there was when the watch began. */
  watch(watcher: (changes: readonly Change<Row>[]) => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  private note(key: string, after: Row | undefined): void {
    const pending = this.pending.get(key);
    this.pending.set(key, { before: pending ? pending.before : this.rows.get(key), after });
    this.schedule();
  }

  private schedule(): void {
    if (!this.scheduled) {
      this.scheduled = true;
      this.timer(this.flush, this.delay);
    }
  }

  private readonly flush = (): void => {
    this.scheduled = false;
    const known = this.current.synced;
    const changes = [...this.pending.values()];
    this.pending = new Map();
    this.current = { rows: [...this.rows.values()], synced: this.synced };
    if (known) {
      for (const watcher of this.watchers) {
        watcher(changes);
      }
    }
    for (const listener of this.listeners) {
      listener();
    }
  };
}
