// SPDX-License-Identifier: Apache-2.0
import { configureTextEncoding, getTextEncoding } from '@bufbuild/protobuf/wire';

/** Longer texts are the browser's own to decode: a call of it costs as much as some dozens of characters. */
const short = 48;

/** asciiText is a short text without anything beyond ASCII; undefined if it is not. */
export function asciiText(bytes: Uint8Array): string | undefined {
  if (bytes.length > short) {
    return undefined;
  }
  for (let i = 0; i < bytes.length; i++) {
    if ((bytes[i] ?? 0) > 127) {
      return undefined;
    }
  }
  // At once, and not character by character: that would keep a piece of memory for each of them.
  return String.fromCharCode(...bytes);
}

/** decodeShortTexts makes reading messages faster: nearly all that is in them are short names, reasons and versions. */
export function decodeShortTexts(): void {
  const usual = getTextEncoding();
  configureTextEncoding({
    checkUtf8: usual.checkUtf8,
    encodeUtf8: usual.encodeUtf8,
    decodeUtf8: (bytes, strict) => asciiText(bytes) ?? usual.decodeUtf8(bytes, strict),
  });
}
