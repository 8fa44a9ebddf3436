// SPDX-License-Identifier: Apache-2.0
import { Code, ConnectError } from '@connectrpc/connect';
import { describe, expect, it, vi } from 'vitest';
import { Store } from '../lib/store';
import { StreamBoard } from './board';
import type { Clock, StreamStatus } from './follow';
import { follow, silence } from './follow';
import { LiveMap } from './livemap';

describe('LiveMap', () => {
  function map() {
    const timers: (() => void)[] = [];
    const live = new LiveMap<string>(100, (run) => timers.push(run));
    return {
      live,
      flush: () => {
        for (const run of timers.splice(0)) {
          run();
        }
      },
      timers,
    };
  }

  it('shows many changes at once', () => {
    const { live, flush, timers } = map();
    const heard = vi.fn();
    live.subscribe(heard);
    for (let i = 0; i < 1_000; i++) {
      live.changed(`k${i % 10}`, String(i));
    }
    expect(live.snapshot().rows).toEqual([]);
    expect(timers).toHaveLength(1);
    flush();
    expect(live.snapshot().rows).toHaveLength(10);
    expect(heard).toHaveBeenCalledTimes(1);
  });

  it('keeps rows over a reset, and drops what is not sent again', () => {
    const { live, flush } = map();
    live.changed('a', '1');
    live.changed('b', '1');
    live.sync();
    flush();
    live.reset();
    live.changed('b', '2');
    flush();
    expect(live.snapshot().rows).toEqual(['1', '2']);
    live.sync();
    flush();
    expect(live.snapshot().rows).toEqual(['2']);
  });

  it('tells what changed since the last time, but not what there was at first', () => {
    const { live, flush } = map();
    const changes = vi.fn();
    live.watch(changes);
    live.changed('a', '1');
    live.sync();
    flush();
    expect(changes).not.toHaveBeenCalled();
    live.changed('a', '2');
    live.changed('a', '3');
    live.removed('x');
    flush();
    expect(changes).toHaveBeenCalledExactlyOnceWith([{ before: '1', after: '3' }]);
    live.removed('a');
    flush();
    expect(changes).toHaveBeenLastCalledWith([{ before: '3', after: undefined }]);
  });
});

interface Said {
  event: { case?: string; value?: unknown };
  resumeToken: string;
}

/** A clock on which time passes when the test says so. */
function fakeClock() {
  const waits = new Set<{ at: number; run: () => void }>();
  const wakers = new Set<() => void>();
  let now = 0;
  const clock: Clock = {
    now: () => now,
    breathe: () => undefined,
    after: (delay, run) => {
      const wait = { at: now + delay, run };
      waits.add(wait);
      return () => waits.delete(wait);
    },
    woken: (run) => {
      wakers.add(run);
      return () => wakers.delete(run);
    },
  };
  const pass = async (time: number) => {
    now += time;
    for (const wait of [...waits].filter((each) => each.at <= now)) {
      waits.delete(wait);
      wait.run();
    }
    await settle();
  };
  return {
    clock,
    pass,
    wake: () => {
      for (const run of [...wakers]) {
        run();
      }
    },
    waits,
  };
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

/** A server of which the test decides what each stream says. */
function fakeServer() {
  const tokens: string[] = [];
  let say: (said: Said | Error | 'end') => void = () => undefined;
  async function* open(token: string, signal: AbortSignal): AsyncGenerator<Said> {
    tokens.push(token);
    const queue: (Said | Error | 'end')[] = [];
    let wake = () => {};
    say = (said) => {
      queue.push(said);
      wake();
    };
    signal.addEventListener('abort', () => say(new ConnectError('cut', Code.Canceled)));
    for (;;) {
      const next = queue.shift();
      if (next === undefined) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      } else if (next === 'end') {
        return;
      } else if (next instanceof Error) {
        throw next;
      } else {
        yield next;
      }
    }
  }
  return {
    open,
    tokens,
    say: (said: Said | Error | 'end') => {
      say(said);
      return settle();
    },
  };
}

function start() {
  const { clock, ...time } = fakeClock();
  const server = fakeServer();
  const log: string[] = [];
  const statuses: StreamStatus[] = [];
  const stop = follow<Said>({
    open: server.open,
    event: (message) => log.push(String(message.event.value)),
    reset: () => log.push('reset'),
    synced: () => log.push('synced'),
    status: (status) => statuses.push(status),
    clock,
  });
  const states = () => statuses.map((status) => status.state);
  return { ...time, server, log, statuses, states, stop };
}

