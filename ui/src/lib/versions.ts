// SPDX-License-Identifier: Apache-2.0

interface Version {
  numbers: number[];
  pre: string;
}

function parse(text: string): Version {
  const [core = '', ...rest] = text.replace(/^v/, '').split('-');
  return { numbers: core.split('.').map((part) => Number.parseInt(part, 10) || 0), pre: rest.join('-') };
}

/** compareVersions orders versions as numbers; what is empty comes first, and a pre-release before its release. */
export function compareVersions(a: string, b: string): number {
  if (a === b) {
    return 0;
  }
  if (a === '' || b === '') {
    return a === '' ? -1 : 1;
  }
  const [x, y] = [parse(a), parse(b)];
  for (let i = 0; i < Math.max(x.numbers.length, y.numbers.length); i++) {
    const difference = (x.numbers[i] ?? 0) - (y.numbers[i] ?? 0);
    if (difference !== 0) {
      return difference;
    }
  }
  if (x.pre === '' || y.pre === '') {
    return x.pre === y.pre ? 0 : x.pre === '' ? 1 : -1;
  }
  return x.pre < y.pre ? -1 : x.pre > y.pre ? 1 : 0;
}

/** isVersion says whether a text can be a version that an operation brings a cluster to. */
export function isVersion(text: string): boolean {
  return /^v?\d+\.\d+\.\d+$/.test(text.trim());
}

/** canonicalVersion puts the v in front that people leave out. */
export function canonicalVersion(text: string): string {
  const trimmed = text.trim();
  return trimmed === '' || trimmed.startsWith('v') ? trimmed : `v${trimmed}`;
}
