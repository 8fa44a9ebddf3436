// SPDX-License-Identifier: Apache-2.0
import { Store } from '../lib/store';
import type { StreamStatus } from './follow';

const order: readonly StreamStatus['state'][] = ['ended', 'stale', 'connecting', 'live'];

/** worst is the status that the page as a whole has: a part that is stale makes it so. */
export function worst(statuses: readonly StreamStatus[]): StreamStatus {
  const none: StreamStatus = { state: 'connecting', since: 0 };
  return statuses.reduce(
    (found, each) => (order.indexOf(each.state) < order.indexOf(found.state) ? each : found),
    statuses[0] ?? none,
  );
}

/** StreamBoard gathers how the watches of the page are doing. */
export class StreamBoard {
  readonly status = new Store<StreamStatus>(worst([]));
  private readonly feeds = new Set<Store<StreamStatus>>();

  /** add takes a watch on, and returns what takes it off. */
  add(status: Store<StreamStatus>): () => void {
    this.feeds.add(status);
    const stop = status.subscribe(this.tell);
    this.tell();
    return () => {
      stop();
      this.feeds.delete(status);
      this.tell();
    };
  }

  private readonly tell = (): void => this.status.set(worst([...this.feeds].map((feed) => feed.get())));
}
