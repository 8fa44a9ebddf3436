// SPDX-License-Identifier: Apache-2.0
import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { describe, expect, it } from 'vitest';
import { OperationPhase, OperationSchema, UnitPhase } from '../gen/ichor/v1alpha1/operation_pb';
import { place, ticksOf, timelineOf } from './timeline';

const at = (seconds: number) => timestampFromMs(seconds * 1_000);
const step = (name: string, from: number, to?: number) => ({
  name,
  startTime: at(from),
  ...(to !== undefined && { endTime: at(to) }),
});

describe('timelineOf', () => {
  it('is nothing before the operation has begun', () => {
    expect(timelineOf(create(OperationSchema, {}), 0)).toBeUndefined();
  });

  const operation = create(OperationSchema, {
    startTime: at(100),
    machines: [
      { name: 'm1', phase: UnitPhase.COMPLETED, steps: [step('Pulling', 100, 110), step('Rebooting', 130, 190)] },
      {
        name: 'm2',
        phase: UnitPhase.IN_PROGRESS,
        step: 'Draining',
        stepStartTime: at(200),
        steps: [step('Pulling', 101, 111), step('Draining', 200)],
      },
    ],
  });

  it('shows waiting between two steps, but not the moments of the hub', () => {
    const [lane] = timelineOf(operation, 260_000)?.lanes ?? [];
    expect(lane?.state).toBe('done');
    expect(lane?.bars.map(({ state, start, end }) => [state, start, end])).toEqual([
      ['done', 100_000, 110_000],
      ['waiting', 110_000, 130_000],
      ['done', 130_000, 190_000],
    ]);
    const close = create(OperationSchema, {
      startTime: at(1),
      machines: [{ name: 'm', steps: [step('a', 1, 2), step('b', 3, 4)] }],
    });
    expect(timelineOf(close, 5_000)?.lanes[0]?.bars).toHaveLength(2);
  });

  it('lets a step that goes on end now', () => {
    const timeline = timelineOf(operation, 260_000);
    expect(timeline?.end).toBe(260_000);
    expect(timeline?.lanes[1]).toMatchObject({ state: 'running', since: 200_000 });
    expect(timeline?.lanes[1]?.bars.at(-1)).toMatchObject({
      step: 'Draining',
      start: 200_000,
      end: 260_000,
      state: 'running',
    });
  });

  it('shows the step that failed', () => {
    const failed = create(OperationSchema, {
      startTime: at(1),
      machines: [
        { name: 'm', failed: true, step: 'Installing', steps: [step('Pulling', 1, 5), step('Installing', 5, 9)] },
      ],
    });
    expect(timelineOf(failed, 60_000)?.lanes[0]).toMatchObject({
      state: 'failed',
      bars: [{ state: 'done' }, { state: 'failed', end: 9_000 }],
    });
  });

  it('shows what waits for its turn, from the start on and up to now', () => {
    const waiting = create(OperationSchema, {
      startTime: at(100),
      phase: OperationPhase.IN_PROGRESS,
      machines: [
        { name: 'm1', phase: UnitPhase.IN_PROGRESS, step: 'Draining', steps: [step('Draining', 160)] },
        { name: 'm2', phase: UnitPhase.IN_PROGRESS, steps: [step('Pulling', 100, 110)] },
        { name: 'm3', phase: UnitPhase.IN_PROGRESS },
      ],
    });
    const lanes = timelineOf(waiting, 200_000)?.lanes ?? [];
    expect(lanes.map((lane) => lane.bars.map(({ state, start, end }) => [state, start / 1_000, end / 1_000]))).toEqual([
      [
        ['waiting', 100, 160],
        ['running', 160, 200],
      ],
      [
        ['done', 100, 110],
        ['waiting', 110, 200],
      ],
      [['waiting', 100, 200]],
    ]);
    expect(lanes.map((lane) => lane.spent)).toEqual([40_000, 10_000, 0]);
  });

  it('stands still while nothing moves, so that a weekend does not make the steps unreadable', () => {
    const stands = create(OperationSchema, {
      startTime: at(1),
      phase: OperationPhase.PAUSED,
      conditions: [{ type: 'Paused', lastTransitionTime: at(40) }],
      machines: [
        { name: 'm', failed: true, step: 'Installing', steps: [step('Pulling', 1, 5), step('Installing', 5)] },
      ],
    });
    const timeline = timelineOf(stands, 200_000_000);
    expect(timeline?.end).toBe(40_000);
    expect(timeline?.lanes[0]?.bars.at(-1)).toMatchObject({ state: 'failed', end: 40_000 });
    const settles = create(OperationSchema, {
      startTime: at(1),
      phase: OperationPhase.PAUSED,
      machines: [{ name: 'm', step: 'Uncordoning', steps: [step('Uncordoning', 5)] }],
    });
    expect(timelineOf(settles, 200_000)?.end).toBe(200_000);
  });

  it('cuts the night out between a failure and its retry', () => {
    const hour = 3_600;
    const retried = create(OperationSchema, {
      startTime: at(0.001),
      completionTime: at(10 * hour + 200),
      machines: [
        { name: 'm1', phase: UnitPhase.COMPLETED, steps: [step('Rebooting', 1, 100)] },
        {
          name: 'm2',
          phase: UnitPhase.COMPLETED,
          steps: [step('Installing', 100, 200), step('Installing', 10 * hour, 10 * hour + 200)],
        },
      ],
    });
    const timeline = timelineOf(retried, 0);
    expect(timeline?.cuts).toEqual([{ start: 200_000, end: 10 * hour * 1_000 }]);
    const places = [0, 200, 10 * hour, 10 * hour + 200].map((time) =>
      Math.round(place(timeline as never, time * 1_000)),
    );
    expect(places).toEqual([0, 48, 52, 100]);
    expect(timeline?.ticks).toEqual([0, 120_000, 36_000_000, 36_120_000]);
    const steady = create(OperationSchema, {
      startTime: at(1),
      completionTime: at(5 * hour),
      machines: [{ name: 'm', steps: [step('a', 1, 2 * hour), step('b', 2 * hour + 1_000, 5 * hour)] }],
    });
    expect(timelineOf(steady, 0)?.cuts).toEqual([]);
  });

  it('ends with the operation, whatever the clock says', () => {
    const over = create(OperationSchema, {
      startTime: at(1),
      completionTime: at(50),
      machines: [{ name: 'm', phase: UnitPhase.COMPLETED, steps: [step('a', 1, 50)] }],
    });
    expect(timelineOf(over, 9_000_000)?.end).toBe(50_000);
  });

  it('has stages without machines first, and survives a clock that is behind', () => {
    const skewed = create(OperationSchema, {
      startTime: at(100),
      units: [{ name: 'Check', steps: [step('Checking', 100)] }],
      machines: [{ name: 'm' }],
    });
    const timeline = timelineOf(skewed, 90_000);
    expect(timeline?.lanes.map((lane) => lane.name)).toEqual(['Check', 'm']);
    expect(timeline?.lanes[0]?.bars[0]).toMatchObject({ start: 100_000, end: 101_000 });
    expect(timeline?.end).toBeGreaterThan(100_000);
  });
});

