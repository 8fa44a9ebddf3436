// SPDX-License-Identifier: Apache-2.0

// Lays a compressed copy beside every file that is worth it, so that the hub never compresses anything itself.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

const dist = new URL('../dist', import.meta.url).pathname;
const worth = new Set(['.html', '.js', '.css', '.svg', '.json']);

for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || !worth.has(extname(entry.name))) {
    continue;
  }
  const path = join(entry.parentPath, entry.name);
  const content = readFileSync(path);
  const brotli = brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: content.length } });
  const gzip = gzipSync(content, { level: 9 });
  if (brotli.length < content.length) {
    writeFileSync(`${path}.br`, brotli);
  }
  if (gzip.length < content.length) {
    writeFileSync(`${path}.gz`, gzip);
  }
}
// Git and go:embed need the directory where nothing has been built.
writeFileSync(join(dist, '.keep'), '');
