// SPDX-License-Identifier: Apache-2.0
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

const sheet = readFileSync('src/styles/tokens.css', 'utf8');

/** tokens are the colours of a block of the sheet. */
function tokens(selector: string): Map<string, string> {
  const start = sheet.indexOf(`${selector} {`);
  const block = sheet.slice(start, sheet.indexOf('}', start));
  return new Map([...block.matchAll(/--([a-z-]+): (#[0-9a-f]{6});/g)].map((match) => [match[1] ?? '', match[2] ?? '']));
}

function luminance(colour: string): number {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((at) => {
    const part = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: string, b: string): number {
  const [light = 0, dark = 0] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (light + 0.05) / (dark + 0.05);
}

const states = ['failed', 'person', 'soon', 'waiting', 'running', 'ok'];
const grounds = ['canvas', 'surface', 'sunken'];
const texts = ['text', 'muted', 'accent', ...states];
const read = [
  ...grounds.flatMap((ground) => texts.map((text) => [text, ground])),
  ...states.flatMap((state) => ['text', 'muted', state].map((text) => [text, `${state}-soft`])),
  ['on-accent', 'accent'],
];
const seen = grounds.map((ground) => ['control', ground]);

describe.each([':root', ':root[data-theme="dark"]'])('colours of %s', (selector) => {
  const colours = tokens(selector);
  const of = (name: string) => colours.get(name) ?? expect.fail(`there is no colour ${name}`);
  it.each(read)('%s can be read on %s', (text, ground) => {
    expect(contrast(of(text ?? ''), of(ground ?? ''))).toBeGreaterThanOrEqual(4.5);
  });
  it.each(seen)('%s can be seen on %s', (line, ground) => {
    expect(contrast(of(line ?? ''), of(ground ?? ''))).toBeGreaterThanOrEqual(3);
  });
});
