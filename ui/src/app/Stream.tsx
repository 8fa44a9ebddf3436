// SPDX-License-Identifier: Apache-2.0
import { useEffect, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { formatClock } from '../lib/format';
import type { Mark as MarkName } from '../lib/state';
import type { StreamStatus } from '../live/follow';
import { announce } from '../parts/announce';
import { Mark, Shape } from '../parts/Mark';
import { useHub, useStore } from './hub';
import css from './Stream.module.css';
import { useSettings } from './settings';

const streamMarks: Record<StreamStatus['state'], MarkName> = {
  connecting: 'waiting',
  live: 'ok',
  stale: 'soon',
  ended: 'failed',
};

/** StreamState says whether the page is live. */
export function StreamState() {
  const { t } = useTranslation();
  const { board } = useHub();
  const { state } = useStore(board.status);
  return <Mark mark={streamMarks[state]}>{t(`stream.${state}`)}</Mark>;
}

/** StreamBanner says that what is shown may be old. */
export function StreamBanner() {
  const { t } = useTranslation();
  const { board } = useHub();
  const { language, zone } = useSettings();
  const status = useStore(board.status);
  useStreamNews();
  if (status.state !== 'stale' && status.state !== 'ended') {
    return null;
  }
  const words =
    status.state === 'stale'
      ? t('stream.staleBanner', { time: formatClock(status.since, language, zone) })
      : t('stream.endedBanner');
  return (
    <div className={css.banner}>
      <Shape mark={streamMarks[status.state]} />
      <p>
        {words} {status.error && <span lang="en">({status.error})</span>}
      </p>
    </div>
  );
}

/** useStreamNews says when the page stops and starts to be live. */
function useStreamNews(): void {
  const { t } = useTranslation();
  const { board } = useHub();
  const { state } = useStore(board.status);
  const [was, remember] = useState(state);
  useEffect(() => {
    if (state === was || state === 'connecting') {
      return;
    }
    remember(state);
    if (state === 'live' && was === 'stale') {
      announce(t('stream.back'));
    } else if (state !== 'live') {
      announce(t('stream.lost'));
    }
  }, [state, was, t]);
}
