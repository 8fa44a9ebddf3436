// SPDX-License-Identifier: Apache-2.0

import type { Timestamp } from '@bufbuild/protobuf/wkt';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import type { Operation, OperationUnit } from '../gen/ichor/v1alpha1/operation_pb';
import { UnitPhase } from '../gen/ichor/v1alpha1/operation_pb';

/** Bar is one step of a lane, or the time between two of them. Times are in milliseconds. */
export interface Bar {
  step: string;
  start: number;
  end: number;
  /** state says what the bar is: a step that is over, one under way, the one that failed, or waiting for a turn. */
  state: 'done' | 'running' | 'failed' | 'waiting';
}

/** Lane is the line of a machine, or of a stage without machines. */
export interface Lane {
  name: string;
  stage: string;
  step: string;
  message: string;
  state: 'done' | 'running' | 'failed' | 'waiting';
  bars: Bar[];
  /** since is when the step under way began; undefined if none is. */
  since: number | undefined;
}

/** Timeline are lanes on one axis. */
export interface Timeline {
  start: number;
  end: number;
  lanes: Lane[];
  ticks: number[];
}

const ms = (time: Timestamp | undefined) => (time ? timestampMs(time) : undefined);

/** Shorter pauses between two steps are the hub's own and nobody's waiting. */
const shortestGap = 2_000;

/** timelineOf lays out an operation; undefined while it has not begun. */
export function timelineOf(operation: Operation, now: number): Timeline | undefined {
  const over = ms(operation.completionTime);
  const lanes = [...operation.units, ...operation.machines].map((unit) => laneOf(unit, over ?? now));
  const starts = lanes.flatMap((lane) => lane.bars.map((bar) => bar.start));
  const start = Math.min(ms(operation.startTime) ?? Number.POSITIVE_INFINITY, ...starts);
  if (!Number.isFinite(start)) {
    return undefined;
  }
  const last = Math.max(...lanes.flatMap((lane) => lane.bars.map((bar) => bar.end)), start + 1_000);
  const end = over ?? Math.max(now, last);
  return { start, end: Math.max(end, last), lanes, ticks: ticksOf(start, Math.max(end, last)) };
}

function laneOf(unit: OperationUnit, now: number): Lane {
  const bars: Bar[] = [];
  for (const [index, step] of unit.steps.entries()) {
    const start = ms(step.startTime);
    if (start === undefined) {
      continue;
    }
    const before = bars.at(-1);
    if (before && start - before.end >= shortestGap) {
      bars.push({ step: '', start: before.end, end: start, state: 'waiting' });
    }
    const end = ms(step.endTime);
    const last = index === unit.steps.length - 1;
    const state = unit.failed && last ? 'failed' : end === undefined ? 'running' : 'done';
    bars.push({ step: step.name, start, end: Math.max(end ?? now, start), state });
  }
  const state = unit.failed
    ? 'failed'
    : unit.phase === UnitPhase.COMPLETED
      ? 'done'
      : unit.step === ''
        ? 'waiting'
        : 'running';
  const since = state === 'running' || state === 'failed' ? ms(unit.stepStartTime) : undefined;
  return { name: unit.name, stage: unit.stage, step: unit.step, message: unit.message, state, bars, since };
}

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;
const intervals = [1, 5, 10, 30]
  .map((n) => n * second)
  .concat(
    [1, 2, 5, 10, 15, 30].map((n) => n * minute),
    [1, 2, 6, 12, 24].map((n) => n * hour),
  );

/** ticksOf are round offsets from the start, six at most: whoever reads a time line wants to know how long. */
export function ticksOf(start: number, end: number): number[] {
  const span = end - start;
  const interval = intervals.find((each) => span / each <= 6) ?? Math.ceil(span / 6 / (24 * hour)) * 24 * hour;
  return Array.from({ length: Math.floor(span / interval) + 1 }, (_, index) => index * interval);
}

/** place is where something is on the axis, in percent. */
export function place(timeline: Pick<Timeline, 'start' | 'end'>, time: number): number {
  const span = timeline.end - timeline.start;
  return span <= 0 ? 0 : Math.min(100, Math.max(0, ((time - timeline.start) / span) * 100));
}
