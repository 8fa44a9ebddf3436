// SPDX-License-Identifier: Apache-2.0
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import type { Operation } from '../../src/gen/ichor/v1alpha1/operation_pb';
import { OperationKind, OperationPhase, UnitPhase } from '../../src/gen/ichor/v1alpha1/operation_pb';
import { Attention, ConditionStatus, MachineRole } from '../../src/gen/ichor/v1alpha1/types_pb';
import { refKey } from '../../src/lib/refs';
import type { World } from './world';

/** staged are the kinds that go stage by stage with all of their machines. */
export const staged = [OperationKind.CA_ROTATION, OperationKind.KEY_ROTATION, OperationKind.ETCD_RESTORE];

const perAuthority = ['Accept', 'Trust', 'Swap', 'AwaitingCredentials', 'DropWorkers', 'Drop'];

const perKey: Record<string, string[]> = {
  ServiceAccount: ['AcceptServiceAccount', 'PublishKeys', 'SwapServiceAccount', 'RefreshTokens', 'DropServiceAccount'],
  Secretbox: ['Snapshot', 'AcceptSecretbox', 'SwapSecretbox', 'Rewrite', 'DropSecretbox'],
};

/** stageNames are the stages that a hub plans for what is asked of it. */
export function stageNames(parameters: Operation['parameters']): string[] {
  const of = parameters?.parameters;
  switch (of?.case) {
    case 'caRotation': {
      const passes = of.value.authorities.flatMap((authority) =>
        perAuthority
          .filter((pass) => authority === 'Kubernetes' || pass !== 'DropWorkers')
          .map((pass) => authority + pass),
      );
      return ['Prepare', ...passes, 'Finish'];
    }
    case 'keyRotation':
      return ['Check', 'Keys', 'Migrate', ...of.value.keys.flatMap((key) => perKey[key] ?? []), 'Bundle'];
    case 'etcdRestore': {
      const first = of.value.safetySnapshot === 'Take' ? ['Check', 'Snapshot'] : ['Check'];
      return [...first, 'Wipe', 'Recover', 'Join', 'Kubelets', 'Clean', 'Verify'];
    }
    default:
      return [];
  }
}

/** Stages without machines. */
const whole =
  /^(Prepare|Finish|Keys|PublishKeys|Bundle|Snapshot|Rewrite|Clean|Verify|Check|.*(Trust|Credentials|RefreshTokens))$/;

/** wholeStage says whether a stage has no machines. */
export function wholeStage(stage: string): boolean {
  return whole.test(stage);
}

const waits = /(AwaitingCredentials|RefreshTokens)$/;
const drops = /Drop/;

/** secrets is how many objects the fake writes again. */
export const secrets = 1_234n;

const idle = { doing: '', why: '', who: '', command: '', reason: '' };

/** stepStage brings an operation one stage further, or says why it stays; undefined if there is nothing more to come. */
export function stepStage(world: World, operation: Operation): Operation | undefined {
  if (operation.awaits !== '') {
    return operation;
  }
  const [next, ...coming] = operation.comingStages;
  if (next === undefined) {
    return undefined;
  }
  const completed = operation.stage === '' ? [] : [operation.stage];
  const dropped = drops.test(next) && !coming.some((stage) => drops.test(stage));
  return world.putOperation({
    ...operation,
    ...stageParts(world, operation, next),
    phase: OperationPhase.IN_PROGRESS,
    lockHeld: true,
    startTime: operation.startTime ?? timestampFromMs(Date.now()),
    stage: next,
    completedStages: [...operation.completedStages, ...completed],
    comingStages: coming,
    canTurnBack: canTurnBack(operation, next),
    noWayBack:
      dropped || operation.noWayBack !== '' ? 'machines have begun to drop the old one: there is no way back' : '',
  });
}

function canTurnBack(operation: Operation, stage: string): boolean {
  return (
    operation.kind !== OperationKind.ETCD_RESTORE &&
    !operation.turnBackRequested &&
    operation.noWayBack === '' &&
    !drops.test(stage)
  );
}

