// SPDX-License-Identifier: Apache-2.0
import type { DescMessage, MessageShape } from '@bufbuild/protobuf';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import type { Transport } from '@connectrpc/connect';
import { Code, ConnectError } from '@connectrpc/connect';
import { createEnvelopeReadableStream, createMethodUrl, encodeEnvelope } from '@connectrpc/connect/protocol';
import {
  endStreamFlag,
  endStreamFromJson,
  requestHeader,
  validateResponse,
} from '@connectrpc/connect/protocol-connect';

/**
 * openStream opens streams of the server. The library's own way lets every message race the end of the call, and what lost a race is kept until the call
 * ends: 150 bytes of each message, and a watch goes on for as long as the page is open.
 */
export function openStream(baseUrl: string, send: typeof fetch): Transport['stream'] {
  return async (method, signal, timeoutMs, header, input) => {
    const [first] = await taken(input);
    const answer = await send(createMethodUrl(baseUrl, method), {
      method: 'POST',
      headers: requestHeader(method.methodKind, true, timeoutMs, header, false),
      body: encodeEnvelope(0, toBinary(method.input, create(method.input, first))),
      signal: signal ?? null,
    });
    validateResponse(method.methodKind, true, answer.status, answer.headers);
    return {
      stream: true,
      service: method.parent,
      method,
      header: answer.headers,
      trailer: new Headers(),
      message: messages(method.output, answer.body),
    };
  };
}

async function taken<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const all: Item[] = [];
  for await (const item of items) {
    all.push(item);
  }
  return all;
}

/** messages reads to the end of a stream, which says itself whether that is one. */
async function* messages<Output extends DescMessage>(
  output: Output,
  body: ReadableStream<Uint8Array> | null,
): AsyncGenerator<MessageShape<Output>> {
  const reader = body && createEnvelopeReadableStream(body).getReader();
  for (;;) {
    const next = await reader?.read();
    if (!next || next.done) {
      throw new ConnectError('the stream was cut', Code.Unavailable);
    }
    const { flags, data } = next.value;
    if ((flags & endStreamFlag) === endStreamFlag) {
      const { error } = endStreamFromJson(data);
      if (error) {
        throw error;
      }
      return;
    }
    yield fromBinary(output, data);
  }
}
