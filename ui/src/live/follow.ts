// SPDX-License-Identifier: Apache-2.0
import { Code, ConnectError } from '@connectrpc/connect';

/** StreamStatus is how a watch is doing. */
export interface StreamStatus {
  /** state is connecting until the first answer, live while the hub is heard of, stale when it is not, and ended when it will not answer. */
  state: 'connecting' | 'live' | 'stale' | 'ended';
  /** since is when the state began; of one that is stale or has ended, when the hub was last heard of. */
  since: number;
  /** error says why a watch is stale or has ended. */
  error?: string;
  code?: Code;
}

/** Message is what all messages of watches have. */
interface Message {
  event: { case?: string; value?: unknown };
  resumeToken: string;
}

/** Follow is a watch that goes on until it is stopped. */
export interface Follow<M extends Message> {
  /** open begins the stream after a token. */
  open: (token: string, signal: AbortSignal) => AsyncIterable<M>;
  /** event takes every message that is not about the stream itself. */
  event: (message: M) => void;
  reset: () => void;
  synced: () => void;
  status: (status: StreamStatus) => void;
  clock?: Clock;
}

/** Clock is time, and what wakes from a wait; tests bring their own. */
export interface Clock {
  now: () => number;
  /** after runs something later, and returns what prevents it. */
  after: (delay: number, run: () => void) => () => void;
  /** breathe lets the page do something else, if that has had to wait for too long; undefined if it has not. */
  breathe: () => Promise<void> | undefined;
  /** woken runs something when it is worth a try at once: the network is back, or somebody looks again. */
  woken: (run: () => void) => () => void;
}

/** silence is how long a watch may say nothing. The hub says something every 15 seconds. */
export const silence = 35_000;

/** Pauses between two tries grow from the first to the last of these. */
const firstPause = 500;
const longestPause = 15_000;

/** A stream that is back within this time has not been away. */
const grace = 2_000;

/** final are the codes after which the same call has no other answer. */
const final = new Set([Code.Unauthenticated, Code.PermissionDenied, Code.Unimplemented, Code.InvalidArgument]);

/** A page that does nothing else for longer than this feels dead. */
const breathless = 20;

let breathed = 0;

export const browserClock: Clock = {
  now: Date.now,
  breathe: () => {
    if (performance.now() - breathed < breathless) {
      return undefined;
    }
    return new Promise((resolve) =>
      setTimeout(() => {
        breathed = performance.now();
        resolve();
      }),
    );
  },
  after: (delay, run) => {
    const timer = setTimeout(run, delay);
    return () => clearTimeout(timer);
  },
  woken: (run) => {
    const visible = () => document.visibilityState === 'visible' && run();
    window.addEventListener('online', run);
    document.addEventListener('visibilitychange', visible);
    return () => {
      window.removeEventListener('online', run);
      document.removeEventListener('visibilitychange', visible);
    };
  },
};

/** follow keeps a watch open and goes on where it was cut. It returns what stops it. */
export function follow<M extends Message>(watch: Follow<M>): () => void {
  const stop = new AbortController();
  void run(watch, watch.clock ?? browserClock, stop.signal);
  return () => stop.abort();
}

/** Outage tells how a watch is doing. A stream that is cut and comes back at once is nobody's business. */
class Outage {
  private status: StreamStatus;
  private heardAt: number;
  private error: ConnectError | undefined;
  private cancel: (() => void) | undefined;

  constructor(
    private readonly tell: (status: StreamStatus) => void,
    private readonly clock: Clock,
    private readonly stopped: AbortSignal,
  ) {
    this.heardAt = clock.now();
    this.status = { state: 'connecting', since: this.heardAt };
    this.tell(this.status);
    stopped.addEventListener('abort', () => this.cancel?.());
  }

  /** heard is called with every message. */
  heard(): void {
    this.heardAt = this.clock.now();
    this.cancel?.();
    this.cancel = undefined;
    if (this.status.state !== 'live') {
      this.change({ state: 'live', since: this.heardAt });
    }
  }

  /** doubt is called when a stream has ended: if nothing is heard for a while, that is an outage. */
  doubt(error?: ConnectError): void {
    this.error = error ?? this.error;
    this.cancel ??= this.clock.after(grace, () =>
      this.change({ state: 'stale', since: this.heardAt, ...said(this.error) }),
    );
  }

  /** over is called when there will be no other stream. */
  over(error: ConnectError): void {
    this.cancel?.();
    this.change({ state: 'ended', since: this.heardAt, ...said(error) });
  }

  private change(status: StreamStatus): void {
    if (!this.stopped.aborted) {
      this.status = status;
      this.tell(status);
    }
  }
}

function said(error: ConnectError | undefined): Pick<StreamStatus, 'error' | 'code'> {
  return error ? { error: error.rawMessage, code: error.code } : {};
}

async function run<M extends Message>(watch: Follow<M>, clock: Clock, stopped: AbortSignal): Promise<void> {
  const place = { token: '', began: false };
  const outage = new Outage(watch.status, clock, stopped);
  let pause = firstPause;
  while (!stopped.aborted) {
    try {
      await once(watch, clock, stopped, place, () => {
        pause = firstPause;
        outage.heard();
      });
      outage.doubt();
    } catch (thrown) {
      const error = ConnectError.from(thrown);
      if (final.has(error.code)) {
        outage.over(error);
        return;
      }
      outage.doubt(error);
    }
    await wait(pause * (0.75 + Math.random() / 2), clock, stopped);
    pause = Math.min(pause * 2, longestPause);
  }
}

/** once follows one stream to its end. A stream that falls silent is cut, so that it throws. */
async function once<M extends Message>(
  watch: Follow<M>,
  clock: Clock,
  stopped: AbortSignal,
  place: { token: string; began: boolean },
  heard: () => void,
): Promise<void> {
  const cut = new AbortController();
  const end = () => cut.abort();
  stopped.addEventListener('abort', end);
  let calm = clock.after(silence, end);
  if (place.token === '' && place.began) {
    watch.reset();
  }
  place.began = true;
  try {
    for await (const message of watch.open(place.token, cut.signal)) {
      if (stopped.aborted) {
        return;
      }
      calm();
      calm = clock.after(silence, end);
      heard();
      take(watch, message);
      if (message.resumeToken !== '') {
        place.token = message.resumeToken;
      }
      // What has arrived already comes without a pause, and ten thousand clusters arrive at once.
      await clock.breathe();
    }
  } finally {
    calm();
    stopped.removeEventListener('abort', end);
    cut.abort();
  }
}

function take<M extends Message>(watch: Follow<M>, message: M): void {
  switch (message.event.case) {
    case 'reset':
      watch.reset();
      return;
    case 'synced':
      watch.synced();
      return;
    case 'heartbeat':
    case undefined:
      return;
    default:
      watch.event(message);
  }
}

function wait(delay: number, clock: Clock, stopped: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      cancel();
      asleep();
      stopped.removeEventListener('abort', done);
      resolve();
    };
    const cancel = clock.after(delay, done);
    const asleep = clock.woken(done);
    stopped.addEventListener('abort', done);
    if (stopped.aborted) {
      done();
    }
  });
}
