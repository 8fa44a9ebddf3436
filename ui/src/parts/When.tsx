// SPDX-License-Identifier: Apache-2.0
import type { Timestamp } from '@bufbuild/protobuf/wkt';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import { useSettings } from '../app/settings';
import { formatRelative, formatTime } from '../lib/format';
import { useNow } from './now';

interface Props {
  time: Timestamp | undefined;
  /** relative says how long ago it was, absolute when it was; the other one is in the title. */
  show?: 'relative' | 'absolute';
}

/** When is a moment. */
export function When({ time, show = 'relative' }: Props) {
  const { language, zone } = useSettings();
  const now = useNow(10_000);
  if (!time) {
    return null;
  }
  const moment = timestampMs(time);
  const absolute = formatTime(moment, language, zone);
  const relative = formatRelative(Math.min(moment, now), now, language);
  return (
    <time dateTime={new Date(moment).toISOString()} title={show === 'relative' ? absolute : relative}>
      {show === 'relative' ? relative : absolute}
    </time>
  );
}