const change = (value: string, resumeToken = '') => ({ event: { case: 'changed', value }, resumeToken });
const synced = (resumeToken: string) => ({ event: { case: 'synced' }, resumeToken });

describe('follow', () => {
  it('goes on after the last token, without sending anything again', async () => {
    const { server, log, states, pass } = start();
    await server.say(change('a'));
    await server.say(synced('7'));
    await server.say(change('b', '8'));
    await server.say(new ConnectError('away', Code.Unavailable));
    await pass(1_000);
    await server.say({ event: { case: 'heartbeat' }, resumeToken: '8' });
    expect(server.tokens).toEqual(['', '8']);
    expect(log).toEqual(['a', 'synced', 'b']);
    await pass(5_000);
    expect(states()).toEqual(['connecting', 'live']);
  });

  it('calls it an outage when the hub stays away, since it was last heard of', async () => {
    const { server, statuses, pass } = start();
    await pass(700);
    await server.say(synced('1'));
    await pass(300);
    await server.say(new ConnectError('away', Code.Unavailable));
    await pass(1_000);
    await server.say(new ConnectError('still away', Code.Unavailable));
    expect(statuses.at(-1)?.state).toBe('live');
    await pass(1_000);
    expect(statuses.at(-1)).toEqual({ state: 'stale', since: 700, error: 'still away', code: Code.Unavailable });
  });

  it('says so when it never hears of the hub', async () => {
    const { server, statuses, pass } = start();
    await server.say(new ConnectError('away', Code.Unavailable));
    await pass(2_000);
    expect(statuses.at(-1)).toMatchObject({ state: 'stale', error: 'away' });
  });

  it('begins anew when it was cut before there was a token', async () => {
    const { server, log, pass } = start();
    await server.say(change('a'));
    await server.say('end');
    await pass(1_000);
    await server.say(change('a'));
    await server.say(synced('1'));
    expect(server.tokens).toEqual(['', '']);
    expect(log).toEqual(['a', 'reset', 'a', 'synced']);
  });

  it('passes a reset of the server on', async () => {
    const { server, log } = start();
    await server.say({ event: { case: 'reset' }, resumeToken: '' });
    expect(log).toEqual(['reset']);
  });

  it('cuts a stream that says nothing', async () => {
    const { server, states, pass } = start();
    await server.say(synced('1'));
    await pass(silence - 1);
    expect(states().at(-1)).toBe('live');
    await pass(1);
    await pass(1_000);
    expect(server.tokens).toEqual(['', '1']);
    await pass(1_000);
    expect(states().at(-1)).toBe('stale');
  });

  it('waits longer each time, and not at all when the network is back', async () => {
    const { server, pass, wake } = start();
    for (let i = 0; i < 8; i++) {
      await server.say(new ConnectError('away', Code.Unavailable));
      await pass(20_000);
    }
    expect(server.tokens).toHaveLength(9);
    await server.say(new ConnectError('away', Code.Unavailable));
    await pass(5_000);
    expect(server.tokens).toHaveLength(9);
    wake();
    await settle();
    expect(server.tokens).toHaveLength(10);
  });

  it.each([Code.Unauthenticated, Code.PermissionDenied])('does not ask again what has one answer: %s', async (code) => {
    const { server, statuses, pass } = start();
    await server.say(new ConnectError('no', code));
    await pass(60_000);
    expect(statuses.at(-1)).toMatchObject({ state: 'ended', code, error: 'no' });
    expect(server.tokens).toHaveLength(1);
  });

  it('is over when it is stopped', async () => {
    const { server, stop, states, waits, pass } = start();
    await server.say(synced('1'));
    const before = states().length;
    stop();
    await settle();
    await pass(60_000);
    expect(server.tokens).toHaveLength(1);
    expect(states()).toHaveLength(before);
    expect(waits.size).toBe(0);
  });
});

it('calls the page stale if a part of it is', () => {
  const board = new StreamBoard();
  const one = new Store<StreamStatus>({ state: 'live', since: 1 });
  const two = new Store<StreamStatus>({ state: 'live', since: 1 });
  board.add(one);
  const leave = board.add(two);
  two.set({ state: 'stale', since: 2 });
  expect(board.status.get()).toEqual({ state: 'stale', since: 2 });
  leave();
  expect(board.status.get().state).toBe('live');
});
