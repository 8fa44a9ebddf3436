// SPDX-License-Identifier: Apache-2.0
import { Code } from '@connectrpc/connect';
import { useQuery } from '@connectrpc/connect-query';
import { lazy, Suspense, useEffect, useMemo } from 'react';
import { useTranslation } from 'react-i18next';
import { useLocation } from 'wouter';
import { isAway } from '../api/problems';
import { HubService } from '../gen/ichor/v1alpha1/hub_pb';
import { Quiet } from '../parts/Section';
import { SessionContext, useHub, useStore } from './hub';

const SignIn = lazy(() => import('../pages/session/SignIn').then((m) => ({ default: m.SignIn })));

/** Rights can change while the page is open. */
const sessionAge = 60_000;

/** A hub that does not answer is asked again after this long. */
const again = 3_000;

/** Gate shows the page to who is signed in, and the sign-in to who is not. The address stays, so that the sign-in leads back to it. */
export function Gate({ children }: { children: React.ReactNode }) {
  const { t } = useTranslation();
  const [path] = useLocation();
  const hub = useQuery(HubService.method.getHub, {});
  const session = useQuery(HubService.method.getSession, {}, { refetchInterval: ({ state }) => nextLook(state.error) });
  useSignedOut(session.refetch);
  const value = useMemo(
    () => hub.data && session.data && { hub: hub.data, session: session.data },
    [hub.data, session.data],
  );

  if (session.error?.code === Code.Unauthenticated || path === '/sign-in') {
    return (
      <Suspense fallback={null}>
        <SignIn hub={hub.data} expired={session.data !== undefined} />
      </Suspense>
    );
  }
  if (value) {
    return <SessionContext value={value}>{children}</SessionContext>;
  }
  const error = hub.error ?? session.error;
  return (
    <main>
      {error ? (
        <Suspense fallback={null}>
          <SignIn hub={hub.data} error={error} again={() => Promise.all([hub.refetch(), session.refetch()])} />
        </Suspense>
      ) : (
        <Quiet>{t('app.loading')}</Quiet>
      )}
    </main>
  );
}

/** nextLook is when the session is looked at again. Who is signed out signs in, and the page begins anew. */
function nextLook(error: Error | null): number | false {
  if (error && isAway(error)) {
    return again;
  }
  return error ? false : sessionAge;
}

/** useSignedOut looks again at the session when a watch was told that there is none. */
function useSignedOut(look: () => unknown): void {
  const { board } = useHub();
  const { code } = useStore(board.status);
  const out = code === Code.Unauthenticated;
  useEffect(() => {
    if (out) {
      look();
    }
  }, [out, look]);
}