it('tells what was proved from what goes on, and counts', () => {
  const units = [
    { name: 'm1', stage: 'TalosSwap', message: 'proved', steps: [{ ...step('Applying', 1, 2), stage: 'TalosSwap' }] },
    { name: 'm2', stage: 'TalosSwap', step: 'Verifying', message: 'waits', steps: [step('Verifying', 2)] },
    { name: 'm3', stage: 'TalosSwap', failed: true, message: 'broke', steps: [step('Verifying', 2)] },
    { name: 'Rewrite', stage: 'Rewrite', step: 'Rewriting', done: 12n, goesOn: true, steps: [step('Rewriting', 2)] },
  ];
  const lanes = timelineOf(create(OperationSchema, { startTime: at(1), machines: units }), 9_000)?.lanes ?? [];
  expect(lanes.map(({ message, found, done, goesOn }) => [message, found, done, goesOn])).toEqual([
    ['', 'proved', 0, false],
    ['waits', '', 0, false],
    ['broke', '', 0, false],
    ['', '', 12, true],
  ]);
  expect(lanes[0]?.bars.map(({ stage }) => stage)).toEqual(['TalosSwap', '']);
});

it('has round ticks, seven at most', () => {
  expect(ticksOf(0, 25_000)).toEqual([0, 5_000, 10_000, 15_000, 20_000, 25_000]);
  expect(ticksOf(1_000, 841_000)).toEqual([0, 300_000, 600_000]);
  for (const span of [1, 900, 61_000, 3_600_001, 86_400_000 * 9, 86_400_000 * 400]) {
    expect(ticksOf(0, span).length).toBeLessThanOrEqual(7);
  }
});

it('places times between the ends', () => {
  expect(place({ start: 100, end: 200 }, 150)).toBe(50);
  expect(place({ start: 100, end: 200 }, 250)).toBe(100);
  expect(place({ start: 100, end: 100 }, 100)).toBe(0);
});
