// SPDX-License-Identifier: Apache-2.0

package render

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"ichor.maesh.dev/hub/api/v1alpha1"
	rotationplan "ichor.maesh.dev/hub/controllers/operation/kind/carotation/plan"
	keyplan "ichor.maesh.dev/hub/controllers/operation/kind/keyrotation/plan"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Operation renders an operation. Of the machines of its cluster it only takes how many it will take, and does without them.
func Operation(op *v1alpha1.TalosOperation, machines ...*v1alpha1.TalosMachine) *pb.Operation {
	rendered := &pb.Operation{
		Ref:             Reference(op.Namespace, op.Name),
		Uid:             string(op.UID),
		Cluster:         Reference(op.Namespace, op.Spec.ClusterName),
		Kind:            Kind(op.Spec.Kind),
		Phase:           Phase(op.Status.Phase),
		Stage:           op.Status.Stage,
		CompletedStages: op.Status.CompletedStages,
		ComingStages:    op.Status.ComingStages,
		Target:          targetOf(op),
		Machines:        units(op.Status.Machines),
		Units:           units(op.Status.Units),
		Held:            op.Status.Held,
		FailureReason:   op.Status.FailureReason,
		Conditions:      Conditions(op.Status.Conditions),
		Answer:          Answer(op),
		Paused:          op.Paused(),
		Deleting:        !op.DeletionTimestamp.IsZero(),
		LockHeld:        meta.IsStatusConditionTrue(op.Status.Conditions, v1alpha1.LockHeldCondition),
		Overrides:       overrides(op.Spec.Overrides),
		Parameters:      parameters(op.Spec),
		Awaits:          awaits(op),
		CreatedBy:       op.Annotations[v1alpha1.CreatedByAnnotation],
		CreateTime:      Time(op.CreationTimestamp),
		StartTime:       Time(op.Status.StartTime),
		CompletionTime:  Time(op.Status.CompletionTime),
		LastRetryTime:   Time(op.Status.LastRetry),
		Labels:          op.Labels,
		RetryRequested:  op.Annotations[v1alpha1.RetryAnnotation] == v1alpha1.RetryRequested,

		TurnBackRequested: op.Annotations[v1alpha1.TurnBackAnnotation] == v1alpha1.TurnBackRequested,
	}
	if planner, ok := turnsBack[op.Spec.Kind]; ok && !op.Completed() {
		rendered.NoWayBack = planner.NoWayBack(op)
		rendered.CanTurnBack = rendered.NoWayBack == "" && !rendered.TurnBackRequested
	}
	if op.Spec.MaxUnavailable != nil {
		rendered.MaxUnavailable = op.Spec.MaxUnavailable.String()
	}
	rendered.MachinesTotal, rendered.MachinesCompleted = progress(op, machines)
	rendered.Attention = operationAttention(rendered)
	return rendered
}

// turnsBack are the planners of the kinds whose operations can be turned back.
var turnsBack = map[v1alpha1.OperationKind]plan.TurnsBack{v1alpha1.CARotationKind: rotationplan.Planner{}, v1alpha1.KeyRotationKind: keyplan.Planner{}}

// targetOf is what an operation brings its cluster to; before it began, what it expects.
func targetOf(op *v1alpha1.TalosOperation) *pb.OperationTarget {
	switch {
	case op.Status.Target != nil:
		return Target(*op.Status.Target)
	case op.Spec.ExpectedTarget != nil:
		return Target(*op.Spec.ExpectedTarget)
	}
	return nil
}

func units(of []v1alpha1.UnitStatus) []*pb.OperationUnit {
	rendered := make([]*pb.OperationUnit, 0, len(of))
	for i := range of {
		rendered = append(rendered, unit(&of[i]))
	}
	return rendered
}

func unit(of *v1alpha1.UnitStatus) *pb.OperationUnit {
	rendered := &pb.OperationUnit{
		Name: of.Name, Phase: pb.UnitPhase_UNIT_PHASE_IN_PROGRESS, Stage: of.Stage, Step: string(of.Step),
		StepStartTime: Time(of.StepStartTime), Message: of.Message, Failed: !of.FailureTime.IsZero(),
		Steps: make([]*pb.OperationStep, 0, len(of.Steps)),
	}
	if of.Progress != nil {
		rendered.Done, rendered.GoesOn = of.Progress.Done, of.Progress.Cursor != ""
	}
	if of.Phase == v1alpha1.UnitCompleted {
		rendered.Phase = pb.UnitPhase_UNIT_PHASE_COMPLETED
	}
	for i := range of.Steps {
		step := &of.Steps[i]
		rendered.Steps = append(rendered.Steps, &pb.OperationStep{
			Name: string(step.Step), Stage: step.Stage, StartTime: Time(step.StartTime), EndTime: Time(step.CompletionTime),
		})
	}
	return rendered
}

