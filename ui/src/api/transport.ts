// SPDX-License-Identifier: Apache-2.0
import type { Transport } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-web';
import { openStream } from './stream';

/** send adds the session to a call. Nobody leads it elsewhere. */
const send: typeof fetch = (input, init) => fetch(input, { ...init, credentials: 'same-origin', redirect: 'error' });

/**
 * hubTransport speaks to the hub that served the page. Messages are binary, which is half the bytes of JSON and a third of the time; calls are never
 * GET, so that nothing of them is kept in caches or in the logs of proxies.
 */
export function hubTransport(baseUrl: string): Transport {
  const { unary } = createConnectTransport({ baseUrl, useBinaryFormat: true, fetch: send });
  return { unary, stream: openStream(baseUrl, send) };
}
