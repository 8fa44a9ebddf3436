// SPDX-License-Identifier: Apache-2.0
import { memo, useLayoutEffect, useRef, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { useSettings } from '../../app/settings';
import type { Operation } from '../../gen/ichor/v1alpha1/operation_pb';
import { formatClock, formatDuration } from '../../lib/format';
import { hasPasses, isOver } from '../../lib/operations';
import type { Mark } from '../../lib/state';
import type { Bar, Lane, Timeline } from '../../lib/timeline';
import { place, timelineOf } from '../../lib/timeline';
import { stageWords, stepWords } from '../../parts/code';
import { Shape } from '../../parts/Mark';
import { useNow } from '../../parts/now';
import { Quiet } from '../../parts/Section';
import css from './TimelineChart.module.css';

const laneMarks: Record<Lane['state'], Mark> = { done: 'ok', running: 'running', failed: 'failed', waiting: 'waiting' };

/** TimelineChart shows each machine's steps on one axis, and where it waited. */
export function TimelineChart({ operation }: { operation: Operation }) {
  const { t } = useTranslation();
  const { language } = useSettings();
  const now = useNow(isOver(operation) ? 10_000 : 1_000);
  const timeline = timelineOf(operation, now);
  const box = useRef<HTMLElement>(null);
  const over = isOver(operation);
  // What goes on is at the right end; on a phone it would be out of sight.
  useLayoutEffect(() => {
    if (box.current && !over) {
      box.current.scrollLeft = box.current.scrollWidth;
    }
  }, [over]);
  if (!timeline || timeline.lanes.length === 0) {
    return <Quiet>{t('operation.notBegun')}</Quiet>;
  }
  const passes = hasPasses(operation);
  const more = over ? 0 : operation.machinesTotal - operation.machines.length;
  return (
    <>
      <Quiet>
        {t('operation.timelineHelp')}{' '}
        {timeline.cuts.map(
          (cut) => `${t('operation.cut', { length: formatDuration(cut.end - cut.start, language) })} `,
        )}
        {more > 0 && t('operation.moreMachines', { count: more })}
      </Quiet>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls sideways must be reached by the keyboard. */}
      <section ref={box} className={css.scroll} tabIndex={0} aria-label={t('operation.timeline')}>
        <div className={css.chart}>
          <Axis timeline={timeline} />
          <ul className={css.lanes}>
            {timeline.lanes.map((lane) => (
              <LaneLine key={lane.name} lane={lane} timeline={timeline} now={now} passes={passes} />
            ))}
          </ul>
        </div>
      </section>
    </>
  );
}

/** A label further right than this has no room. */
const lastTick = 94;

/** Axis are the times since the start. */
const Axis = memo(function Axis({ timeline }: { timeline: Timeline }) {
  const { t } = useTranslation();
  const { language } = useSettings();
  return (
    <div className={css.axis} role="img" aria-label={t('operation.axis')}>
      {timeline.ticks
        .filter((tick) => place(timeline, timeline.start + tick) <= lastTick)
        .map((tick) => (
          <span key={tick} className={css.tick} style={{ left: `${place(timeline, timeline.start + tick)}%` }}>
            {tick === 0 ? '0' : t('operation.elapsed', { length: formatDuration(tick, language) })}
          </span>
        ))}
      {timeline.cuts.map((cut) => (
        <span
          key={cut.start}
          className={css.cut}
          style={{
            left: `${place(timeline, cut.start)}%`,
            width: `${place(timeline, cut.end) - place(timeline, cut.start)}%`,
          }}
        >
          {'//'}
        </span>
      ))}
    </div>
  );
});

interface LaneProps {
  lane: Lane;
  timeline: Timeline;
  now: number;
  /** passes says that a machine goes through many stages, which have to be told apart. */
  passes: boolean;
}

function LaneLine({ lane, timeline, now, passes }: LaneProps) {
  const { t } = useTranslation();
  const { language } = useSettings();
  const [open, show] = useState(false);
  const length = lengthOf(lane, now);
  const doing =
    lane.state === 'done'
      ? t('operation.state.done')
      : lane.step
        ? stepWords(t, lane.step)
        : t(`operation.state.${lane.state}`);
  const words = length > 0 ? `${doing} · ${formatDuration(length, language)}` : doing;
  return (
    <li className={css.lane}>
      <button type="button" className={css.name} aria-expanded={open} onClick={() => show(!open)}>
        <Shape mark={laneMarks[lane.state]} />
        <strong>{stageWords(t, lane.name)}</strong>
        <span className={css.quiet}>{words}</span>
      </button>
      <ol className={css.bars}>
        {lane.bars.map((bar) => (
          <BarLine key={`${bar.state}${bar.start}`} bar={bar} timeline={timeline} passes={passes} />
        ))}
      </ol>
      {lane.message && (
        <p className={lane.state === 'failed' ? css.failure : css.message} lang="en">
          {lane.message}
        </p>
      )}
      {lane.done > 0 && (
        <p className={css.message}>
          {t(lane.goesOn ? 'operation.rewritten' : 'operation.rewrittenAll', { count: lane.done })}
        </p>
      )}
      {lane.found && lane.done === 0 && (
        <p className={css.message}>
          {passes && t('operation.proof', { stage: stageWords(t, lane.stage) })} <span lang="en">{lane.found}</span>
        </p>
      )}
      {open && <Steps lane={lane} passes={passes} />}
    </li>
  );
}

/** Steps are the bars in words: nothing rests on a bar where there is no pointer, and the short ones have no room for a name. */
function Steps({ lane, passes }: { lane: Lane; passes: boolean }) {
  const words = useBarWords(passes);
  return (
    <ul className={css.steps}>
      {lane.bars.map((bar) => (
        <li key={`${bar.state}${bar.start}`}>{words(bar)}</li>
      ))}
    </ul>
  );
}

/** lengthOf is what somebody wants to know of a lane: how long its step goes on or went on, or how long all of them took. */
function lengthOf(lane: Lane, now: number): number {
  if (lane.since !== undefined) {
    return now - lane.since;
  }
  const last = lane.bars.at(-1);
  return lane.state === 'done' ? lane.spent : last ? last.end - last.start : 0;
}

/** useBarWords says what a bar shows. */
function useBarWords(passes: boolean): (bar: Bar) => string {
  const { t } = useTranslation();
  const { language, zone } = useSettings();
  return (bar) => {
    const values = {
      length: formatDuration(bar.end - bar.start, language),
      start: formatClock(bar.start, language, zone),
    };
    if (bar.state === 'waiting') {
      return t('operation.waitBar', values);
    }
    const step = stepWords(t, bar.step);
    return passes && bar.stage !== ''
      ? t('operation.passBar', { stage: stageWords(t, bar.stage), step, ...values })
      : t('operation.stepBar', { step, ...values });
  };
}

function BarLine({ bar, timeline, passes }: { bar: Bar; timeline: Timeline; passes: boolean }) {
  const { t } = useTranslation();
  const words = useBarWords(passes)(bar);
  const [from, to] = [place(timeline, bar.start), place(timeline, bar.end)];
  return (
    <li className={`${css.bar} ${css[bar.state]}`} style={{ left: `${from}%`, width: `${to - from}%` }} title={words}>
      <span aria-hidden="true">{stepWords(t, bar.step)}</span>
      <span className="visually-hidden">{words}</span>
    </li>
  );
}
