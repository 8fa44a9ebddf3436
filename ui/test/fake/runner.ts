// SPDX-License-Identifier: Apache-2.0
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import type { Operation, OperationOrder } from '../../src/gen/ichor/v1alpha1/operation_pb';
import { OperationKind, OperationPhase, UnitPhase } from '../../src/gen/ichor/v1alpha1/operation_pb';
import { Attention } from '../../src/gen/ichor/v1alpha1/types_pb';
import { refKey } from '../../src/lib/refs';
import { kindNames } from '../../src/lib/rights';
import type { FakePlan } from './plans';
import type { Orders } from './service';
import { backwards, confirmed, ended, staged, stepStage } from './stages';
import type { World } from './world';

const steps = ['Pulling', 'Installing', 'Draining', 'Rebooting', 'Verifying', 'Uncordoning'];

/** failing is the machine on which the fake fails a step, once. */
export const failing = { machine: '', step: 'Installing' };

/** Runner runs operations, one machine after the other. */
export class Runner {
  private count = 0;
  private readonly plans = new Map<string, string[]>();
  private readonly timers = new Map<string, NodeJS.Timeout>();

  constructor(
    private readonly world: World,
    private readonly orders: Pick<Orders, 'stepLength'>,
  ) {}

  start(order: OperationOrder | undefined, plan: FakePlan, user: string): Operation {
    const { namespace = '', name = '' } = order?.cluster ?? {};
    const kind = order?.kind ?? OperationKind.UNSPECIFIED;
    const ref = { namespace, name: `${kindNames[kind]}-${name}-${++this.count}` };
    const last = plan.stages.findLast((stage) => stage.groups.length > 0);
    const machines = last?.groups.flatMap((group) => group.machines.map((machine) => machine.name)) ?? [];
    this.plans.set(refKey(ref), machines);
    const operation = this.world.putOperation({
      ref,
      uid: `uid-${ref.name}`,
      cluster: order?.cluster,
      kind: order?.kind,
      parameters: order?.parameters,
      overrides: order?.overrides,
      phase: OperationPhase.PENDING,
      attention: Attention.WAITING,
      target: plan.target,
      createdBy: user === 'admin' ? 'mei@example.com' : user,
      createTime: timestampFromMs(Date.now()),
      machinesTotal: machines.length,
      comingStages: staged.includes(kind) ? plan.stages.map((stage) => stage.name) : [],
      maxUnavailable: order?.maxUnavailable || '1',
      answer: { doing: 'takes the lock', why: '', who: '', command: '', reason: '' },
    });
    this.later(refKey(ref));
    return operation;
  }

  pause(key: string, paused: boolean): Operation {
    const operation = this.world.putOperation({ ...this.get(key), paused });
    if (!paused) {
      this.later(key);
    }
    return operation;
  }

  confirm(key: string): Operation {
    const operation = this.world.putOperation(confirmed(this.get(key)));
    this.later(key);
    return operation;
  }

  turnBack(key: string): Operation {
    const operation = this.world.putOperation(backwards(this.get(key)));
    this.later(key);
    return operation;
  }

  retry(key: string): Operation {
    const operation = this.get(key);
    const machines = operation.machines.map((unit) => ({ ...unit, failed: false, message: '' }));
    const next = this.world.putOperation({
      ...operation,
      machines,
      failureReason: '',
      phase: OperationPhase.IN_PROGRESS,
      attention: Attention.NONE,
      lastRetryTime: timestampFromMs(Date.now()),
    });
    this.later(key);
    return next;
  }

  private get(key: string): Operation {
    const operation = this.world.operations.get(key);
    if (!operation) {
      throw new Error(`there is no operation ${key}`);
    }
    return operation;
  }

  private later(key: string): void {
    clearTimeout(this.timers.get(key));
    const next = () => this.world.operations.has(key) && this.step(key);
    this.timers.set(key, setTimeout(next, this.orders.stepLength));
  }

