// SPDX-License-Identifier: Apache-2.0
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, it } from 'vitest';
import { exampleFleet } from '../fake/fleet';
import type { FakeHub } from '../fake/server';
import { serveWorld } from '../fake/server';
import { checkPage, launch, shoot, visit } from './browser';

const pages = {
  fleet: '/',
  grouped: '/?group=region&sort=-state',
  cluster: '/clusters/retail/bravo',
  drift: '/clusters/retail/echo',
  approve: '/clusters/edge/foxtrot',
  operations: '/operations',
  failed: '/operations/retail/talos-bravo-x7k2p',
  running: '/operations/platform/talos-golf-m4n8q',
  audit: '/audit',
  session: '/session',
};

/** Every page in both themes on both sizes, to be looked at; each is checked like in the other tests. */
describe('screenshots', () => {
  let browser: Browser;
  let hub: FakeHub;

  beforeAll(async () => {
    [browser, hub] = await Promise.all([launch(), serveWorld(exampleFleet())]);
  });
  afterAll(() => Promise.all([browser.close(), hub.close()]));

  for (const [name, path] of Object.entries(pages)) {
    for (const theme of ['light', 'dark'] as const) {
      for (const width of [1440, 390]) {
        it(`${name}, ${theme}, ${width} px`, async () => {
          const seen = await visit(browser, hub.url + path, { theme, width, height: width === 390 ? 844 : 900 });
          await seen.page.locator('h1').first().waitFor({ timeout: 10_000 });
          await seen.page.getByText('Live', { exact: true }).waitFor({ timeout: 10_000 });
          await seen.page.waitForTimeout(300);
          await shoot(seen.page, `${name}-${theme}-${width}`, true);
          await checkPage(seen);
          await seen.context.close();
        });
      }
    }
  }

  for (const language of ['en', 'ja'] as const) {
    for (const width of [1440, 390]) {
      it(`the start in two steps, and the fleet, ${language}, ${width} px`, async () => {
        const seen = await visit(browser, `${hub.url}/`, { language, width, height: width === 390 ? 844 : 900 });
        await seen.page.getByRole('grid').waitFor();
        await shoot(seen.page, `fleet-${language}-${width}`);
        await seen.page.goto(`${hub.url}/clusters/platform/alpha`);
        await seen.page.getByRole('button', { name: /^Talos (upgrade|アップグレード)$/ }).click();
        await seen.page.getByLabel(/^Talos (version|バージョン)$/).fill('v1.14.1');
        await shoot(seen.page, `order-${language}-${width}`);
        await seen.page.keyboard.press('Enter');
        await seen.page.getByRole('dialog').locator('code').waitFor();
        await shoot(seen.page, `review-${language}-${width}`);
        await checkPage(seen);
        await seen.context.close();
      });
    }
  }

  for (const width of [1440, 390]) {
    it(`the sign-in, ${width} px`, async () => {
      const seen = await visit(browser, `${hub.url}/?x=1`, { user: '', width, height: width === 390 ? 844 : 900 });
      await seen.page.getByRole('button').first().waitFor();
      await shoot(seen.page, `sign-in-${width}`);
      await checkPage(seen, [/401/]);
      await seen.context.close();
    });
  }
});
