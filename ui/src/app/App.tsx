// SPDX-License-Identifier: Apache-2.0

import { CSPProvider } from '@base-ui/react/csp-provider';
import { TransportProvider } from '@connectrpc/connect-query';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { lazy, Suspense, useEffect, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { Link, Route, Switch } from 'wouter';
import { isAway } from '../api/problems';
import { Fleet } from '../pages/fleet/Fleet';
import { Quiet } from '../parts/Section';
import { Crash } from './Crash';
import { Gate } from './Gate';
import type { Hub } from './hub';
import { HubContext } from './hub';
import { Shell } from './Shell';

const Cluster = lazy(() => import('../pages/cluster/Cluster').then((m) => ({ default: m.Cluster })));
const Operations = lazy(() => import('../pages/operations/Operations').then((m) => ({ default: m.Operations })));
const Operation = lazy(() => import('../pages/operation/Operation').then((m) => ({ default: m.Operation })));
const Audit = lazy(() => import('../pages/audit/Audit').then((m) => ({ default: m.Audit })));
const SessionPage = lazy(() => import('../pages/session/SessionPage').then((m) => ({ default: m.SessionPage })));

/** A hub that does not answer is asked again after this long. */
const again = 3_000;

/** newQueries keeps answers. The watches say when they are old, so nothing is asked again because a window was looked at. */
function newQueries(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        retry: false,
        refetchOnWindowFocus: false,
        refetchInterval: ({ state }) => (state.error && isAway(state.error) ? again : false),
      },
      mutations: { retry: false },
    },
  });
}

/** App is the whole page. */
export function App({ hub }: { hub: Hub }) {
  const [queries] = useState(newQueries);
  useEffect(() => {
    const stop = hub.fleet.start();
    const leave = hub.board.add(hub.fleet.status);
    return () => {
      leave();
      stop();
    };
  }, [hub]);
  return (
    <CSPProvider disableStyleElements>
      <TransportProvider transport={hub.transport}>
        <QueryClientProvider client={queries}>
          <HubContext value={hub}>
            <Gate>
              <Shell>
                <Crash>
                  <Suspense fallback={<Loading />}>
                    <Pages />
                  </Suspense>
                </Crash>
              </Shell>
            </Gate>
          </HubContext>
        </QueryClientProvider>
      </TransportProvider>
    </CSPProvider>
  );
}

function Pages() {
  return (
    <Switch>
      <Route path="/" component={Fleet} />
      <Route path="/clusters/:namespace/:name" component={Cluster} />
      <Route path="/operations" component={Operations} />
      <Route path="/operations/:namespace/:name" component={Operation} />
      <Route path="/audit" component={Audit} />
      <Route path="/session" component={SessionPage} />
      <Route component={NotFound} />
    </Switch>
  );
}

function NotFound() {
  const { t } = useTranslation();
  return (
    <>
      <h1>{t('app.notFound')}</h1>
      <Link href="/">{t('app.toFleet')}</Link>
    </>
  );
}

function Loading() {
  const { t } = useTranslation();
  return <Quiet>{t('app.loading')}</Quiet>;
}
