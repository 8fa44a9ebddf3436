// SPDX-License-Identifier: Apache-2.0
import { useSyncExternalStore } from 'react';
import { Store } from '../lib/store';

/** Ticker tells the time in steps. It runs only while somebody looks. */
class Ticker {
  private readonly store = new Store(Date.now());
  private watchers = 0;
  private timer: ReturnType<typeof setInterval> | undefined;

  constructor(private readonly interval: number) {}

  readonly get = () => this.store.get();

  readonly subscribe = (listener: () => void) => {
    if (this.watchers++ === 0) {
      this.store.set(Date.now());
      this.timer = setInterval(() => this.store.set(Date.now()), this.interval);
    }
    const stop = this.store.subscribe(listener);
    return () => {
      stop();
      if (--this.watchers === 0) {
        clearInterval(this.timer);
      }
    };
  };
}

const tickers = { 1000: new Ticker(1_000), 10000: new Ticker(10_000) };

/** useNow is the time, as often as it is wanted. */
export function useNow(interval: keyof typeof tickers): number {
  return useSyncExternalStore(tickers[interval].subscribe, tickers[interval].get);
}
