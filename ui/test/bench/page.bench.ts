// SPDX-License-Identifier: Apache-2.0
import type { Page } from 'playwright-core';
import { it } from 'vitest';
import { Attention } from '../../src/gen/ichor/v1alpha1/types_pb';
import { launch, visit } from '../browser/browser';
import { liveSizes, sumOf } from '../browser/heap';
import { largeFleet } from '../fake/fleet';
import { serveWorld } from '../fake/server';

const clusters = Number(process.env.BENCH_CLUSTERS ?? 10_000);
const minutes = Number(process.env.BENCH_MINUTES ?? 5);
const perMinute = Number(process.env.BENCH_RATE ?? 1_000);

/** Measures what docs/benchmarks.md says of the page. The hub is a fake in this process, so it takes its share of the machine. */
it(
  'measures the page',
  async () => {
    const browser = await launch();
    const world = largeFleet(clusters);
    const hub = await serveWorld(world);
    const everything = `${clusters.toLocaleString('en')} clusters`;
    const runs = [];
    let work = async () => 0;
    // The processor's time of the page's own thread: on a machine that does other things as well, it says more than the clock.
    const cpuOf = async (page: Page) => {
      await page.addInitScript(watchPage, everything);
      const session = await page.context().newCDPSession(page);
      await session.send('Performance.enable', { timeDomain: 'threadTicks' });
      work = async () => {
        const { metrics } = await session.send('Performance.getMetrics');
        return (metrics.find((metric) => metric.name === 'TaskDuration')?.value ?? 0) * 1_000;
      };
    };
    for (let i = 0; i < 5; i++) {
      const seen = await visit(browser, hub.url, { before: cpuOf });
      await seen.page.getByText(everything).waitFor();
      const marks = (await seen.page.evaluate('marks')) as { rows: number; all: number };
      runs.push({ rows: Math.round(marks.rows), all: Math.round(marks.all), cpu: Math.round(await work()) });
      await seen.context.close();
    }
    console.log(`${clusters} clusters, milliseconds after navigation, cold cache:`, runs);

    const seen = await visit(browser, hub.url);
    await seen.page.getByText(everything).waitFor();
    const session = await seen.context.newCDPSession(seen.page);
    await session.send('Performance.enable');
    await session.send('HeapProfiler.enable');
    const heap = async () => {
      const sizes = await liveSizes(session);
      const { metrics } = await session.send('Performance.getMetrics');
      const of = (name: string) => metrics.find((metric) => metric.name === name)?.value ?? 0;
      const megabytes = (passes: (sort: string) => boolean) => Math.round(sumOf(sizes, passes) / 1e4) / 100;
      return {
        data: megabytes((sort) => sort !== 'code'),
        code: megabytes((sort) => sort === 'code'),
        nodes: of('Nodes'),
        busy: Math.round(of('TaskDuration') * 10) / 10,
      };
    };
    const keys = [...world.clusters.keys()];
    let changed = 0;
    const timer = setInterval(() => {
      const key = keys[(changed * 7_919) % keys.length] ?? '';
      const cluster = world.clusters.get(key);
      world.putCluster({
        ...cluster,
        attention: changed % 3 ? Attention.NONE : Attention.WAITING,
        machinesReady: 3 + (changed % 3),
      });
      changed++;
    }, 60_000 / perMinute);
    console.log('minute 0:', await heap());
    for (let minute = 1; minute <= minutes; minute++) {
      await seen.page.waitForTimeout(60_000);
      console.log(
        `minute ${minute}: ${changed} changes,`,
        await heap(),
        'MB of data, MB of compiled code, DOM nodes, seconds of work so far',
      );
    }
    clearInterval(timer);
    await browser.close();
    await hub.close();
  },
  (minutes + 2) * 60_000,
);

/** watchPage notes in the page itself when its rows, and all of its clusters, are there: this process has a hub to be. */
function watchPage(text: string): void {
  const marks = { rows: 0, all: 0 };
  Object.assign(window, { marks });
  const look = () => {
    if (marks.rows === 0 && document.querySelector('[data-row]')) {
      marks.rows = performance.now();
    }
    if (marks.all === 0 && document.querySelector('main section p')?.textContent?.includes(text)) {
      marks.all = performance.now();
      return;
    }
    requestAnimationFrame(look);
  };
  look();
}
