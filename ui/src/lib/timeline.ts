// SPDX-License-Identifier: Apache-2.0

import type { Timestamp } from '@bufbuild/protobuf/wkt';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import type { Operation, OperationUnit } from '../gen/ichor/v1alpha1/operation_pb';
import { OperationPhase, UnitPhase } from '../gen/ichor/v1alpha1/operation_pb';

/** Bar is one step of a lane, or the time between two of them. Times are in milliseconds. */
export interface Bar {
  step: string;
  start: number;
  end: number;
  /** state says what the bar is: a step that is over, one under way, the one that failed, or waiting for a turn. */
  state: 'done' | 'running' | 'failed' | 'waiting';
  /** stage is the one that the step belongs to; empty of a wait. */
  stage: string;
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
  /** found is what is worth knowing of the stage that is over, such as what proves it; empty while a step goes on. */
  found: string;
  /** done counts what one step has done in many calls so far, and goesOn says that there is more. */
  done: number;
  goesOn: boolean;
  /** spent is how long its steps took so far, without waiting. */
  spent: number;
}

/** Span is a part of the axis. */
export interface Span {
  start: number;
  end: number;
}

/** Timeline are lanes on one axis. */
export interface Timeline extends Span {
  lanes: Lane[];
  ticks: number[];
  /** cuts are where no machine was worked on for long: a night until somebody retries takes as much room as a moment. */
  cuts: Span[];
}

const ms = (time: Timestamp | undefined) => (time ? timestampMs(time) : undefined);

/** Shorter pauses between two steps are the hub's own and nobody's waiting. */
const shortestGap = 2_000;

/** timelineOf lays out an operation; undefined while it has not begun. */
export function timelineOf(operation: Operation, now: number): Timeline | undefined {
  const units = [...operation.units, ...operation.machines];
  const times = units.flatMap((unit) => unit.steps.flatMap((step) => [ms(step.startTime), ms(step.endTime)]));
  const known = [ms(operation.startTime), ...times].filter((time) => time !== undefined);
  if (known.length === 0) {
    return undefined;
  }
  const start = Math.min(...known);
  const last = Math.max(...known, start + 1_000);
  const end = Math.max(last, ms(operation.completionTime) ?? (stands(operation) ? stoodAt(operation, last) : now));
  const lanes = units.map((unit) => laneOf(unit, start, end));
  const cuts = cutsOf(lanes, start, end);
  return { start, end, lanes, cuts, ticks: ticksOf(start, end, cuts) };
}

/** stands says that nothing moves until somebody does something. The axis ends then: after a weekend the steps would be a hair's breadth otherwise. */
function stands({ phase, units, machines }: Operation): boolean {
  return phase === OperationPhase.PAUSED && ![...units, ...machines].some((unit) => unit.step !== '' && !unit.failed);
}

/** stoodAt is when it came to stand: a step that failed says itself only when it began. */
function stoodAt(operation: Operation, last: number): number {
  const paused = operation.conditions.find((condition) => condition.type === 'Paused');
  return Math.max(last, ms(paused?.lastTransitionTime) ?? last);
}

function laneOf(unit: OperationUnit, begin: number, now: number): Lane {
  const state = stateOf(unit);
  const bars = barsOf(unit, begin, now);
  const reached = bars.at(-1)?.end ?? begin;
  if (state === 'waiting' && now - reached >= shortestGap) {
    bars.push({ step: '', start: reached, end: now, state: 'waiting', stage: '' });
  }
  // Between two steps a unit says what it has done; what it waits for, the operation says.
  const over = unit.step === '' && !unit.failed;
  return {
    name: unit.name,
    stage: unit.stage,
    step: unit.step,
    message: over ? '' : unit.message,
    found: over ? unit.message : '',
    done: Number(unit.done),
    goesOn: unit.goesOn,
    state,
    bars,
    since: state === 'running' ? ms(unit.stepStartTime) : undefined,
    spent: bars.reduce((sum, bar) => sum + (bar.state === 'waiting' ? 0 : bar.end - bar.start), 0),
  };
}

