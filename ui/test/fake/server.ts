// SPDX-License-Identifier: Apache-2.0
import { existsSync, readFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { extname, join, normalize } from 'node:path';
import { Readable } from 'node:stream';
import { createConnectRouter } from '@connectrpc/connect';
import { createFetchHandler } from '@connectrpc/connect/protocol';
import type { Orders } from './service';
import { everyKind, everyStart, routes } from './service';
import type { World } from './world';

const dist = new URL('../../dist', import.meta.url).pathname;
const types: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
};

/** policy is the one of the hub: see hub/page. */
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";

/** FakeHub serves a world and the built page, as a hub does. */
export interface FakeHub {
  url: string;
  orders: Orders;
  /** cut ends every connection, and refuses others until it is mended. */
  cut: () => void;
  mend: () => void;
  close: () => Promise<void>;
}

/** serveWorld starts a fake hub on a free port of the loopback. */
export async function serveWorld(world: World): Promise<FakeHub> {
  const orders: Orders = {
    heartbeat: 2_000,
    stepLength: 60,
    confirmName: false,
    kinds: everyKind,
    starts: everyStart,
    sent: 0,
  };
  const router = createConnectRouter({ grpc: false, grpcWeb: false });
  routes(router, world, orders);
  const handlers = new Map(router.handlers.map((handler) => [handler.requestPath, handler]));
  const sockets = new Set<Socket>();
  let broken = false;
  const server = createServer((request, response) => {
    const path = new URL(request.url ?? '/', 'http://hub').pathname;
    const handler = handlers.get(path);
    if (handler) {
      void call(createFetchHandler(handler), request, response);
    } else if (path.startsWith('/auth/')) {
      void signIn(path, request, response);
    } else {
      file(path, response);
    }
  });
  server.on('connection', (socket) => {
    if (broken) {
      socket.destroy();
      return;
    }
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    orders,
    cut: () => {
      broken = true;
      for (const socket of sockets) {
        socket.destroy();
      }
    },
    mend: () => {
      broken = false;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

type FetchHandler = ReturnType<typeof createFetchHandler>;

async function call(handle: FetchHandler, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers)) {
    if (typeof value === 'string') {
      headers.set(name, value);
    }
  }
  const body = Readable.toWeb(request) as ReadableStream<Uint8Array>;
  const asked = new Request(`http://hub${request.url}`, {
    method: request.method,
    headers,
    body,
    signal: gone.signal,
    duplex: 'half',
  } as RequestInit);
  const answer = await handle(asked);
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  if (!answer.body) {
    response.end();
    return;
  }
  const reader = answer.body.getReader();
  for (;;) {
    const { done, value } = await reader.read().catch(() => ({ done: true, value: undefined }));
    if (done || response.destroyed) {
      break;
    }
    if (!response.write(value)) {
      await drained(response);
    }
  }
  void reader.cancel().catch(() => undefined);
  response.end();
}

/** drained waits until more can be written, or nobody reads any more. */
function drained(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      response.off('drain', done);
      response.off('close', done);
      resolve();
    };
    response.on('drain', done);
    response.on('close', done);
  });
}

async function signIn(path: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
  let body = '';
  for await (const chunk of request) {
    body += chunk;
  }
  const user = path === '/auth/token' ? (/"token":"(admin|viewer)-token"/.exec(body)?.[1] ?? '') : '';
  if (path === '/auth/token' && user === '') {
    response
      .writeHead(401, { 'Content-Type': 'application/json' })
      .end('{"message":"the management API does not know this token"}');
    return;
  }
  response.writeHead(204, { 'Set-Cookie': `session=${user}; HttpOnly; SameSite=Strict; Path=/` }).end();
}

function file(path: string, response: ServerResponse): void {
  const wanted = join(dist, normalize(path));
  const found = extname(path) !== '' && existsSync(wanted);
  if (extname(path) !== '' && !found) {
    response.writeHead(404).end();
    return;
  }
  const served = found ? wanted : join(dist, 'index.html');
  response.writeHead(200, {
    'Content-Type': types[extname(served)] ?? 'application/octet-stream',
    'Content-Security-Policy': policy,
  });
  response.end(readFileSync(served));
}
