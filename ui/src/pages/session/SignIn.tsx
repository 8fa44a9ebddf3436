// SPDX-License-Identifier: Apache-2.0
import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import { useLocation, useSearch } from 'wouter';
import { loginPath, Refused, signInWithToken } from '../../api/signin';
import type { GetHubResponse } from '../../gen/ichor/v1alpha1/hub_pb';
import { Button } from '../../parts/Button';
import { Command } from '../../parts/Command';
import { Field, Input } from '../../parts/Field';
import { Notice } from '../../parts/Notice';
import css from './SignIn.module.css';

interface Props {
  hub: GetHubResponse | undefined;
  /** expired says that there was a session. */
  expired?: boolean;
  error?: { message: string };
  again?: () => unknown;
}

/** SignIn is how somebody signs in. */
export function SignIn({ hub, expired, error, again }: Props) {
  const { t } = useTranslation();
  const [path] = useLocation();
  const search = useSearch();
  const from = path === '/sign-in' ? '/' : path + (search && `?${search}`);
  const ways = hub?.signIn;
  return (
    <main className={css.page}>
      <h1>{t('signIn.title', { hub: hub?.name || 'Ichor hub' })}</h1>
      <Why expired={expired} error={error} />
      {error && <Button onClick={() => again?.()}>{t('app.reload')}</Button>}
      {ways?.oidc && (
        <a className={css.provider} href={loginPath(from)}>
          {t('signIn.oidc', { issuer: ways.oidc.issuer.replace(/^https?:\/\//, '') })}
        </a>
      )}
      {ways?.token && <WithToken to={from} first={!ways.oidc} />}
      {ways?.link && (
        <section className={css.way}>
          <p>{t('signIn.link')}</p>
          <Command line="ichor-hub login-link" />
        </section>
      )}
      {hub && !ways?.oidc && !ways?.token && !ways?.link && <p>{t('signIn.none')}</p>}
    </main>
  );
}

function Why({ expired, error }: { expired: boolean | undefined; error: { message: string } | undefined }) {
  const { t } = useTranslation();
  if (error) {
    return (
      <Notice mark="failed" role="alert" title={t('signIn.error.unreachable')}>
        <p lang="en">{error.message}</p>
      </Notice>
    );
  }
  return expired ? <Notice mark="person" role="status" title={t('signIn.error.expired')} /> : null;
}

/** WithToken signs in with a token; it is not what most people want where there is an identity provider. */
function WithToken({ to, first }: { to: string; first: boolean }) {
  const { t } = useTranslation();
  const [token, setToken] = useState('');
  const signIn = useMutation({ mutationFn: signInWithToken, onSuccess: () => window.location.assign(to) });
  const refused = signIn.error instanceof Refused;
  const problem = signIn.error ? t(refused ? 'signIn.error.token' : 'signIn.error.unreachable') : undefined;
  return (
    <form
      className={css.way}
      onSubmit={(event) => {
        event.preventDefault();
        signIn.mutate(token.trim());
      }}
    >
      <Field label={t('signIn.token')} help={t('signIn.tokenHelp')} problem={problem}>
        {(ids) => (
          <Input {...ids} type="password" required value={token} onChange={(event) => setToken(event.target.value)} />
        )}
      </Field>
      {refused && signIn.error?.message && <p lang="en">{signIn.error.message}</p>}
      <Button type="submit" look={first ? 'primary' : 'plain'}>
        {t(signIn.isPending ? 'signIn.signingIn' : 'signIn.withToken')}
      </Button>
    </form>
  );
}
