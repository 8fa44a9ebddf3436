// SPDX-License-Identifier: Apache-2.0
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { OperationPhase } from '../../src/gen/ichor/v1alpha1/operation_pb';
import { Attention } from '../../src/gen/ichor/v1alpha1/types_pb';
import { exampleFleet, largeFleet } from '../fake/fleet';
import type { FakeHub } from '../fake/server';
import { serveWorld } from '../fake/server';
import type { World } from '../fake/world';
import type { Options, Visit } from './browser';
import { checkPage, launch, shoot, visit } from './browser';
import { liveSizes, sumOf } from './heap';

/** What can be shown with a hub that does as it is told, and not with a real one: what is rare, what is large, and what needs exact times. */
describe('the page', () => {
  let browser: Browser;
  let hub: FakeHub;
  let world: World;
  let seen: Visit;

  beforeAll(async () => {
    browser = await launch();
  });
  afterAll(() => browser.close());
  afterEach(async () => {
    await seen.context.close();
    await hub.close();
  });

  async function open(path: string, options: Options = {}, of: World = exampleFleet()) {
    world = of;
    hub = await serveWorld(world);
    seen = await visit(browser, hub.url + path, options);
    await seen.page.getByText(/^(Live|ライブ)$/).waitFor();
    return seen.page;
  }

  it('wants the name of the cluster typed where the plan says so', async () => {
    const page = await open('/clusters/platform/alpha');
    hub.orders.confirmName = true;
    await page.getByRole('button', { name: 'Talos upgrade' }).click();
    await page.getByLabel('Talos version').fill('1.14.1');
    await page.keyboard.press('Enter');
    const dialog = page.getByRole('dialog');
    const start = dialog.getByRole('button', { name: 'Start', exact: true });
    const typed = dialog.getByLabel('Type alpha to confirm');
    await typed.fill('alph');
    await dialog.getByText('This is not alpha.').waitFor();
    await typed.press('Enter');
    expect(await start.getAttribute('aria-disabled')).toBe('true');
    await checkPage(seen);
    await typed.fill('alpha');
    await start.click();
    await page.waitForURL(/\/operations\/platform\/talos-alpha-/);
    await page.getByText('5 of 5 machines').waitFor();
  });

  it('bypasses a gate with a reason, which is kept', async () => {
    const page = await open('/clusters/platform/alpha');
    await page.getByRole('button', { name: 'Talos upgrade' }).click();
    await page.getByLabel('Talos version').fill('v1.15.0');
    await page.getByRole('button', { name: 'Review' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('Refused: path of Talos versions (TalosVersionPath)').waitFor();
    const focused = () => page.evaluate(() => document.activeElement?.getAttribute('aria-label'));
    await expect.poll(focused).toBe('Review');
    await dialog.getByRole('button', { name: 'Override with a reason' }).click();
    const reason = dialog.getByLabel(/^Reason to override path of Talos versions/);
    await reason.fill('agreed in CHG-123');
    await checkPage(seen);
    await dialog.getByRole('button', { name: 'Review with this override' }).click();
    await dialog.getByText('Overridden: path of Talos versions (TalosVersionPath)').waitFor();
    await expect.poll(focused).toBe('Review');
    await dialog.getByRole('button', { name: 'Start', exact: true }).click();
    await page.getByText('path of Talos versions (TalosVersionPath): agreed in CHG-123').waitFor();
    expect(world.audit[0]?.overrides).toMatchObject([{ gate: 'TalosVersionPath', reason: 'agreed in CHG-123' }]);
  });

  it('complains about a version when somebody goes on, and leads to the field', async () => {
    const page = await open('/clusters/platform/alpha');
    await page.getByRole('button', { name: 'Talos upgrade' }).click();
    const field = page.getByLabel('Talos version');
    await field.fill('latest');
    expect(await page.getByText('A final version such as v1.11.3.').count()).toBe(0);
    await page.getByRole('button', { name: 'Review' }).click();
    await page.getByText('A final version such as v1.11.3.').waitFor();
    expect(await field.evaluate((element) => element === document.activeElement)).toBe(true);
    await checkPage(seen);
  });

  it('can be used with the keyboard alone', async () => {
    const page = await open('/');
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Keyboard' }).waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.waitForTimeout(100); // The focus goes back where it was, which no event tells.
    await page.keyboard.press('/');
    await page.keyboard.type('a');
    await page.waitForURL(/q=a$/);
    // From the search on: state, group, the button that clears the filter, seven titles, of which six can be pressed, and then the table.
    const inTable = () =>
      page.evaluate(() => document.activeElement?.closest('[data-row]')?.getAttribute('data-row') ?? '');
    for (let i = 0; i < 12 && (await inTable()) === ''; i++) {
      await page.keyboard.press('Tab');
    }
    expect(await inTable()).toBe('platform/alpha');
    await page.keyboard.press('ArrowDown');
    await expect.poll(inTable).toBe('retail/bravo');
    await page.keyboard.press('End');
    await expect.poll(inTable).toBe('edge/lima');
    await page.keyboard.press('Home');
    await expect.poll(inTable).toBe('platform/alpha');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'alpha' }).waitFor();

    await page.getByRole('button', { name: 'Talos upgrade' }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    await expect.poll(() => page.evaluate(() => document.activeElement?.textContent)).toBe('Talos upgrade');
    await page.keyboard.press('g');
    await page.keyboard.press('o');
    await page.getByRole('heading', { level: 1, name: 'Operations' }).waitFor();
    await checkPage(seen);
  });

  it('starts, pauses and resumes an operation with the keyboard alone', async () => {
    const page = await open('/clusters/platform/alpha');
    await page.getByRole('button', { name: 'Talos upgrade' }).waitFor();
    const tabTo = async (name: string) => {
      const reached = () => page.evaluate(() => document.activeElement?.textContent ?? '');
      // A button that cannot be pressed yet is passed by, round after round.
      const step = async () => {
        if ((await reached()) !== name) {
          await page.keyboard.press('Tab');
        }
        return reached();
      };
      await expect.poll(step, { timeout: 20_000, interval: 5 }).toBe(name);
    };
    await tabTo('Talos upgrade');
    await page.keyboard.press('Enter');
    // The first field has the focus.
    await page.getByLabel('Talos version').waitFor();
    await expect.poll(() => page.evaluate(() => document.activeElement?.tagName)).toBe('INPUT');
    await page.keyboard.press('ControlOrMeta+a');
    await page.keyboard.type('v1.14.1');
    await page.keyboard.press('Enter');
    await page.getByText('Order of the machines').waitFor();
    await tabTo('Start');
    hub.orders.stepLength = 60_000; // Who types is slower than the fake: it must not be over before it is paused.
    await page.keyboard.press('Enter');
    await page.waitForURL(/\/operations\/platform\/talos-alpha-/);
    for (const name of ['Pause', 'Resume']) {
      await page.getByRole('button', { name, exact: true }).waitFor();
      await tabTo(name);
      await page.keyboard.press('Enter');
      await page.getByRole('dialog').waitFor();
      await tabTo(name);
      await page.keyboard.press('Enter');
      await page.getByRole('dialog').waitFor({ state: 'detached' });
      hub.orders.stepLength = 60;
    }
    await page.getByText('5 of 5 machines').waitFor();
    await tabTo('alpha-cp-1completed · 0 sec');
    await checkPage(seen);
  });

  it('tells the steps of a machine to who has no pointer to rest on a bar', async () => {
    const page = await open('/operations/retail/talos-bravo-x7k2p', { width: 390, height: 844 });
    const lane = page.getByRole('button', { name: /^bravo-cp-1/ });
    await lane.click();
    await page
      .getByText(/^Verifying: 35 sec, from /)
      .last()
      .waitFor();
    await shoot(page, 'steps-390', true);
    await checkPage(seen);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
    await lane.press('Enter');
    expect(await lane.getAttribute('aria-expanded')).toBe('false');
  });

  it('goes on where the stream was cut, without reading everything again', async () => {
    const page = await open('/');
    const calls: number[] = [];
    page.on('response', async (response) => {
      if (response.url().endsWith('/WatchClusters')) {
        calls.push(response.status());
      }
    });
    await page.getByRole('link', { name: 'india' }).focus();
    hub.cut();
    await page.getByText(/^Not live: /).waitFor();
    expect(await page.getByRole('grid').getByRole('row').count()).toBe(13);
    const india = world.clusters.get('edge/india');
    world.putCluster({ ...india, attention: Attention.PERSON, attentionReason: 'somebody pulled the plug' });
    const sent = hub.orders.sent;
    hub.mend();
    await page.getByText('somebody pulled the plug').first().waitFor();
    await page.getByText('Live', { exact: true }).waitFor();
    expect(calls).toEqual([200]);
    expect(hub.orders.sent - sent).toBe(1);
    expect(await page.evaluate(() => document.activeElement?.textContent)).toBe('india');
    await expect.poll(() => page.getByRole('status').textContent()).toMatch(/india needs a person|live again/);
    await checkPage(seen, [/net::ERR_/]);
  });

  it('keeps nothing of what a stream has brought and what was replaced since', async () => {
    const page = await open('/', {}, largeFleet(20));
    const session = await seen.context.newCDPSession(page);
    await session.send('HeapProfiler.enable');
    const keys = [...world.clusters.keys()];
    const change = async (count: number) => {
      const { sent } = hub.orders;
      for (let i = 0; i < count; i++) {
        const cluster = world.clusters.get(keys[i % keys.length] ?? '');
        world.putCluster({ ...cluster, machinesReady: i % 3 });
      }
      const last = world.clusters.get(keys[0] ?? '');
      world.putCluster({ ...last, attention: Attention.PERSON, attentionReason: `change ${count} was the last` });
      await page.getByText(`change ${count} was the last`).first().waitFor();
      expect(hub.orders.sent - sent).toBe(count + 1);
    };
    // Functions, and what waits for them: one of each for every message was 150 bytes.
    const held = async () => sumOf(await liveSizes(session), (sort) => /closure|Promise|Context/.test(sort));
    await change(2_000);
    const before = await held();
    await change(4_000);
    expect((await held()) - before).toBeLessThan(4_000 * 20);
  });

  it('forgets what is gone when the hub has to send everything again', async () => {
    const page = await open('/');
    hub.cut();
    await page.getByText(/^Not live: /).waitFor();
    world.removeCluster('edge/lima');
    world.forget();
    hub.mend();
    await page.getByText('11 clusters').waitFor();
    expect(await page.getByRole('link', { name: 'lima' }).count()).toBe(0);
    await checkPage(seen, [/net::ERR_/]);
  });

  it('keeps the place and the focus while rows come and go above', async () => {
    const page = await open('/?sort=-state', {}, largeFleet(2_000));
    await page.getByText('2,000 clusters').waitFor();
    await page.getByRole('grid').getByRole('link').first().focus();
    for (let i = 0; i < 40; i++) {
      await page.keyboard.press('PageDown');
    }
    const place = () =>
      page.evaluate(() => {
        const row = document.activeElement?.closest('[data-row]');
        return { key: row?.getAttribute('data-row') ?? '', top: Math.round(row?.getBoundingClientRect().top ?? -1) };
      });
    await expect.poll(async () => (await place()).key).not.toBe('');
    await page.waitForTimeout(300);
    const before = await place();
    for (let index = 1_000; index < 1_020; index++) {
      const cluster = [...world.clusters.values()][index];
      world.putCluster({ ...cluster, attention: Attention.FAILED, attentionReason: 'a step failed' });
    }
    await page.getByRole('link', { name: /^20 Failed$/ }).waitFor();
    await page.waitForTimeout(300);
    expect(await place()).toEqual(before);
  });

  it('shows a viewer why nothing can be done', async () => {
    const page = await open('/operations/retail/talos-bravo-x7k2p', { user: 'viewer' });
    for (const name of ['Retry', 'Pause', 'Delete']) {
      expect(await page.getByRole('button', { name, exact: true }).getAttribute('aria-disabled')).toBe('true');
    }
    await page.getByText('You may not create, pause or delete operations in namespace retail.').first().waitFor();
    await checkPage(seen);
  });

  it('tells who presses a dead button why it is dead', async () => {
    const page = await open('/clusters/retail/bravo', { width: 390, height: 844 });
    const row = page.getByRole('group', { name: 'Actions of w-1' });
    await row.getByRole('button', { name: 'Reboot' }).click({ force: true });
    await row.getByText('Operation talos-bravo-x7k2p is not over.').first().waitFor();
    expect(await page.getByRole('dialog').count()).toBe(0);
    await checkPage(seen);
  });

  it('comes to the operation that was deleted elsewhere', async () => {
    const page = await open('/operations/platform/talos-golf-m4n8q');
    world.removeOperation('platform/talos-golf-m4n8q');
    await page.getByText('There is no operation platform/talos-golf-m4n8q').waitFor();
    await checkPage(seen);
  });

  it('has operations of every cluster, and pages of those that are over', async () => {
    const page = await open('/operations');
    await page.getByText('3 operations are not over').waitFor();
    const done = page.getByRole('table', { name: 'Completed' });
    expect(await done.getByRole('row').count()).toBe(26);
    await page.getByRole('button', { name: 'Show more' }).click();
    await expect.poll(() => done.getByRole('row').count()).toBe(41);
    const golf = world.operations.get('platform/talos-golf-m4n8q');
    world.putOperation({
      ...golf,
      phase: OperationPhase.COMPLETED,
      lockHeld: false,
      completionTime: { seconds: BigInt(Math.floor(Date.now() / 1_000)), nanos: 0 },
    });
    await page.getByText('2 operations are not over').waitFor();
    await done.getByRole('link', { name: 'talos-golf-m4n8q' }).waitFor();
    await checkPage(seen);
  });

  it('changes language, theme and time zone without losing anything', async () => {
    const page = await open('/audit?result=denied');
    await page
      .getByText(/GMT\+1/)
      .first()
      .waitFor();
    await page.getByRole('button', { name: /^Preferences/ }).click();
    await page.getByLabel('Time zone').selectOption('Asia/Tokyo');
    await page
      .getByText(/GMT\+9/)
      .first()
      .waitFor();
    await page.getByLabel('Theme').selectOption('dark');
    await page.getByLabel('Language').selectOption('ja');
    await page.getByRole('heading', { level: 1, name: '監査' }).waitFor();
    await checkPage(seen);
    await page.reload();
    await page.getByRole('heading', { level: 1, name: '監査' }).waitFor();
    expect(await page.evaluate(() => document.documentElement.dataset.theme)).toBe('dark');
    expect(new URL(page.url()).search).toBe('?result=denied');
    await page
      .getByText(/JST|GMT\+9/)
      .first()
      .waitFor();
    await checkPage(seen);
  });

  it('works on a phone, where nothing scrolls sideways', async () => {
    const page = await open('/', { width: 390, height: 844 });
    for (const path of [
      '/',
      '/clusters/retail/bravo',
      '/operations',
      '/operations/retail/talos-bravo-x7k2p',
      '/audit',
      '/session',
    ]) {
      await page.goto(hub.url + path);
      await page.getByRole('heading', { level: 1 }).waitFor();
      await page.getByText('Live', { exact: true }).waitFor();
      expect(await page.evaluate(() => document.documentElement.scrollWidth), path).toBeLessThanOrEqual(390);
    }
    await page.goto(`${hub.url}/clusters/platform/alpha`);
    await page.getByRole('button', { name: 'Talos upgrade' }).click();
    await page.getByLabel('Talos version').fill('v1.14.1');
    await page.getByRole('button', { name: 'Review' }).click();
    await page.getByText('Order of the machines').waitFor();
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
    await checkPage(seen);
  });

  it('leads back to where somebody wanted to go after the sign-in', async () => {
    world = exampleFleet();
    hub = await serveWorld(world);
    seen = await visit(browser, `${hub.url}/clusters/platform/alpha?x=1`, { user: '' });
    const { page } = seen;
    await page.getByRole('link', { name: /id\.example\.com/ }).waitFor();
    expect(await page.getByRole('link', { name: /id\.example\.com/ }).getAttribute('href')).toBe(
      '/auth/login?return=%2Fclusters%2Fplatform%2Falpha%3Fx%3D1',
    );
    expect(await page.getByText('The session is over.').count()).toBe(0);
    await checkPage(seen, [/401/]);
    await page.getByLabel('Token').fill('admin-token');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'alpha' }).waitFor();
    await page.getByRole('button', { name: /^Preferences/ }).click();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByLabel('Token').waitFor();
  });

  it('says that the session is over when it is', async () => {
    const page = await open('/');
    await seen.context.clearCookies();
    hub.cut();
    await page.getByText(/^Not live: /).waitFor();
    hub.mend();
    await page.getByText('The session is over. Sign in again.').waitFor();
    await checkPage(seen, [/401/, /net::ERR_/]);
  });

  it('says that it is not there, and leads to the fleet', async () => {
    const page = await open('/nowhere');
    await page.getByText('There is no such page.').waitFor();
    await page.getByRole('link', { name: 'To the fleet' }).click();
    await page.getByRole('heading', { level: 1, name: 'Fleet' }).waitFor();
    await checkPage(seen);
  });
});
