// SPDX-License-Identifier: Apache-2.0

// Fails when the first load is larger than it may be: everything that index.html asks for, and what that imports at once.
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';

const limit = 230_000;
const dist = new URL('../dist', import.meta.url).pathname;
const html = readFileSync(join(dist, 'index.html'), 'utf8');
const wanted = [...html.matchAll(/(?:src|href)="\/([^"]+\.(?:js|css))"/g)].map((match) => match[1]);
const seen = new Set();

while (wanted.length > 0) {
  const file = wanted.pop();
  if (seen.has(file)) {
    continue;
  }
  seen.add(file);
  const text = readFileSync(join(dist, file), 'utf8');
  for (const [, name] of text.matchAll(/(?:^|[;}\s])import(?:[^;"'()]*?from)?\s*["']\.\/([^"']+\.js)["']/g)) {
    wanted.push(join('assets', name));
  }
}

const sizes = [...seen, 'index.html'].map((file) => [statSync(join(dist, `${file}.gz`)).size, file]);
const total = sizes.reduce((sum, [size]) => sum + size, 0);
for (const [size, file] of sizes.sort((a, b) => b[0] - a[0])) {
  console.log(`${String(size).padStart(8)} ${file}`);
}
console.log(`${String(total).padStart(8)} bytes gzip on first load; ${limit} are allowed`);
process.exit(total > limit ? 1 : 0);