/** stageParts are what a stage makes of an operation. */
function stageParts(world: World, operation: Operation, stage: string): object {
  const now = Date.now();
  const waiting = waits.test(stage) && !operation.turnBackRequested;
  const step = {
    name: 'Applying',
    stage,
    startTime: timestampFromMs(now - 9_000),
    endTime: timestampFromMs(now - 1_000),
  };
  if (!wholeStage(stage)) {
    const machines = world
      .machinesOf(refKey(operation.cluster))
      .filter((machine) => takes(operation, stage, machine.role))
      .map((machine) => ({
        name: machine.ref?.name ?? '',
        phase: operation.comingStages.length > 1 ? UnitPhase.IN_PROGRESS : UnitPhase.COMPLETED,
        stage,
        message: `the API at ${machine.address} proves ${stage} to a client that trusts nothing else`,
        steps: [...(operation.machines.find((unit) => unit.name === machine.ref?.name)?.steps ?? []), step],
      }));
    return { machines, attention: Attention.NONE, answer: { ...idle, doing: `${stage}: Applying` } };
  }
  const why = `the new credentials are in Secret ${operation.cluster?.name}-talosconfig`;
  const unit = {
    name: stage,
    stage,
    phase: waiting ? UnitPhase.IN_PROGRESS : UnitPhase.COMPLETED,
    step: waiting ? 'AwaitingCredentials' : '',
    stepStartTime: waiting ? timestampFromMs(now) : undefined,
    steps: [waiting ? { name: 'AwaitingCredentials', stage, startTime: timestampFromMs(now) } : step],
    done: stage === 'Rewrite' ? secrets : 0n,
  };
  return {
    units: [...operation.units, unit],
    awaits: waiting ? stage : '',
    attention: waiting ? Attention.PERSON : Attention.NONE,
    answer: waiting ? { ...idle, why, reason: 'CredentialsConfirmed' } : { ...idle, doing: stage },
  };
}

function takes({ kind }: Operation, stage: string, role: MachineRole): boolean {
  const controls = role === MachineRole.CONTROL_PLANE;
  const ofControls = ['Wipe', 'Recover', 'Join', 'KubernetesDrop', 'KubernetesBackAccept'];
  if (kind === OperationKind.KEY_ROTATION || ofControls.includes(stage)) {
    return controls;
  }
  return ['Kubelets', 'KubernetesDropWorkers', 'KubernetesBackAcceptWorkers'].includes(stage) ? !controls : true;
}

/** confirmed is an operation whose stage under way somebody has confirmed. */
export function confirmed(operation: Operation): object {
  const units = operation.units.map((unit) =>
    unit.name === operation.stage
      ? {
          ...unit,
          phase: UnitPhase.COMPLETED,
          step: '',
          stepStartTime: undefined,
          steps: unit.steps.map((step) => ({ ...step, endTime: timestampFromMs(Date.now()) })),
        }
      : unit,
  );
  return { ...operation, units, awaits: '', attention: Attention.NONE, answer: idle };
}

/** backwards is an operation that somebody has asked to turn back. */
export function backwards(operation: Operation): object {
  const authority = /^(Talos|Kubernetes)/.exec(operation.stage)?.[0] ?? '';
  const passes = authority
    ? ['BackTrust', 'BackSwap', 'BackCredentials', 'BackAcceptWorkers', 'BackAccept']
        .filter((pass) => authority === 'Kubernetes' || pass !== 'BackAcceptWorkers')
        .map((pass) => authority + pass)
    : [];
  const comingStages = [...passes, authority ? 'Finish' : 'Bundle'];
  return { ...confirmed(operation), turnBackRequested: true, canTurnBack: false, comingStages };
}

/** ended is how an operation says that it has succeeded, or was turned back. */
export function ended({ turnBackRequested }: Operation) {
  return [
    {
      type: 'Succeeded',
      status: turnBackRequested ? ConditionStatus.FALSE : ConditionStatus.TRUE,
      reason: turnBackRequested ? 'TurnedBack' : 'Succeeded',
      message: '',
      lastTransitionTime: timestampFromMs(Date.now()),
    },
  ];
}