func overrides(of []v1alpha1.GateOverride) []*pb.GateOverride {
	rendered := make([]*pb.GateOverride, 0, len(of))
	for _, override := range of {
		rendered = append(rendered, &pb.GateOverride{Gate: override.Gate, Reason: override.Reason})
	}
	return rendered
}

// awaiting are the steps that end when somebody says so.
var awaiting = []v1alpha1.OperationStep{v1alpha1.RefreshingStep, v1alpha1.AwaitingCredentialsStep}

// awaits is the stage under way that waits for somebody's word, and has not got it yet.
func awaits(op *v1alpha1.TalosOperation) string {
	stage := op.Status.Stage
	waits := slices.ContainsFunc(op.Status.Units, func(u v1alpha1.UnitStatus) bool { return u.Name == stage && slices.Contains(awaiting, u.Step) })
	if !waits || op.Annotations[v1alpha1.ConfirmStageAnnotation] == stage {
		return ""
	}
	return stage
}

func parameters(spec v1alpha1.TalosOperationSpec) *pb.OperationParameters {
	if spec.Config != nil {
		return &pb.OperationParameters{Parameters: &pb.OperationParameters_Config{Config: &pb.ConfigParameters{Machines: spec.Config.Machines}}}
	}
	if shutdown := spec.Shutdown; shutdown != nil {
		return &pb.OperationParameters{Parameters: &pb.OperationParameters_Shutdown{Shutdown: &pb.ShutdownParameters{
			Action: string(shutdown.Action), Snapshot: string(shutdown.Snapshot),
		}}}
	}
	if rotation := spec.KeyRotation; rotation != nil {
		keys := make([]string, len(rotation.Keys))
		for i, key := range rotation.Keys {
			keys[i] = string(key)
		}
		return &pb.OperationParameters{Parameters: &pb.OperationParameters_KeyRotation{KeyRotation: &pb.KeyRotationParameters{Keys: keys}}}
	}
	if rotation := spec.CARotation; rotation != nil {
		rendered := &pb.CARotationParameters{}
		for _, authority := range rotation.Authorities {
			rendered.Authorities = append(rendered.Authorities, string(authority))
		}
		return &pb.OperationParameters{Parameters: &pb.OperationParameters_CaRotation{CaRotation: rendered}}
	}
	if restore := spec.EtcdRestore; restore != nil {
		return &pb.OperationParameters{Parameters: &pb.OperationParameters_EtcdRestore{EtcdRestore: &pb.EtcdRestoreParameters{
			SnapshotName: restore.SnapshotName, SafetySnapshot: string(restore.SafetySnapshot), Integrity: string(restore.Integrity),
		}}}
	}
	if spec.Node == nil {
		return nil
	}
	return &pb.OperationParameters{Parameters: &pb.OperationParameters_Node{Node: &pb.NodeParameters{
		Machine: spec.Node.Machine, Action: string(spec.Node.Action), RebootMode: string(spec.Node.RebootMode),
		Service: spec.Node.Service, Alarms: string(spec.Node.Alarms), Reset_: reset(spec.Node.Reset),
		Remove: remove(spec.Node.Remove),
	}}}
}

func reset(of *v1alpha1.ResetParameters) *pb.ResetParameters {
	if of == nil {
		return nil
	}
	rendered := &pb.ResetParameters{Manner: string(of.Manner), After: string(of.After)}
	for _, target := range of.Wipe {
		rendered.Wipe = append(rendered.Wipe, string(target))
	}
	return rendered
}

// progress counts the machines that an operation takes, as far as that is known, and those that are over.
func progress(op *v1alpha1.TalosOperation, machines []*v1alpha1.TalosMachine) (total, completed int32) {
	for i := range op.Status.Machines {
		completed += count(op.Status.Machines[i].Phase == v1alpha1.UnitCompleted)
	}
	total = int32(len(op.Status.Machines))
	if op.Completed() {
		return total, completed
	}
	return max(total, planned(op, machines)), completed
}

// withoutMachines are the kinds whose stages have no machines.
var withoutMachines = []v1alpha1.OperationKind{v1alpha1.IchorKind, v1alpha1.CNIKind}