function stateOf(unit: OperationUnit): Lane['state'] {
  if (unit.failed) {
    return 'failed';
  }
  if (unit.phase === UnitPhase.COMPLETED) {
    return 'done';
  }
  return unit.step === '' ? 'waiting' : 'running';
}

/** barsOf are the steps of a unit, and what it waited before and between them. */
function barsOf(unit: OperationUnit, begin: number, now: number): Bar[] {
  const bars: Bar[] = [];
  for (const [index, step] of unit.steps.entries()) {
    const start = ms(step.startTime);
    if (start === undefined) {
      continue;
    }
    const reached = bars.at(-1)?.end ?? begin;
    if (start - reached >= shortestGap) {
      bars.push({ step: '', start: reached, end: start, state: 'waiting', stage: '' });
    }
    const end = ms(step.endTime);
    const last = index === unit.steps.length - 1;
    const state = unit.failed && last ? 'failed' : end === undefined ? 'running' : 'done';
    bars.push({ step: step.name, start, end: Math.max(end ?? now, start), state, stage: step.stage });
  }
  return bars;
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

/** Nothing has to move for as long as this before the axis is cut. */
const longestGap = 10 * minute;

/** cutsOf are the spans in which no step went on, if what goes on beside them would be hard to see. */
function cutsOf(lanes: readonly Lane[], start: number, end: number): Span[] {
  const bars = lanes.flatMap((lane) => lane.bars).filter((bar) => bar.state !== 'waiting');
  const cuts: Span[] = [];
  let reached = start;
  for (const next of [...bars.sort((a, b) => a.start - b.start), { start: end, end }]) {
    if (next.start - reached >= longestGap) {
      cuts.push({ start: reached, end: next.start });
    }
    reached = Math.max(reached, next.end);
  }
  const whole = lengthWithout(cuts, start, end);
  return cuts.filter((cut) => cut.end - cut.start > whole / 2);
}

const overlap = (span: Span, start: number, end: number) =>
  Math.max(0, Math.min(span.end, end) - Math.max(span.start, start));

/** lengthWithout is how much of a span is in no cut. */
function lengthWithout(cuts: readonly Span[], start: number, end: number): number {
  return cuts.reduce((length, cut) => length - overlap(cut, start, end), end - start);
}

/** ticksOf are round offsets from the start, where the axis is not cut; six at most, and one for each cut. Whoever reads a time line wants to know how long. */
export function ticksOf(start: number, end: number, cuts: readonly Span[] = []): number[] {
  const span = lengthWithout(cuts, start, end);
  const interval = intervals.find((each) => span / each <= 6) ?? Math.ceil(span / 6 / (24 * hour)) * 24 * hour;
  const pieces = [...cuts, { start: end, end }].map((cut, index) => ({
    from: index === 0 ? 0 : (cuts[index - 1]?.end ?? start) - start,
    to: cut.start - start,
  }));
  return pieces.flatMap(({ from, to }) => {
    const first = Math.ceil(from / interval);
    return Array.from({ length: Math.max(0, Math.floor(to / interval) - first + 1) }, (_, i) => (first + i) * interval);
  });
}

/** A cut takes this part of the axis that is left. */
const cutWidth = 0.04;

/** place is where something is on the axis, in percent. */
export function place(axis: Span & { cuts?: readonly Span[] }, time: number): number {
  const { start, end, cuts = [] } = axis;
  const width = lengthWithout(cuts, start, end) * cutWidth;
  const before = (until: number) =>
    lengthWithout(cuts, start, until) +
    cuts.reduce((sum, cut) => sum + (width * overlap(cut, start, until)) / (cut.end - cut.start), 0);
  const span = before(end);
  return span <= 0 ? 0 : Math.min(100, Math.max(0, (before(Math.max(time, start)) / span) * 100));
}
