// SPDX-License-Identifier: Apache-2.0
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import type { Transport } from '@connectrpc/connect';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { expect, it } from 'vitest';
import {
  ClusterService,
  WatchClustersRequestSchema,
  WatchClustersResponseSchema,
} from '../gen/ichor/v1alpha1/cluster_pb';
import { openStream } from './stream';

/** envelope is a message on the wire: a flag, the length, the bytes. */
function envelope(flags: number, data: Uint8Array): Uint8Array {
  const framed = new Uint8Array(5 + data.length);
  framed[0] = flags;
  new DataView(framed.buffer).setUint32(1, data.length);
  framed.set(data, 5);
  return framed;
}

const message = (resumeToken: string) =>
  envelope(0, toBinary(WatchClustersResponseSchema, create(WatchClustersResponseSchema, { resumeToken })));
const end = (json: string) => envelope(2, new TextEncoder().encode(json));

function watch(chunks: Uint8Array[], status = 200) {
  const sent: { url: string; token: string }[] = [];
  const send = async (url: string, init: RequestInit) => {
    const body = init.body as Uint8Array;
    sent.push({ url, token: fromBinary(WatchClustersRequestSchema, body.subarray(5)).resumeToken });
    const stream = new ReadableStream({
      start: (controller) => {
        for (const chunk of chunks) {
          controller.enqueue(chunk);
        }
        controller.close();
      },
    });
    return new Response(stream, { status, headers: { 'Content-Type': 'application/connect+proto' } });
  };
  const transport = { stream: openStream('https://hub', send as typeof fetch) } as Transport;
  return { sent, call: createClient(ClusterService, transport).watchClusters({ resumeToken: '7' }) };
}

async function read(call: AsyncIterable<{ resumeToken: string }>) {
  const tokens: string[] = [];
  try {
    for await (const { resumeToken } of call) {
      tokens.push(resumeToken);
    }
    return { tokens, code: undefined };
  } catch (thrown) {
    return { tokens, code: ConnectError.from(thrown).code };
  }
}

it('reads messages however they are cut into pieces', async () => {
  const bytes = [...message('8'), ...message('9'), ...end('{}')];
  const pieces = [bytes.slice(0, 3), bytes.slice(3, 9), bytes.slice(9)].map((piece) => Uint8Array.from(piece));
  const { sent, call } = watch(pieces);
  expect(await read(call)).toEqual({ tokens: ['8', '9'], code: undefined });
  expect(sent).toEqual([{ url: 'https://hub/ichor.v1alpha1.ClusterService/WatchClusters', token: '7' }]);
});

it('throws what the server says at the end', async () => {
  const { call } = watch([message('8'), end('{"error":{"code":"permission_denied","message":"no"}}')]);
  expect(await read(call)).toEqual({ tokens: ['8'], code: Code.PermissionDenied });
});

it('takes a stream without an end for one that was cut', async () => {
  expect(await read(watch([message('8')]).call)).toEqual({ tokens: ['8'], code: Code.Unavailable });
});

it('throws what the status says', async () => {
  expect(await read(watch([], 401).call)).toEqual({ tokens: [], code: Code.Unauthenticated });
});
