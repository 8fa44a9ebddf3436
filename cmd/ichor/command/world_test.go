// SPDX-License-Identifier: Apache-2.0

package command

import (
	"time"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func condition(kind string, status pb.ConditionStatus) *pb.Condition {
	return &pb.Condition{Type: kind, Status: status, Reason: kind}
}

const (
	yes = pb.ConditionStatus_CONDITION_STATUS_TRUE
	no  = pb.ConditionStatus_CONDITION_STATUS_FALSE
)

// prod is a cluster in the middle of an upgrade, fresh one that was just imported.
func prod() *pb.Cluster {
	return &pb.Cluster{
		Ref: ref("default", "prod-1"), Mode: pb.ClusterMode_CLUSTER_MODE_IMPORTED, Attention: pb.Attention_ATTENTION_WAITING, AttentionReason: "an upgrade is under way",
		Endpoint: "10.0.0.1:6443", Desired: &pb.OperationTarget{TalosVersion: "v1.14.1"}, TalosVersions: &pb.VersionRange{Lowest: "v1.13.9", Highest: "v1.14.1"},
		KubernetesVersions: &pb.VersionRange{Lowest: "v1.35.2", Highest: "v1.35.2"}, ControlPlanes: 3, Workers: 2, MachinesReady: 4,
		Conditions: []*pb.Condition{condition("Available", yes), condition("EtcdHealthy", no)},
		Lock:       &pb.LockHolder{Holder: "ichor-controller/op/default/prod-1-talos-x", Operation: ref("default", "prod-1-talos-x")}, CreateTime: ago(49 * time.Hour),
	}
}

func fresh() *pb.Cluster {
	return &pb.Cluster{Ref: ref("default", "new"), Lock: &pb.LockHolder{Holder: "ichor-controller/cni-helm"}}
}

func machine(name, node string, change func(*pb.Machine)) *pb.Machine {
	m := &pb.Machine{
		Ref: ref("default", name), Cluster: ref("default", "prod-1"), Node: node, Role: pb.MachineRole_MACHINE_ROLE_WORKER, Address: "10.0.0.9", Approved: true,
		TalosVersion: "v1.13.9", KubernetesVersion: "v1.35.2", Conditions: []*pb.Condition{condition("Ready", yes)}, CreateTime: ago(time.Hour),
	}
	change(m)
	return m
}

func machines() []*pb.Machine {
	return []*pb.Machine{
		machine("prod-1-cp-1", "cp-1", func(m *pb.Machine) { m.Role = pb.MachineRole_MACHINE_ROLE_CONTROL_PLANE }),
		machine("prod-1-w-1", "w-1", func(m *pb.Machine) { m.Approved = false }),
		machine("prod-1-w-2", "w-2", func(m *pb.Machine) { m.Held, m.HoldNote = true, "disk is dying" }),
		machine("prod-1-w-3", "w-3", func(m *pb.Machine) { m.Held = true }),
		machine("prod-1-w-4", "", func(m *pb.Machine) {
			m.Conditions, m.TalosVersion, m.KubernetesVersion, m.Step = nil, "", "", "Rebooting"
		}),
	}
}

func upgrade(phase pb.OperationPhase) *pb.Operation {
	return &pb.Operation{
		Ref: ref("default", "prod-1-talos-x"), Cluster: ref("default", "prod-1"), Kind: pb.OperationKind_OPERATION_KIND_TALOS, Phase: phase, Stage: "Upgrade",
		MachinesTotal: 5, MachinesCompleted: 2, CreatedBy: "alice", CreateTime: ago(10 * time.Minute), StartTime: ago(9 * time.Minute),
		Machines: []*pb.OperationUnit{
			{Name: "prod-1-cp-1", Phase: pb.UnitPhase_UNIT_PHASE_COMPLETED, Stage: "Upgrade"},
			{Name: "prod-1-w-1", Phase: pb.UnitPhase_UNIT_PHASE_IN_PROGRESS, Stage: "Upgrade", Step: "Draining", StepStartTime: ago(12 * time.Second), Message: "a budget keeps pods"},
		},
		Answer: &pb.Answer{Doing: "prod-1-w-1: Draining"},
	}
}

const (
	inProgress = pb.OperationPhase_OPERATION_PHASE_IN_PROGRESS
	paused     = pb.OperationPhase_OPERATION_PHASE_PAUSED
	completed  = pb.OperationPhase_OPERATION_PHASE_COMPLETED
)

func failedUpgrade() *pb.Operation {
	op := upgrade(paused)
	op.FailureReason = "installer: exit code 6"
	op.Answer = &pb.Answer{
		Doing: "nothing", Why: "step Installing of prod-1-w-1 failed: exit code 6", Who: "an operator, once the cause is mended",
		Command: "ichor operation resume prod-1-talos-x -n default", Reason: "StepFailed",
	}
	return op
}

func overUpgrade() *pb.Operation {
	op := upgrade(completed)
	op.CompletionTime, op.Held, op.MachinesCompleted = ago(time.Minute), []string{"prod-1-w-2"}, 5
	op.Answer = &pb.Answer{Doing: "nothing: completed within 8m0s"}
	return op
}
