// SPDX-License-Identifier: Apache-2.0
import { useStore } from '../app/hub';
import { Store } from '../lib/store';

/** What was said last. A screen reader reads it when it is idle. */
const said = new Store('');

/** announce says a milestone to who cannot see it. Saying the same twice in a row says it once. */
export function announce(words: string): void {
  said.set(words);
}

/** Announcer is where milestones are said. There is one on the page. */
export function Announcer() {
  return (
    <div className="visually-hidden" role="status" aria-live="polite">
      {useStore(said)}
    </div>
  );
}
