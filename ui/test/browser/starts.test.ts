// SPDX-License-Identifier: Apache-2.0
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { OperationParameters } from '../../src/gen/ichor/v1alpha1/operation_pb';
import { OperationKind } from '../../src/gen/ichor/v1alpha1/operation_pb';
import { exampleFleet } from '../fake/fleet';
import type { FakeHub } from '../fake/server';
import { serveWorld } from '../fake/server';
import type { Orders } from '../fake/service';
import type { World } from '../fake/world';
import type { Options, Visit } from './browser';
import { checkPage, launch, shoot, visit } from './browser';

/** Each kind through Review and Start. What the hub does with them is the business of its own tests. */
describe('a start', () => {
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

  async function open(orders: Partial<Orders> = {}, options: Options = {}): Promise<Page> {
    world = exampleFleet();
    hub = await serveWorld(world);
    Object.assign(hub.orders, orders);
    seen = await visit(browser, `${hub.url}/clusters/platform/alpha`, options);
    await seen.page.getByRole('heading', { level: 1, name: 'alpha' }).waitFor();
    return seen.page;
  }

  /** begin starts what was reviewed, and returns what the hub was asked for. */
  async function begin(page: Page): Promise<OperationParameters['parameters'] | undefined> {
    await page.getByRole('dialog').getByRole('button', { name: 'Start', exact: true }).click();
    await page.waitForURL(/\/operations\/platform\//);
    const name = new URL(page.url()).pathname.split('/').at(-1);
    return world.operations.get(`platform/${name}`)?.parameters?.parameters;
  }

  it('of a Kubernetes upgrade shows from where to where', async () => {
    const page = await open();
    await page.getByRole('button', { name: 'Kubernetes upgrade' }).click();
    await page.getByLabel('Kubernetes version').fill('1.36.2');
    await page.keyboard.press('Enter');
    const dialog = page.getByRole('dialog');
    await dialog.getByText('Components restart; machines stay up.').waitFor();
    await dialog.getByText('v1.35.1').waitFor();
    expect(await dialog.locator('code').innerText()).toContain('ichor upgrade kubernetes v1.36.2');
    await checkPage(seen);
    await begin(page);
  });

  it('of a config roll-out shows what changes on each machine, and takes those that were chosen', async () => {
    const page = await open({}, { width: 390, height: 844 });
    await page.getByRole('button', { name: 'Config roll-out' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('Something waits on it: a config is tried until 10:42').waitFor();
    expect(await dialog.getByText('In force at once').count()).toBe(3);
    expect(await dialog.getByText('Needs a reboot').count()).toBe(2);
    await dialog.getByText('Changes to the config of w-1').click();
    await dialog.locator('details[open]').getByText('+        net.core.somaxconn: "4096"').waitFor();
    await shoot(page, 'start-config-390');
    await checkPage(seen);
    const boxes = await dialog.getByRole('checkbox').all();
    for (const box of boxes) {
      await box.uncheck();
    }
    await dialog.getByRole('button', { name: 'Review' }).click();
    await dialog.getByText('Choose a machine.').waitFor();
    await dialog.getByRole('checkbox', { name: 'w-2' }).check();
    await dialog.getByRole('button', { name: 'Review' }).click();
    await dialog.getByText('Changes to machine configs').waitFor();
    await dialog.getByText('reboots', { exact: true }).waitFor();
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
    await checkPage(seen);
    expect(await begin(page)).toMatchObject({ case: 'config', value: { machines: ['alpha-w-2'] } });
  });

  it('of a reset says what is gone for good, and wants the name of the machine typed', async () => {
    const page = await open();
    await page.getByRole('group', { name: 'Actions of w-1' }).getByRole('button', { name: 'Other action' }).click();
    const dialog = page.getByRole('dialog');
    expect(await dialog.getByRole('radio', { name: /etcd/ }).count()).toBe(0);
    await dialog.getByRole('radio', { name: /^Reset/ }).check();
    await dialog.getByRole('radio', { name: 'The system and the user volumes' }).check();
    await shoot(page, 'start-reset-1440');
    await checkPage(seen);
    await dialog.getByRole('button', { name: 'Review' }).click();
    await dialog.getByText('Gone for good').waitFor();
    await dialog.getByText('the user volume data: 412 GiB').waitFor();
    const start = dialog.getByRole('button', { name: 'Start', exact: true });
    expect(await start.getAttribute('aria-disabled')).toBe('true');
    await dialog.getByLabel('Type alpha-w-1 to confirm').fill('alpha-w-1');
    await shoot(page, 'review-reset-1440');
    await checkPage(seen);
    expect(await begin(page)).toMatchObject({
      case: 'node',
      value: { machine: 'alpha-w-1', action: 'Reset', reset: { wipe: ['System', 'UserVolumes'] } },
    });
  });

  it('of a shutdown has a word about the snapshot, and the name of the cluster', async () => {
    const page = await open();
    await page.getByRole('button', { name: 'Shut the cluster down' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'Review' }).click();
    await dialog.getByText('Say whether a snapshot is taken.').waitFor();
    expect(await page.evaluate(() => (document.activeElement as HTMLInputElement).type)).toBe('radio');
    await checkPage(seen);
    await page.keyboard.press('Space');
    await page.keyboard.press('Enter');
    await dialog.getByLabel('Type alpha to confirm').fill('alpha');
    expect(await begin(page)).toMatchObject({ case: 'shutdown', value: { action: 'Stop', snapshot: 'Take' } });
  });

  it('of a cluster that is down, and of etcd on all of its members', async () => {
    const page = await open();
    await page.getByRole('button', { name: 'Defragment etcd' }).click();
    const dialog = page.getByRole('dialog', { name: 'Defragment etcd: alpha' });
    await dialog.getByRole('radio', { name: /^Disarm the alarm/ }).check();
    await dialog.getByRole('button', { name: 'Review' }).click();
    await dialog.getByText('3 machines').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Start the cluster up' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Review' }).click();
    expect(await begin(page)).toMatchObject({ case: 'shutdown', value: { action: 'Start', snapshot: '' } });
  });

  it('is there for what the hub knows only, and says which right is missing', async () => {
    const page = await open({ kinds: [OperationKind.TALOS, OperationKind.NODE], starts: ['node-reboot'] });
    await page.getByRole('button', { name: 'Talos upgrade' }).waitFor();
    for (const name of ['Kubernetes upgrade', 'Config roll-out', 'Shut the cluster down', 'Start the cluster up']) {
      expect(await page.getByRole('button', { name }).count(), name).toBe(0);
    }
    await page.getByRole('group', { name: 'Actions of cp-1' }).getByRole('button', { name: 'Reboot' }).click();
    const dialog = page.getByRole('dialog');
    const review = dialog.getByRole('button', { name: 'Review' });
    expect(await review.getAttribute('aria-disabled')).toBeNull();
    await dialog.getByRole('radio', { name: /^Forfeit etcd leadership/ }).check();
    await dialog.getByText(/verb start on talosoperations\/node-etcd-forfeit-leadership/).waitFor();
    expect(await review.getAttribute('aria-disabled')).toBe('true');
    await review.click({ force: true });
    expect(await dialog.locator('code').count()).toBe(0);
    await checkPage(seen);
  });
});