// planned is how many machines an operation will take: the one that it names, or all that the hub may touch and nobody holds.
func planned(op *v1alpha1.TalosOperation, machines []*v1alpha1.TalosMachine) (planned int32) {
	switch {
	case op.Spec.Node != nil && op.Spec.Node.Machine != "":
		return 1
	case op.Spec.Config != nil && len(op.Spec.Config.Machines) > 0:
		return int32(len(op.Spec.Config.Machines))
	case op.Spec.Node != nil, op.Spec.KeyRotation != nil: // Every member of etcd.
		for _, machine := range machines {
			planned += count(machine.Works() && machine.Spec.Role == v1alpha1.ControlPlaneRole)
		}
		return planned
	case op.Spec.Shutdown != nil && op.Spec.Shutdown.Action == v1alpha1.ClusterStart:
		return 0 // Its stages are about the cluster as a whole.
	case slices.Contains(withoutMachines, op.Spec.Kind):
		return 0
	}
	for _, machine := range machines {
		planned += count(machine.Works() && (!machine.Held() || op.Spec.Shutdown != nil || op.Spec.EtcdRestore != nil))
	}
	return planned
}

func count(yes bool) int32 {
	if yes {
		return 1
	}
	return 0
}

// urgency says of each reason that keeps an operation from moving how soon a person is needed. Gates that are not listed open by themselves.
var urgency = map[string]pb.Attention{
	v1alpha1.StepFailedReason:      pb.Attention_ATTENTION_FAILED,
	v1alpha1.DeletionBlockedReason: pb.Attention_ATTENTION_FAILED,
	v1alpha1.StatusLostReason:      pb.Attention_ATTENTION_PERSON,
	v1alpha1.RefusedReason:         pb.Attention_ATTENTION_PERSON,
	v1alpha1.NoExecutorReason:      pb.Attention_ATTENTION_PERSON,
	v1alpha1.TargetMissingReason:   pb.Attention_ATTENTION_PERSON,
	v1alpha1.OperatorPausedReason:  pb.Attention_ATTENTION_PERSON,
	v1alpha1.ClusterPausedReason:   pb.Attention_ATTENTION_PERSON,
	v1alpha1.MachineKnownGate:      pb.Attention_ATTENTION_PERSON,
	v1alpha1.TargetOwnedGate:       pb.Attention_ATTENTION_PERSON,
	v1alpha1.MachinesPoweredOnGate: pb.Attention_ATTENTION_PERSON,

	v1alpha1.CredentialsConfirmedGate: pb.Attention_ATTENTION_PERSON,
	v1alpha1.MachineHeldGate:          pb.Attention_ATTENTION_PERSON,
	v1alpha1.RotationPassGate:         pb.Attention_ATTENTION_PERSON,
}

// operationAttention says whether an operation needs a person. One that is about to retry has had its person.
func operationAttention(op *pb.Operation) pb.Attention {
	reason := op.GetAnswer().GetReason()
	switch {
	case reason == "":
		return pb.Attention_ATTENTION_NONE
	case urgency[reason] == pb.Attention_ATTENTION_UNSPECIFIED, op.GetRetryRequested():
		return pb.Attention_ATTENTION_WAITING
	}
	return urgency[reason]
}

// Summary is what a list of clusters shows of an operation.
func Summary(op *pb.Operation) *pb.OperationSummary {
	return &pb.OperationSummary{
		Ref: op.GetRef(), Kind: op.GetKind(), Phase: op.GetPhase(), Stage: op.GetStage(), Reason: op.GetAnswer().GetReason(),
		MachinesCompleted: op.GetMachinesCompleted(), MachinesTotal: op.GetMachinesTotal(),
		StartTime: op.GetStartTime(), Attention: op.GetAttention(),
	}
}

// Over says whether an operation is over.
func Over(op *pb.Operation) bool { return op.GetCompletionTime() != nil }

// moves says whether an operation takes steps on its cluster now. Steps have deadlines, so what it disturbs it mends, or it fails.
func moves(op *pb.Operation) bool {
	return op.GetLockHeld() && !Over(op) && op.GetAnswer().GetReason() == ""
}

// remove says how a machine is removed from its cluster, and why.
func remove(parameters *v1alpha1.RemoveParameters) *pb.RemoveParameters {
	if parameters == nil {
		return nil
	}
	return &pb.RemoveParameters{Manner: string(parameters.Manner), Reason: parameters.Reason}
}
