// SPDX-License-Identifier: Apache-2.0
import type { Transport } from '@connectrpc/connect';
import { createContext, use, useEffect, useMemo, useSyncExternalStore } from 'react';
import type { GetHubResponse, GetSessionResponse } from '../gen/ichor/v1alpha1/hub_pb';
import type { FleetRow } from '../lib/fleetrow';
import type { Rights } from '../lib/rights';
import { rightsIn } from '../lib/rights';
import type { Store } from '../lib/store';
import { StreamBoard } from '../live/board';
import type { Feed } from '../live/feed';
import { fleetFeed } from '../live/feed';
import type { StreamStatus } from '../live/follow';
import type { Snapshot } from '../live/livemap';

/** Hub is what every page works with: the way to the hub, its fleet, and how the watches are doing. */
export interface Hub {
  transport: Transport;
  fleet: Feed<FleetRow>;
  board: StreamBoard;
}

/** connectHub makes a Hub. Nothing is asked before its fleet is started. */
export function connectHub(transport: Transport): Hub {
  return { transport, fleet: fleetFeed(transport), board: new StreamBoard() };
}

export const HubContext = createContext<Hub | undefined>(undefined);

/** useHub is the hub of the page. */
export function useHub(): Hub {
  const hub = use(HubContext);
  if (!hub) {
    throw new Error('there is no HubContext around');
  }
  return hub;
}

/** Session is who uses the page, and of which hub. */
export interface Session {
  hub: GetHubResponse;
  session: GetSessionResponse;
}

export const SessionContext = createContext<Session | undefined>(undefined);

/** useSession is the session of the page. */
export function useSession(): Session {
  const session = use(SessionContext);
  if (!session) {
    throw new Error('there is no SessionContext around');
  }
  return session;
}

/** useRights are what the user may do in a namespace. */
export function useRights(namespace: string): Rights {
  const { session } = useSession();
  return useMemo(() => rightsIn(session.rights, namespace), [session, namespace]);
}

/** useFeed makes a feed for as long as a component is shown with the same key. */
export function useFeed<Row>(key: string, make: (transport: Transport) => Feed<Row>): Feed<Row> {
  const { transport, board } = useHub();
  // biome-ignore lint/correctness/useExhaustiveDependencies: the key says when another feed is wanted.
  const feed = useMemo(() => make(transport), [transport, key]);
  useEffect(() => {
    const stop = feed.start();
    const leave = board.add(feed.status);
    return () => {
      leave();
      stop();
    };
  }, [feed, board]);
  return feed;
}

/** useStore is the value that a store has now. */
export function useStore<Value>(store: Store<Value>): Value {
  return useSyncExternalStore(store.subscribe, store.get);
}

/** useRows is what a feed has brought so far. */
export function useRows<Row>(feed: Feed<Row>): Snapshot<Row> {
  return useSyncExternalStore(feed.map.subscribe, feed.map.snapshot);
}

/** useStatus is how a feed is doing. */
export function useStatus(feed: { status: Store<StreamStatus> }): StreamStatus {
  return useStore(feed.status);
}
