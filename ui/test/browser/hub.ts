// SPDX-License-Identifier: Apache-2.0
import type { ChildProcess } from 'node:child_process';
import { execFile, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const root = new URL('../../..', import.meta.url).pathname;

/** binary is one of those that `make build` made. */
function binary(name: string, variable: string): string {
  return process.env[variable] ?? join(root, 'bin', name);
}

const bin = {
  ichor: binary('ichor', 'ICHOR_BINARY'),
  hub: binary('ichor-hub', 'ICHOR_HUB_BINARY'),
  sim: binary('ichor-sim', 'ICHOR_SIM_BINARY'),
  openid: binary('openid', 'ICHOR_OPENID_BINARY'),
};

/** Process is a program that says something when it is ready. */
class Process {
  private output = '';
  private readonly child: ChildProcess;
  private readonly waiting = new Set<() => void>();

  constructor(file: string, args: string[]) {
    this.child = spawn(file, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream?.on('data', (chunk) => {
        this.output += chunk;
        for (const look of this.waiting) {
          look();
        }
      });
    }
    this.child.on('exit', () => {
      for (const look of this.waiting) {
        look();
      }
    });
  }

  /** said waits until the program has said something, and returns the first group. */
  said(pattern: RegExp): Promise<string> {
    return new Promise((resolve, reject) => {
      const look = () => {
        const found = pattern.exec(this.output);
        if (found) {
          resolve(found[1] ?? '');
        } else if (this.child.exitCode !== null) {
          reject(new Error(`the program ended: ${this.output.slice(-2_000)}`));
        } else {
          return;
        }
        this.waiting.delete(look);
      };
      this.waiting.add(look);
      look();
    });
  }

  stop(): Promise<void> {
    return new Promise((resolve) => {
      if (this.child.exitCode !== null) {
        resolve();
        return;
      }
      this.child.on('exit', () => resolve());
      this.child.kill('SIGTERM');
    });
  }
}

/** RealHub is a standalone hub with a simulated fleet, as `make demo` starts them. */
export interface RealHub {
  url: string;
  /** link signs in once, as the administrator. */
  link: () => Promise<string>;
  /** viewer is a token of somebody who may read only. */
  viewer: () => Promise<string>;
  /** let lets a user read. */
  let: (user: string) => Promise<unknown>;
  fault: (...args: string[]) => Promise<void>;
  /** away stops the hub; what it returns starts it again, on the same address. */
  away: () => Promise<() => Promise<void>>;
  close: () => Promise<void>;
}

/** startHub starts a hub and clusters such as demo=3+1. */
export async function startHub(clusters: string[]): Promise<RealHub> {
  const dir = mkdtempSync(join(tmpdir(), 'ichor-ui-'));
  const data = join(dir, 'hub');
  const fleet = join(dir, 'fleet');
  const address = `127.0.0.1:${await freePort()}`;
  const url = `https://${address}`;
  const openid = new Process(bin.openid, ['--callback', `${url}/auth/callback`, '--dir', dir]);
  const flags = [...oidcFlags(dir, await openid.said(/Serving: (\S+)/)), '--external-url', url];
  const serve = () =>
    new Process(bin.hub, ['serve', '--standalone', '--data-dir', data, '--listen', address, ...flags]);
  const sim = new Process(bin.sim, [
    'serve',
    '--dir',
    fleet,
    '--speed',
    '8',
    ...clusters.flatMap((cluster) => ['--cluster', cluster]),
  ]);
  let hub = serve();
  await Promise.all([hub.said(/^(Ready)/m), sim.said(/^(ready)/m)]);
  const kubeconfig = join(data, 'kubeconfig');
  const env = { ...process.env, KUBECONFIG: kubeconfig, ICHOR_CONFIG: join(dir, 'ichor.yaml') };
  for (const name of readdirSync(fleet).filter((each) => clusters.some((cluster) => cluster.startsWith(`${each}=`)))) {
    const files = [
      '--from-talosconfig',
      join(fleet, name, 'talosconfig'),
      '--from-kubeconfig',
      join(fleet, name, 'kubeconfig'),
    ];
    await run(bin.ichor, ['cluster', 'import', name, ...files], { env });
  }
  return {
    url,
    link: async () => {
      const { stdout, stderr } = await run(bin.hub, ['login-link', '--data-dir', data]);
      const code = /code=(\S+)/.exec(stdout + stderr)?.[1];
      return `${url}/auth/link?code=${code}`;
    },
    viewer: () => viewerToken(kubeconfig),
    let: (user) => bind(kubeconfig, { kind: 'User', name: user, apiGroup: 'rbac.authorization.k8s.io' }),
    fault: async (...args) => {
      await run(bin.sim, ['fault', ...args, '--dir', fleet]);
    },
    away: async () => {
      await hub.stop();
      return async () => {
        hub = serve();
        await hub.said(/^(Ready)/m);
      };
    },
    close: async () => {
      await Promise.all([hub.stop(), sim.stop(), openid.stop()]);
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** freePort is a port that was free a moment ago: the provider has to know the address of the hub before there is one. */
function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().on('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}

/** oidcFlags lead the hub to the identity provider of the tests. */
function oidcFlags(dir: string, issuer: string): string[] {
  const secret = join(dir, 'oidc-secret');
  writeFileSync(secret, 'the-secret-of-the-hub', { mode: 0o600 });
  const values = {
    'issuer-url': issuer,
    'client-id': 'ichor-hub',
    'client-secret-file': secret,
    'ca-file': join(dir, 'https.crt'),
    scopes: 'openid,email,groups',
    'username-claim': 'email',
    'groups-claim': 'groups',
  };
  return Object.entries(values).flatMap(([name, value]) => [`--oidc-${name}`, value]);
}

/** viewerToken makes a ServiceAccount that may read, and a token of it. */
async function viewerToken(kubeconfig: string): Promise<string> {
  await post(kubeconfig, '/api/v1/namespaces/default/serviceaccounts', { metadata: { name: 'looker' } });
  await bind(kubeconfig, { kind: 'ServiceAccount', name: 'looker', namespace: 'default' });
  const answer = await post(kubeconfig, '/api/v1/namespaces/default/serviceaccounts/looker/token', {
    kind: 'TokenRequest',
    apiVersion: 'authentication.k8s.io/v1',
    spec: {},
  });
  return JSON.parse(answer).status.token;
}

/** bind gives somebody the role ichor-viewer. */
function bind(kubeconfig: string, subject: { kind: string; name: string } & Record<string, string>): Promise<string> {
  return post(kubeconfig, '/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings', {
    metadata: { generateName: 'looker-' },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'ichor-viewer' },
    subjects: [subject],
  });
}

/** post makes an object on the management API, as its administrator. One that is there already is as good. */
function post(kubeconfig: string, path: string, body: object): Promise<string> {
  const text = readFileSync(kubeconfig, 'utf8');
  const value = (name: string) => new RegExp(`${name}: "?([^"\\s]+)`).exec(text)?.[1] ?? '';
  const data = (name: string) => Buffer.from(value(`${name}-data`), 'base64');
  const options = { ca: data('certificate-authority'), cert: data('client-certificate'), key: data('client-key') };
  return new Promise((resolve, reject) => {
    const asked = request(
      value('server') + path,
      { ...options, method: 'POST', headers: { 'Content-Type': 'application/json' } },
      (answer) => {
        let said = '';
        answer.on('data', (chunk) => {
          said += chunk;
        });
        answer.on('end', () =>
          (answer.statusCode ?? 500) < 300 || answer.statusCode === 409
            ? resolve(said)
            : reject(new Error(`${path}: ${said}`)),
        );
      },
    );
    asked.on('error', reject);
    asked.end(JSON.stringify(body));
  });
}
