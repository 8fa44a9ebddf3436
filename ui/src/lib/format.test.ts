// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from 'vitest';
import { clientName, formatBytes, formatClock, formatDuration, formatRelative, formatTime } from './format';

const moment = Date.UTC(2026, 10, 29, 23, 5, 9);

it('tells sizes as the command line does', () => {
  expect([0, 1023, 1024, 48_234_528, 5 * 1024 ** 4].map((bytes) => formatBytes(bytes, 'en'))).toEqual([
    '0 B',
    '1,023 B',
    '1.0 KiB',
    '46.0 MiB',
    '5,120.0 GiB',
  ]);
});

describe('times', () => {
  it('are told in the zone that was chosen, with its name', () => {
    expect(formatTime(moment, 'en', 'UTC')).toBe('Nov 29, 2026, 23:05:09 UTC');
    expect(formatTime(moment, 'en', 'Asia/Tokyo')).toContain('Nov 30, 2026, 08:05:09');
    expect(formatTime(moment, 'ja', 'Asia/Tokyo')).toContain('2026年11月30日');
    expect(formatClock(moment, 'en', 'Asia/Tokyo')).toBe('08:05:09');
  });
  it('are relative in their largest unit', () => {
    expect(formatRelative(moment - 90_000, moment, 'en')).toBe('1 minute ago');
    expect(formatRelative(moment + 7_200_000, moment, 'en')).toBe('in 2 hours');
    expect(formatRelative(moment, moment, 'en')).toBe('now');
    expect(formatRelative(moment - 3 * 86_400_000, moment, 'ja')).toBe('3 日前');
  });
});

describe('durations', () => {
  it.each([
    [0, '0 sec'],
    [999, '0 sec'],
    [59_000, '59 sec'],
    [125_000, '2 min 5 sec'],
    [120_000, '2 min'],
    [3_600_000 * 5 + 60_000 * 3 + 9_000, '5 hr 3 min'],
    [86_400_000 * 2 + 5_000, '2 days'],
    [-5, '0 sec'],
  ])('%i ms: %s', (length, words) => {
    expect(formatDuration(length, 'en')).toBe(words);
  });
  it('speak Japanese', () => {
    expect(formatDuration(125_000, 'ja')).toBe('2 分 5 秒');
  });
});

it.each([
  ['ichor/v0.4.0', 'ichor/v0.4.0'],
  [
    'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36',
    'Chrome 156',
  ],
  [
    'Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36 Edg/156.0.0.0',
    'Edge 156',
  ],
  ['Mozilla/5.0 (X11; Linux x86_64; rv:150.0) Gecko/20100101 Firefox/150.0', 'Firefox 150'],
  [
    'Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/19.0 Mobile/15E148 Safari/604.1',
    'Safari 19',
  ],
  ['Mozilla/5.0 (something)', 'Mozilla/5.0 (something)'],
])('names the client of %s', (agent, name) => {
  expect(clientName(agent)).toBe(name);
});
