// SPDX-License-Identifier: Apache-2.0
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Visit } from './browser';
import { checkPage, launch, visit } from './browser';
import type { RealHub } from './hub';
import { startHub } from './hub';

/** What a browser says of a hub that is away is no complaint about the page. */
const away = [/net::ERR_/, /status of 50[234]/];

/** The page against a real hub and a simulated fleet. */
describe('a hub', () => {
  let browser: Browser;
  let hub: RealHub;

  beforeAll(async () => {
    [browser, hub] = await Promise.all([launch(), startHub(['alpha=1+1', 'bravo=3+0', 'charlie=1+1', 'delta=1+1'])]);
  }, 120_000);
  afterAll(async () => {
    await browser?.close();
    await hub?.close();
  });

  /** signIn follows a one-time link, as somebody does who runs a hub on a laptop. */
  async function signIn(options = {}): Promise<Visit> {
    const seen = await visit(browser, await hub.link(), { ...options, user: '' });
    await seen.page.getByRole('button').click();
    await seen.page.getByText(/^(Live|ライブ)$/).waitFor();
    return seen;
  }

  async function openCluster(page: Page, name: string): Promise<void> {
    await page.goto(`${hub.url}/clusters/default/${name}`);
    await page.getByRole('heading', { level: 1, name }).waitFor();
    // The hub needs a moment to discover a cluster that was just imported.
    await page.getByRole('table', { name: 'Conditions' }).getByRole('cell', { name: 'Available' }).first().waitFor();
    await page.getByText('In order').first().waitFor({ timeout: 60_000 });
  }

  async function upgrade(page: Page, name: string, version = 'v1.14.1'): Promise<void> {
    await openCluster(page, name);
    await page.getByRole('button', { name: 'Talos upgrade' }).click();
    await page.getByLabel('Talos version').fill(version);
    await page.getByRole('button', { name: 'Review' }).click();
  }

  it('shows the fleet to who follows a link', async () => {
    const seen = await signIn();
    const { page } = seen;
    await page.getByText('4 clusters').waitFor();
    await page.getByRole('link', { name: 'delta' }).waitFor();
    expect(await page.getByRole('grid').getByRole('row').count()).toBe(5);
    await page.getByRole('search').getByLabel('Search').fill('brav');
    await page.getByText('1 of 4').waitFor();
    expect(new URL(page.url()).search).toBe('?q=brav');
    await checkPage(seen);
    await seen.context.close();
  });

  it('upgrades Talos through Review and Start, and shows it to its end', async () => {
    const seen = await signIn();
    const { page } = seen;
    await upgrade(page, 'alpha');
    const dialog = page.getByRole('dialog');
    await dialog.getByText('Machines reboot.').waitFor();
    await dialog.getByText('Order of the machines').waitFor();
    expect(await dialog.locator('code').innerText()).toContain('ichor upgrade talos v1.14.1');
    await checkPage(seen);
    await dialog.getByRole('button', { name: 'Start', exact: true }).click();
    await page.waitForURL(/\/operations\/default\/alpha-talos-/);
    await page.getByRole('region', { name: 'Time line' }).last().getByText('alpha-cp-1').first().waitFor();
    await page.getByRole('banner').waitFor();
    await page.getByText('2 of 2 machines').waitFor({ timeout: 90_000 });
    await page
      .getByRole('status')
      .getByText(/is completed/)
      .waitFor({ state: 'attached' });
    await checkPage(seen);
    await page.getByRole('link', { name: 'alpha', exact: true }).click();
    await page
      .getByRole('table', { name: 'Completed' })
      .getByRole('link', { name: /^alpha-talos-/ })
      .waitFor();
    expect(await page.getByRole('table', { name: 'Machines' }).getByText('v1.14.1').count()).toBe(2);
    await seen.context.close();
  });

  it('explains a refused start, and starts nothing', async () => {
    const seen = await signIn();
    const { page } = seen;
    await upgrade(page, 'bravo', 'v1.12.0');
    const dialog = page.getByRole('dialog');
    await dialog.getByText(/^Refused: /).waitFor();
    const start = dialog.getByRole('button', { name: 'Start', exact: true });
    expect(await start.getAttribute('aria-disabled')).toBe('true');
    await start.press('Enter');
    await checkPage(seen);
    await page.keyboard.press('Escape');
    await page.getByText('No operation waits.').waitFor();
    await seen.context.close();
  });

  it('shows a step that failed, and retries it', async () => {
    await hub.fault(
      'add',
      'installer-exit',
      '--cluster',
      'charlie',
      '--node',
      'worker-1',
      '--set',
      'code=17',
      '--times',
      '1',
    );
    const seen = await signIn();
    const { page } = seen;
    await upgrade(page, 'charlie');
    await page.getByRole('dialog').getByRole('button', { name: 'Start', exact: true }).click();
    await page.getByText('Nothing is retried by itself, and nothing is rolled back.').waitFor({ timeout: 90_000 });
    await checkPage(seen);
    await page.getByRole('link', { name: 'Fleet' }).click();
    await page
      .getByRole('region', { name: 'Needs attention' })
      .getByRole('link', { name: /^charlie-talos-/ })
      .click();
    await page.getByRole('button', { name: 'Retry', exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Retry', exact: true }).click();
    await page.getByText('2 of 2 machines').waitFor({ timeout: 90_000 });
    expect(await page.getByText('What failed').count()).toBe(0);
    await seen.context.close();
  });

  it('resets a machine only after its name was typed, and shows it to its end', async () => {
    const seen = await signIn();
    const { page } = seen;
    await openCluster(page, 'charlie');
    await page
      .getByRole('group', { name: 'Actions of worker-1' })
      .getByRole('button', { name: 'Other action' })
      .click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('radio', { name: /^Reset/ }).check();
    await dialog.getByRole('button', { name: 'Review' }).click();
    await dialog.getByText('The machine is wiped.').waitFor();
    await dialog.getByText('Gone for good').waitFor();
    expect(await dialog.locator('code').innerText()).toContain('ichor node reset');
    const [start, name] = [
      dialog.getByRole('button', { name: 'Start', exact: true }),
      dialog.getByLabel('Type charlie-worker-1 to confirm'),
    ];
    for (const typed of ['', 'charlie', 'charlie-worker-']) {
      await name.fill(typed);
      expect(await start.getAttribute('aria-disabled'), typed).toBe('true');
      await name.press('Enter');
      await start.click({ force: true });
    }
    await dialog.getByText('This is not charlie-worker-1.').waitFor();
    await checkPage(seen);
    const other = await seen.context.newPage();
    await other.goto(`${hub.url}/clusters/default/charlie`);
    await other.getByText('No operation waits.').waitFor();
    await other.close();

    await name.fill('charlie-worker-1');
    expect(await start.getAttribute('aria-disabled')).toBeNull();
    await start.click();
    await page.waitForURL(/\/operations\/default\/charlie-/);
    await page.getByText('Reset', { exact: true }).first().waitFor();
    await page.getByText('1 of 1 machines').waitFor({ timeout: 90_000 });
    await page
      .getByRole('status')
      .getByText(/is completed/)
      .waitFor({ state: 'attached' });
    await page.getByRole('button', { name: /charlie-worker-1/ }).click();
    await page
      .getByText(/^Resetting: /)
      .last()
      .waitFor();
    await checkPage(seen);
    await seen.context.close();
  });

  it('upgrades Kubernetes through the page', async () => {
    const seen = await signIn();
    const { page } = seen;
    await openCluster(page, 'delta');
    await page.getByRole('button', { name: 'Kubernetes upgrade' }).click();
    await page.getByLabel('Kubernetes version').fill('v1.36.2');
    await page.getByRole('button', { name: 'Review' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('region', { name: 'Controller manager' }).waitFor();
    expect(await dialog.locator('code').innerText()).toContain('ichor upgrade kubernetes v1.36.2');
    await checkPage(seen);
    await dialog.getByRole('button', { name: 'Start', exact: true }).click();
    await page.waitForURL(/\/operations\/default\/delta-kubernetes-/);
    await page
      .getByRole('list', { name: 'Stages' })
      .getByRole('listitem')
      .filter({ hasText: 'API server' })
      .waitFor({ timeout: 90_000 });
    await page.getByText('2 of 2 machines').waitFor({ timeout: 90_000 });
    await page
      .getByRole('status')
      .getByText(/is completed/)
      .waitFor({ state: 'attached', timeout: 90_000 });
    await checkPage(seen);
    await page.getByRole('link', { name: 'delta', exact: true }).click();
    await page.getByRole('table', { name: 'Machines' }).getByText('v1.36.2').nth(1).waitFor();
    await seen.context.close();
  }, 240_000);

  it('pauses and resumes, and survives that the hub goes away meanwhile', async () => {
    const seen = await signIn();
    const { page } = seen;
    await upgrade(page, 'bravo');
    await page.getByRole('dialog').getByRole('button', { name: 'Start', exact: true }).click();
    await page.getByRole('button', { name: 'Pause', exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Pause', exact: true }).click();
    await page.getByText('Somebody paused it').waitFor({ timeout: 90_000 });
    const at = await page.getByText(/^\d of 3 machines$/).innerText();
    await checkPage(seen);

    const back = await hub.away();
    try {
      await page.getByText(/^Not live: /).waitFor();
      expect(await page.getByText(at).count()).toBe(1);
      await checkPage(seen, away);
    } finally {
      await back();
    }
    await page.getByText('Live', { exact: true }).waitFor();
    await page.getByText('Somebody paused it').waitFor();

    await page.getByRole('button', { name: 'Resume', exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Resume', exact: true }).click();
    await page.getByText('3 of 3 machines').waitFor({ timeout: 90_000 });
    await checkPage(seen, away);
    await seen.context.close();
  }, 240_000);

  it('lets a viewer in with a token, and says why nothing can be started', async () => {
    const seen = await visit(browser, `${hub.url}/clusters/default/delta`, { user: '' });
    const { page } = seen;
    await page.getByLabel('Token').fill('not a token');
    await page.getByRole('button', { name: 'Sign in with a token' }).click();
    await page.getByText('The token was not accepted.').waitFor();
    await page.getByLabel('Token').fill(await hub.viewer());
    await page.getByRole('button', { name: 'Sign in with a token' }).click();
    await page.getByRole('heading', { level: 1, name: 'delta' }).waitFor();
    const start = page.getByRole('button', { name: 'Talos upgrade' });
    expect(await start.getAttribute('aria-disabled')).toBe('true');
    await page.getByText('You may not create, pause or delete operations in namespace default.').first().waitFor();
    await start.click({ force: true });
    expect(await page.getByRole('dialog').count()).toBe(0);
    await checkPage(seen, [/401/]);
    await page.goto(`${hub.url}/session`);
    await page.getByText('You may read only.').waitFor();
    await seen.context.close();
  });

  it('signs in with an identity provider, and leads back to where somebody wanted to go', async () => {
    const seen = await visit(browser, `${hub.url}/session?from=provider`, { user: '' });
    const { page } = seen;
    await page.getByRole('link', { name: /^Sign in with localhost:/ }).click();
    await page.getByRole('heading', { name: 'ada@example.com' }).waitFor();
    expect(page.url()).toBe(`${hub.url}/session?from=provider`);
    await page.getByText('identity provider').waitFor();
    await page.getByText('platform, oncall').waitFor();
    await page.getByText('You may not read anything in this hub.').waitFor();
    await checkPage(seen, [/401/]);

    await hub.let('ada@example.com');
    await page.goto(`${hub.url}/clusters/default/delta`);
    await page.getByRole('heading', { level: 1, name: 'delta' }).waitFor();
    await page.getByText('You may not create, pause or delete operations in namespace default.').first().waitFor();
    await checkPage(seen, [/401/]);

    await page.getByRole('button', { name: /^Preferences/ }).click();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('link', { name: /^Sign in with localhost:/ }).waitFor();
    // Whoever does not get in is led on.
    await page.goto(`${hub.url}/auth/callback?error=access_denied&state=another-browser`);
    await page.getByText(/^this is not the end of an attempt to sign in from this browser/).waitFor();
    await page.getByRole('link', { name: 'Back to the hub' }).click();
    await page.getByRole('link', { name: /^Sign in with localhost:/ }).waitFor();
    await checkPage(seen, [/40[01]/]);
    await seen.context.close();
  });

  it('keeps the audit, and follows it', async () => {
    const seen = await signIn();
    const { page } = seen;
    await page.goto(`${hub.url}/audit?follow=1`);
    const table = page.getByRole('table', { name: 'Audit' });
    await table.getByText('CreateOperation').first().waitFor();
    const before = await table.getByText('HoldMachine').count();
    const other = await seen.context.newPage();
    await other.goto(`${hub.url}/clusters/default/delta`);
    await other
      .getByRole('group', { name: 'Actions of worker-1' })
      .getByRole('button', { name: 'Hold', exact: true })
      .click();
    await other.getByLabel('Why (for others)').fill('disk is being replaced');
    await other.getByRole('dialog').getByRole('button', { name: 'Hold', exact: true }).click();
    await other.getByText('Held: rolling operations skip it').waitFor();
    await table.getByText('HoldMachine').nth(before).waitFor();
    await checkPage(seen);
    await seen.context.close();
  });

  it('speaks Japanese, in the dark', async () => {
    const seen = await signIn({ language: 'ja', theme: 'dark' });
    const { page } = seen;
    await page.getByRole('heading', { level: 1, name: 'フリート' }).waitFor();
    await page.getByText('4 クラスター').first().waitFor();
    expect(await page.evaluate(() => [document.documentElement.lang, document.documentElement.dataset.theme])).toEqual([
      'ja',
      'dark',
    ]);
    await checkPage(seen);
    await seen.context.close();
  });
});