  /** step takes one step of one machine. */
  private step(key: string): void {
    const operation = this.get(key);
    if (staged.includes(operation.kind)) {
      this.stage(key, operation);
      return;
    }
    const machines = operation.machines.map((unit) => ({ ...unit, steps: [...unit.steps] }));
    const now = timestampFromMs(Date.now());
    const unit = machines.at(-1);
    if (!unit || unit.phase === UnitPhase.COMPLETED) {
      this.next(key, operation, machines);
      return;
    }
    const last = unit.steps.at(-1);
    if (last && !last.endTime) {
      unit.steps[unit.steps.length - 1] = { ...last, endTime: now };
    }
    const done = steps.indexOf(unit.step) + 1;
    if (done >= steps.length) {
      Object.assign(unit, { phase: UnitPhase.COMPLETED, step: '', message: '' });
      this.world.recordEvent(key, 'MachineCompleted', `${unit.name} is completed`);
      this.world.putOperation({ ...operation, machines, machinesCompleted: operation.machinesCompleted + 1 });
      this.later(key);
      return;
    }
    const step = steps[done] ?? '';
    Object.assign(unit, { step, stepStartTime: now, message: `${step} ${unit.name}` });
    unit.steps.push({ $typeName: 'ichor.v1alpha1.OperationStep', name: step, startTime: now, stage: 'Upgrade' });
    if (failing.machine === unit.name && failing.step === step) {
      this.fail(key, { ...operation, machines });
      return;
    }
    this.world.putOperation({
      ...operation,
      machines,
      answer: { doing: `${step} ${unit.name}`, why: '', who: '', command: '', reason: '' },
    });
    this.later(key);
  }

  /** stage takes one stage of an operation whose machines go stage by stage. */
  private stage(key: string, operation: Operation): void {
    const next = stepStage(this.world, operation);
    if (!next) {
      const stages = [...operation.completedStages, operation.stage];
      const machines = operation.machines.map((unit) => ({ ...unit, phase: UnitPhase.COMPLETED }));
      this.complete(key, { ...operation, machines, conditions: ended(operation) as never, completedStages: stages });
    } else if (next.awaits === '') {
      this.later(key);
    }
  }

  private next(key: string, operation: Operation, machines: Operation['machines']): void {
    const plan = this.plans.get(key) ?? [];
    if (operation.paused) {
      const answer = {
        doing: 'nothing',
        why: 'spec.paused is true',
        who: 'whoever may resume it',
        command: `ichor operation resume ${operation.ref?.name} -n ${operation.ref?.namespace}`,
        reason: 'OperatorPaused',
      };
      this.world.putOperation({ ...operation, phase: OperationPhase.PAUSED, attention: Attention.PERSON, answer });
      return;
    }
    const name = plan[machines.length];
    if (name === undefined) {
      this.complete(key, operation);
      return;
    }
    const unit = {
      $typeName: 'ichor.v1alpha1.OperationUnit' as const,
      name,
      phase: UnitPhase.IN_PROGRESS,
      stage: 'Upgrade',
      step: '',
      message: '',
      failed: false,
      steps: [],
    };
    const startTime = operation.startTime ?? timestampFromMs(Date.now());
    this.world.putOperation({
      ...operation,
      machines: [...machines, unit],
      phase: OperationPhase.IN_PROGRESS,
      attention: Attention.NONE,
      lockHeld: true,
      stage: 'Upgrade',
      startTime,
    });
    this.later(key);
  }

  private fail(key: string, operation: Operation): void {
    failing.machine = '';
    const unit = operation.machines.at(-1);
    const failureReason = `Installing on ${unit?.name} failed: the installer ended with exit code 17`;
    const machines = operation.machines.map((each) =>
      each === unit ? { ...each, failed: true, step: 'Pulling', message: 'exit code 17' } : each,
    );
    const command = `ichor operation resume ${operation.ref?.name} -n ${operation.ref?.namespace}`;
    this.world.recordEvent(key, 'StepFailed', failureReason, true);
    this.world.putOperation({
      ...operation,
      machines,
      failureReason,
      phase: OperationPhase.PAUSED,
      attention: Attention.FAILED,
      answer: { doing: 'nothing', why: failureReason, who: 'whoever may start it', command, reason: 'StepFailed' },
    });
  }

  private complete(key: string, operation: Operation): void {
    const cluster = this.world.clusters.get(refKey(operation.cluster));
    const version = operation.target?.talosVersion;
    if (cluster && version) {
      this.world.putCluster({
        ...cluster,
        talosVersions: { lowest: version, highest: version },
        desired: { ...cluster.desired, talosVersion: version },
        drift: [],
      });
      for (const machine of this.world.machinesOf(refKey(operation.cluster))) {
        this.world.putMachine({ ...machine, talosVersion: version });
      }
    }
    this.world.recordEvent(key, 'Completed', 'every machine is completed');
    this.world.putOperation({
      ...operation,
      phase: OperationPhase.COMPLETED,
      attention: Attention.NONE,
      lockHeld: false,
      stage: '',
      completedStages: staged.includes(operation.kind) ? operation.completedStages : ['Pull', 'Upgrade'],
      machinesCompleted: operation.machinesTotal,
      canTurnBack: false,
      completionTime: timestampFromMs(Date.now()),
      answer: { doing: 'nothing: completed', why: '', who: '', command: '', reason: '' },
    });
  }
}
