// SPDX-License-Identifier: Apache-2.0

/** loginPath is where the sign-in by the identity provider begins; it leads back to where somebody wanted to go. */
export function loginPath(returnTo: string): string {
  return `/auth/login?return=${encodeURIComponent(returnTo)}`;
}

/** Refused is a sign-in that the hub did not accept. */
export class Refused extends Error {}

/** signInWithToken exchanges a token for a session. The page does not keep it. */
export async function signInWithToken(token: string): Promise<void> {
  const answer = await fetch('/auth/token', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ token }),
    credentials: 'same-origin',
  });
  if (!answer.ok) {
    const said: { message?: string } = await answer.json().catch(() => ({}));
    throw new Refused(said.message ?? '');
  }
}

/** signOut ends the session, and begins the page anew so that nothing of it is left. */
export async function signOut(): Promise<void> {
  await fetch('/auth/logout', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: '{}',
    credentials: 'same-origin',
  });
  window.location.assign('/');
}
