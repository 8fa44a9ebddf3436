// SPDX-License-Identifier: Apache-2.0
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { OperationKind } from '../../src/gen/ichor/v1alpha1/operation_pb';
import { ConditionStatus } from '../../src/gen/ichor/v1alpha1/types_pb';
import { conditions, exampleFleet } from '../fake/fleet';
import type { FakeHub } from '../fake/server';
import { serveWorld } from '../fake/server';
import type { Orders } from '../fake/service';
import type { World } from '../fake/world';
import type { Options, Visit } from './browser';
import { checkPage, launch, shoot, visit } from './browser';

/** What people are most afraid of: snapshots, restores and rotations, from the dialog to the end. */
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

  async function open(options: Options = {}, orders: Partial<Orders> = {}, path = '/clusters/platform/alpha') {
    world = exampleFleet();
    hub = await serveWorld(world);
    Object.assign(hub.orders, orders);
    seen = await visit(browser, hub.url + path, options);
    await seen.page.getByRole('heading', { level: 1 }).waitFor();
    await seen.page.getByText(/^(Live|ライブ)$/).waitFor();
    return seen.page;
  }

  /** begin types the name, starts what was reviewed, and returns what the hub was asked for. */
  async function begin(page: Page) {
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Type alpha to confirm').fill('alpha');
    await dialog.getByRole('button', { name: 'Start', exact: true }).click();
    await page.waitForURL(/\/operations\/platform\//);
    return world.operations.get(`platform/${new URL(page.url()).pathname.split('/').at(-1)}`)?.parameters?.parameters;
  }

  const stages = (page: Page) => page.getByRole('list', { name: 'Stages' });
  const now = (page: Page) => stages(page).locator('[aria-current=step]');
  const narrow = (page: Page) => page.evaluate(() => document.documentElement.scrollWidth);
  const announced = (page: Page) => page.locator('[aria-live=polite].visually-hidden').first();

  it('lists snapshots: what a restore is judged by, and what is wrong with one', async () => {
    const page = await open();
    const table = page.getByRole('table', { name: 'Snapshots' });
    await table.getByText('s3://backups: connection refused').waitFor();
    await page.getByText(/Last good one 3 hours ago/).waitFor();
    const day = table.getByRole('row').filter({ hasText: 'alpha-day-0' });
    for (const words of [
      'Stored',
      'by schedule',
      '46.0 MiB',
      '8,412,233',
      'Kubernetes v1.35.1',
      'etcd v3.6.8',
      'yes',
    ]) {
      expect(await day.getByText(words, { exact: false }).count(), words).toBeGreaterThan(0);
    }
    const restore = (name: string) => table.getByRole('button', { name: `Restore ${name}`, exact: true });
    expect(await restore('alpha-failing').getAttribute('title')).toBe('The snapshot is not stored yet.');
    expect(await restore('alpha-day-0').getAttribute('aria-disabled')).toBeNull();
    expect(await table.getByRole('row').count()).toBe(11);
    await page.getByRole('region', { name: 'Snapshots' }).getByRole('button', { name: 'Show more' }).click();
    await expect.poll(() => table.getByRole('row').count()).toBe(16);
    await shoot(page, 'snapshots-1440', true);
    await checkPage(seen);
  });

  it('takes a snapshot, and shows what becomes of it', async () => {
    const page = await open({}, { stepLength: 1_500 });
    await page.getByRole('button', { name: 'Take snapshot' }).click();
    const dialog = page.getByRole('dialog', { name: 'Take a snapshot of alpha' });
    await dialog.getByLabel(/^Name/).fill('before-migration');
    await dialog.getByText('ichor snapshot take --cluster alpha --name before-migration -n platform').waitFor();
    await shoot(page, 'take-snapshot-1440');
    await checkPage(seen);
    await page.keyboard.press('Enter');
    const row = page.getByRole('row').filter({ hasText: 'before-migration' });
    await row.getByText('Being taken').waitFor();
    await row.getByText('Stored').waitFor();
    await page.getByText(/Last good one (now|\d+ seconds? ago)/).waitFor();
  });

  it('restores a snapshot: with a word about what runs now, and the name of the cluster', async () => {
    const page = await open();
    await page.getByRole('button', { name: 'Restore alpha-manual', exact: true }).click();
    const dialog = page.getByRole('dialog', { name: 'etcd restore: alpha' });
    await dialog.getByText('alpha-manual').waitFor();
    expect(await dialog.getByRole('radio', { name: /^Its hash/ }).isChecked()).toBe(true);
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'hidden' });
    await page.getByRole('button', { name: 'Restore alpha-day-1', exact: true }).click();
    await dialog.getByText('alpha-day-1').waitFor();
    expect(await dialog.getByRole('radio', { name: /^Its hash/ }).count()).toBe(0);
    await shoot(page, 'start-restore-1440');
    await dialog.getByRole('button', { name: 'Review' }).click();
    await dialog.getByText('Say whether a snapshot is taken.').waitFor();
    expect(await page.evaluate(() => (document.activeElement as HTMLInputElement).type)).toBe('radio');
    await checkPage(seen);
    await dialog.getByRole('radio', { name: /^Take one/ }).check();
    await dialog.getByRole('button', { name: 'Review' }).click();
    await dialog.getByText('Gone for good').waitFor();
    await dialog.getByText('Time goes back.').waitFor();
    await shoot(page, 'review-restore-1440');
    await checkPage(seen);
    expect(await begin(page)).toMatchObject({
      case: 'etcdRestore',
      value: { snapshotName: 'alpha-day-1', safetySnapshot: 'Take', integrity: '' },
    });
    await page.getByText('Completed', { exact: true }).first().waitFor();
    expect(await page.getByRole('button', { name: 'Turn back' }).count()).toBe(0);
    await expect.poll(() => stages(page).getByRole('listitem').count()).toBe(8);
    await checkPage(seen);
  });

  it('rotates authorities: waits for people, and drops what is old when they have confirmed', async () => {
    const page = await open();
    await page.getByRole('button', { name: 'CA rotation' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText(/^Not rotated: the authorities of etcd and of the API aggregator/).waitFor();
    await dialog.getByRole('radio', { name: /^Talos API/ }).check();
    await shoot(page, 'start-ca-1440');
    await checkPage(seen);
    await dialog.getByRole('button', { name: 'Review' }).click();
    await dialog.getByText('Not everything is rotated.').waitFor();
    await dialog.getByText('in the same order as Talos: accept').first().waitFor();
    await shoot(page, 'review-ca-1440');
    expect(await begin(page)).toMatchObject({ case: 'caRotation', value: { authorities: ['Talos'] } });

    await page.getByText('Take the new talosconfig, then confirm').waitFor();
    await now(page).getByText('Talos: hand over', { exact: true }).waitFor();
    expect(await stages(page).getByRole('listitem').allInnerTexts()).toEqual([
      expect.stringContaining('Prepare'),
      expect.stringContaining('Talos: accept'),
      expect.stringContaining('Talos: trust both'),
      expect.stringContaining('Talos: swap'),
      'Talos: hand over',
      expect.stringMatching(/Talos: drop\s+to come/),
      expect.stringMatching(/Finish\s+to come/),
    ]);
    const lane = page.getByRole('listitem').filter({ hasText: 'alpha-w-1' }).first();
    await lane.getByText('Proof, Talos: swap: the API at 10.0.0.13 proves TalosSwap').waitFor();
    await shoot(page, 'operation-awaits-1440', true);
    await checkPage(seen);
    await page.getByRole('button', { name: 'Confirm', exact: true }).click();
    const confirm = page.getByRole('dialog', { name: /^Confirm: ca-rotation-alpha/ });
    await confirm.getByText(/there is no way back\.$/).waitFor();
    await confirm.getByText(/ichor operation confirm ca-rotation-alpha-1 --stage TalosAwaitingCredentials/).waitFor();
    await shoot(page, 'confirm-ca-1440');
    await checkPage(seen);
    await confirm.getByRole('button', { name: 'Confirm', exact: true }).click();
    await page.getByText('Completed', { exact: true }).first().waitFor();
    await expect.poll(() => announced(page).textContent()).toContain('is completed');
    expect(world.audit.find((entry) => entry.action === 'ConfirmOperation')?.detail).toBe('TalosAwaitingCredentials');
    await checkPage(seen);
  });

  it('turns a rotation back as long as that is possible', async () => {
    const page = await open();
    await page.getByRole('button', { name: 'CA rotation' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Review' }).click();
    await begin(page);
    await page.getByText('Take the new talosconfig, then confirm').waitFor();
    await page.getByRole('button', { name: 'Turn back' }).click();
    const dialog = page.getByRole('dialog', { name: /^Turn ca-rotation-alpha-1 back/ });
    await dialog.getByText('It is possible until the first machine begins to drop what was replaced.').waitFor();
    await dialog.getByText('ichor operation turn-back ca-rotation-alpha-1 -n platform').waitFor();
    await shoot(page, 'turn-back-1440');
    await checkPage(seen);
    await dialog.getByRole('button', { name: 'Turn back' }).click();
    await page.getByText('Turned back', { exact: true }).waitFor();
    await page.getByText('It was turned back: the cluster is what it was before.').waitFor();
    await stages(page).getByText('Talos: back to the old one').waitFor();
    await shoot(page, 'operation-turned-back-1440', true);
    await checkPage(seen);
  });

  it('says that there is no way back after the drop, and who may not confirm', async () => {
    const page = await open();
    const operation = world.putOperation({
      ref: { namespace: 'platform', name: 'rotation' },
      cluster: { namespace: 'platform', name: 'alpha' },
      kind: OperationKind.CA_ROTATION,
      phase: 2,
      stage: 'KubernetesAwaitingCredentials',
      awaits: 'KubernetesAwaitingCredentials',
      canTurnBack: true,
    });
    const viewer = await visit(browser, `${hub.url}/operations/platform/rotation`, { user: 'viewer' });
    const confirm = viewer.page.getByRole('button', { name: 'Confirm', exact: true });
    await confirm.waitFor();
    expect(await confirm.getAttribute('aria-disabled')).toBe('true');
    await checkPage(viewer);
    await viewer.context.close();
    await page.goto(`${hub.url}/operations/platform/rotation`);
    await page.getByText('Take the new kubeconfig, then confirm').waitFor();
    world.putOperation({
      ...operation,
      stage: 'KubernetesDrop',
      awaits: '',
      canTurnBack: false,
      noWayBack: 'machines have begun to drop the old Kubernetes authority',
    });
    await page.getByText('There is no way back: machines have begun to drop what was replaced.').first().waitFor();
    expect(await page.getByRole('button', { name: 'Turn back' }).getAttribute('aria-disabled')).toBe('true');
    expect(await page.getByRole('button', { name: 'Confirm', exact: true }).count()).toBe(0);
    await checkPage(seen);
  });

  it('rotates keys, and counts what is written again', async () => {
    const page = await open();
    await page.getByRole('button', { name: 'Key rotation' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('radio', { name: /^Both/ }).waitFor();
    await shoot(page, 'start-keys-1440');
    await checkPage(seen);
    await dialog.getByRole('button', { name: 'Review' }).click();
    await dialog.getByText('Tokens become void.').waitFor();
    expect(await begin(page)).toMatchObject({ case: 'keyRotation', value: { keys: ['ServiceAccount', 'Secretbox'] } });
    await page.getByText('Waits until tokens are refreshed').waitFor();
    await page.getByRole('button', { name: 'Confirm', exact: true }).click();
    await page
      .getByRole('dialog')
      .getByText(/^Nobody uses an old token any more/)
      .waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Confirm', exact: true }).click();
    await page.getByText('1,234 objects written again', { exact: true }).waitFor();
    await page.getByText('Completed', { exact: true }).first().waitFor();
    await shoot(page, 'operation-keys-1440', true);
    await checkPage(seen);
  });

  it('counts as long as it goes on', async () => {
    const page = await open();
    const unit = { name: 'Rewrite', stage: 'Rewrite', step: 'Rewriting', goesOn: true, steps: [] };
    const put = (done: bigint) =>
      world.putOperation({
        ref: { namespace: 'platform', name: 'keys' },
        cluster: { namespace: 'platform', name: 'alpha' },
        kind: OperationKind.KEY_ROTATION,
        phase: 2,
        stage: 'Rewrite',
        units: [{ ...unit, done }],
      });
    put(1n);
    await page.goto(`${hub.url}/operations/platform/keys`);
    await page.getByText('1 object written again so far').first().waitFor();
    put(12_000n);
    await page.getByText('12,000 objects written again so far').first().waitFor();
    await checkPage(seen);
  });

  it('says when the backup of the secrets is old, and what makes another one', async () => {
    const page = await open();
    const alpha = world.clusters.get('platform/alpha');
    const stale = conditions({ BundleBackupStale: [ConditionStatus.TRUE, 'Stale', ''] });
    world.putCluster({ ...alpha, conditions: stale });
    await page.getByText('The backup of the secrets is old').waitFor();
    await page
      .getByText('ichor cluster bundle-export alpha --file alpha-secrets.yaml -n platform', { exact: true })
      .waitFor();
    await shoot(page, 'bundle-1440');
    await checkPage(seen);
    world.putCluster({ ...alpha, conditions: conditions() });
    await page.getByText('The backup of the secrets is old').waitFor({ state: 'detached' });
  });

  it('says why no snapshot can be taken, and none restored', async () => {
    const page = await open({ user: 'viewer' });
    const alpha = world.clusters.get('platform/alpha');
    world.putCluster({
      ...alpha,
      conditions: conditions({ EtcdBackedUp: [ConditionStatus.UNKNOWN, 'NotConfigured', ''] }),
    });
    await page.locator('button[aria-disabled=true]', { hasText: 'Take snapshot' }).waitFor();
    const restore = page.getByRole('button', { name: 'Restore alpha-day-0', exact: true });
    expect(await restore.getAttribute('aria-disabled')).toBe('true');
    expect(await restore.getAttribute('title')).toMatch(/^You may not create/);
    await checkPage(seen);
  });

  for (const language of ['en', 'ja'] as const) {
    it(`has room for all of that on a phone, ${language}`, async () => {
      const page = await open({ width: 390, height: 844, language });
      const review = page.getByRole('dialog').getByRole('button', { name: /^(Review|確認する)$/ });
      for (const [name, button] of [
        ['ca', /^(CA rotation|CA ローテーション)$/],
        ['keys', /^(Key rotation|鍵ローテーション)$/],
        ['restore', /^(Restore alpha-day-0|alpha-day-0 をリストア)$/],
        ['take', /^(Take snapshot|スナップショットを取得)$/],
      ] as const) {
        await page.getByRole('button', { name: button }).click();
        await page.getByRole('dialog').waitFor();
        await shoot(page, `start-${name}-${language}-390`);
        expect(await narrow(page), name).toBeLessThanOrEqual(390);
        await checkPage(seen);
        if (name === 'ca') {
          await review.click();
          await page.getByRole('dialog').locator('code').waitFor();
          await checkPage(seen);
        }
        await page.keyboard.press('Escape');
        await page.getByRole('dialog').waitFor({ state: 'detached' });
      }
      await shoot(page, `cluster-${language}-390`, true);
      world.putOperation({
        ref: { namespace: 'platform', name: 'rotation' },
        cluster: { namespace: 'platform', name: 'alpha' },
        kind: OperationKind.CA_ROTATION,
        phase: 2,
        attention: 4,
        completedStages: ['Prepare', 'TalosAccept', 'TalosTrust', 'TalosSwap'],
        stage: 'TalosAwaitingCredentials',
        comingStages: ['TalosDrop', 'KubernetesAccept', 'KubernetesTrust', 'KubernetesSwap', 'Finish'],
        awaits: 'TalosAwaitingCredentials',
        canTurnBack: true,
      });
      await page.goto(`${hub.url}/operations/platform/rotation`);
      await page.getByRole('button', { name: /^(Confirm|確認)$/ }).waitFor();
      await shoot(page, `operation-${language}-390`, true);
      expect(await narrow(page)).toBeLessThanOrEqual(390);
      await checkPage(seen);
      await page.getByRole('button', { name: /^(Confirm|確認)$/ }).click();
      await page.getByRole('dialog').waitFor();
      await shoot(page, `confirm-${language}-390`);
      await checkPage(seen);
    });
  }
});
