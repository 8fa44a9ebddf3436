// SPDX-License-Identifier: Apache-2.0

/** Zone is "local", or the name of a time zone. */
export type Zone = string;

/** zoneName is the name that Intl knows. */
export function zoneName(zone: Zone): string {
  return zone === 'local' ? Intl.DateTimeFormat().resolvedOptions().timeZone : zone;
}

/** kept makes what is costly to make once for each key. */
function kept<Value>(make: (key: string) => Value): (key: string) => Value {
  const cache = new Map<string, Value>();
  return (key) => {
    let value = cache.get(key);
    if (value === undefined) {
      value = make(key);
      cache.set(key, value);
    }
    return value;
  };
}

const numbers = kept((locale) => new Intl.NumberFormat(locale));

const fractions = kept((key) => {
  const [locale = '', digits] = key.split(' ');
  return new Intl.NumberFormat(locale, {
    minimumFractionDigits: Number(digits),
    maximumFractionDigits: Number(digits),
  });
});

const tenths = (locale: string, digits: number) => fractions(`${locale} ${digits}`);

const relatives = kept((locale) => new Intl.RelativeTimeFormat(locale, { numeric: 'auto' }));

const lengths = kept((key) => {
  const [locale = '', unit] = key.split(' ');
  return new Intl.NumberFormat(locale, { style: 'unit', unit, unitDisplay: 'short' });
});

const dates = new Map<string, Intl.DateTimeFormat>();

function dateFormat(locale: string, zone: Zone, parts: 'full' | 'clock'): Intl.DateTimeFormat {
  const key = `${locale} ${zone} ${parts}`;
  let format = dates.get(key);
  if (!format) {
    const date: Intl.DateTimeFormatOptions =
      parts === 'full' ? { year: 'numeric', month: 'short', day: 'numeric' } : {};
    const clock: Intl.DateTimeFormatOptions = {
      hour: '2-digit',
      minute: '2-digit',
      second: '2-digit',
      hourCycle: 'h23',
    };
    format = new Intl.DateTimeFormat(locale, {
      ...date,
      ...clock,
      timeZone: zoneName(zone),
      timeZoneName: parts === 'full' ? 'short' : undefined,
    });
    dates.set(key, format);
  }
  return format;
}

/** formatTime is a time to the second, with its zone. */
export function formatTime(time: number, locale: string, zone: Zone): string {
  return dateFormat(locale, zone, 'full').format(time);
}

/** formatClock is the time of the day. */
export function formatClock(time: number, locale: string, zone: Zone): string {
  return dateFormat(locale, zone, 'clock').format(time);
}

const units: [Intl.RelativeTimeFormatUnit & ('day' | 'hour' | 'minute' | 'second'), number][] = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
  ['second', 1_000],
];

/** formatRelative is how long ago a time was, or when it will be. */
export function formatRelative(time: number, now: number, locale: string): string {
  const difference = time - now;
  for (const [unit, size] of units) {
    if (Math.abs(difference) >= size || unit === 'second') {
      return relatives(locale).format(Math.trunc(difference / size), unit);
    }
  }
  return '';
}

/** formatDuration is a length of time in its two largest units. */
export function formatDuration(length: number, locale: string): string {
  const parts: string[] = [];
  let rest = Math.max(0, length);
  for (const [unit, size] of units) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    const begun = parts.length > 0;
    if (count > 0 || (unit === 'second' && !begun)) {
      parts.push(lengths(`${locale} ${unit}`).format(count));
    }
    if (parts.length === 2 || (begun && count === 0)) {
      break;
    }
  }
  return parts.join(' ');
}

/** formatNumber is a number with the language's own separators. */
export function formatNumber(value: number, locale: string): string {
  return numbers(locale).format(value);
}

const sizes = ['B', 'KiB', 'MiB', 'GiB'];

/** formatBytes is a size as the command line has it. */
export function formatBytes(bytes: number, locale: string): string {
  const index = Math.min(sizes.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  return `${tenths(locale, index > 0 ? 1 : 0).format(bytes / 1024 ** index)} ${sizes[index]}`;
}

/** clientName is the name of a browser and its version in what it says of itself; everything else says its name as it is. */
export function clientName(agent: string): string {
  if (!agent.startsWith('Mozilla/')) {
    return agent;
  }
  const [, name, version] =
    /(Firefox|Edg|OPR|(?:Headless)?Chrome)\/(\d+)/.exec(agent.replace(/Chrome\/\S+(?=.*(Edg|OPR)\/)/, '')) ?? [];
  const safari = /Version\/(\d+).*Safari\//.exec(agent);
  return name
    ? `${name.replace('Edg', 'Edge').replace('OPR', 'Opera')} ${version}`
    : safari
      ? `Safari ${safari[1]}`
      : agent;
}
