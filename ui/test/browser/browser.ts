// SPDX-License-Identifier: Apache-2.0
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { chromium } from 'playwright-core';
import { expect } from 'vitest';

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** launch starts Debian's Chromium. */
export function launch(): Promise<Browser> {
  return chromium.launch({
    executablePath: process.env.ICHOR_CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking'],
  });
}

/** Visit is a page of the browser, and everything that it complained about. */
export interface Visit {
  page: Page;
  context: BrowserContext;
  complaints: string[];
}

/** Options say how somebody looks at the page. */
export interface Options {
  user?: string;
  width?: number;
  height?: number;
  language?: 'en' | 'ja';
  theme?: 'light' | 'dark';
  /** before is called with the page before it goes anywhere. */
  before?: (page: Page) => Promise<void>;
}

/** visit opens a browser of its own at an address, signed in. */
export async function visit(browser: Browser, url: string, options: Options = {}): Promise<Visit> {
  const context = await browser.newContext({
    viewport: { width: options.width ?? 1440, height: options.height ?? 900 },
    locale: options.language === 'ja' ? 'ja-JP' : 'en-GB',
    timezoneId: 'Europe/Berlin',
    colorScheme: options.theme ?? 'light',
    reducedMotion: 'reduce',
    ignoreHTTPSErrors: true,
  });
  if (options.user !== '') {
    await context.addCookies([{ name: 'session', value: options.user ?? 'admin', url: new URL('/', url).href }]);
  }
  context.setDefaultTimeout(15_000);
  const page = await context.newPage();
  const complaints: string[] = [];
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(String(error)));
  await page.addInitScript(() => {
    window.addEventListener('securitypolicyviolation', (event) =>
      console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`),
    );
  });
  await options.before?.(page);
  await page.goto(url);
  return { page, context, complaints };
}

interface AxeResults {
  violations: { id: string; nodes: { html: string; failureSummary?: string }[] }[];
}

/** checkPage expects that nothing is wrong with the page for anybody, and that the browser has not complained. */
export async function checkPage({ page, complaints }: Visit, expected: RegExp[] = []): Promise<void> {
  // The page's own policy forbids scripts of others; the protocol of the tools does not ask it.
  await page.evaluate(axeSource);
  const results = (await page.evaluate(
    "axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] })",
  )) as AxeResults;
  const found = results.violations.flatMap(({ id, nodes }) =>
    nodes.map((node) => `${id}: ${node.html} ${node.failureSummary ?? ''}`),
  );
  expect(found).toEqual([]);
  expect(complaints.filter((complaint) => !expected.some((pattern) => pattern.test(complaint)))).toEqual([]);
}

const shots = new URL('../shots', import.meta.url).pathname;

/** shoot makes a picture that somebody looks at. */
export async function shoot(page: Page, name: string, fullPage = false): Promise<void> {
  mkdirSync(shots, { recursive: true });
  await page.screenshot({ path: `${shots}/${name}.png`, fullPage });
}
