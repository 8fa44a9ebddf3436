// SPDX-License-Identifier: Apache-2.0

package table

import (
	"context"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// rollOut orders the machine config of cluster c1 rolled out, on all machines or on some.
func rollOut(machines ...string) *pb.OperationOrder {
	return &pb.OperationOrder{
		Cluster: ref(Cluster), Kind: pb.OperationKind_OPERATION_KIND_CONFIG,
		Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_Config{Config: &pb.ConfigParameters{Machines: machines}}},
	}
}

// diffConfig asks how the machine configs of cluster c1 differ.
func diffConfig(machines ...string) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Clusters.DiffConfig(ctx, connect.NewRequest(&pb.DiffConfigRequest{Cluster: ref(Cluster), Machines: machines})))
	}
}

// asksForPatch is cluster c1 with a patch.
func asksForPatch(c *v1alpha1.TalosCluster) {
	c.Spec.MachineConfig = &v1alpha1.MachineConfigSpec{Patches: []v1alpha1.MachineConfigPatch{{Name: "swap", Patch: "machine:\n  sysctls: {vm.swappiness: \"1\"}\n"}}}
}

// asked is the hash of what it asks for.
var asked = cluster(asksForPatch).MachineConfigHash()

// differs is a machine whose config takes something.
func differs(effect v1alpha1.ConfigEffect) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) {
		m.Status.Config = &v1alpha1.MachineConfigStatus{SpecHash: asked, Effect: effect, Diff: "+" + m.Name}
	}
}

// configWorld is a world in which machines differ from what the patch asks for, but for those that are given.
func configWorld(effect v1alpha1.ConfigEffect, other ...client.Object) func() *World {
	objects := slices.Concat(other, []client.Object{cluster(asksForPatch)})
	for _, object := range everywhere(differs(effect)) {
		if !slices.ContainsFunc(other, func(o client.Object) bool { return o.GetName() == object.GetName() }) {
			objects = append(objects, object)
		}
	}
	return given(objects...)
}

// configs are orders of roll-outs that nobody can mean, and those that somebody can.
func configs() []Row {
	return append([]Row{
		invalid("config/parameters of another kind", `order.parameters.config "[c1-w-1]": goes with kind config only`,
			plan(upgrade(func(o *pb.OperationOrder) { o.Parameters = rollOut("c1-w-1").GetParameters() }))),
		invalid("config/a machine without name", "order.parameters.config.machines is missing: name TalosMachines, or their Nodes", plan(rollOut(""))),
		invalid("config/to a version", `order.target "talos_version v1.14.1": kind config changes no spec`,
			plan(func() *pb.OperationOrder {
				o := rollOut()
				o.Target = &pb.OperationTarget{TalosVersion: wanted}
				return o
			}())),
		invalid("config/to a hash", `order.target.machine_config_hash "`+asked+`": it follows from spec.machineConfig of the TalosCluster, which is changed there`,
			plan(func() *pb.OperationOrder {
				o := rollOut()
				o.Target = &pb.OperationTarget{MachineConfigHash: asked}
				return o
			}())),
	}, configPlans()...)
}

// configPlans are plans and starts of roll-outs, and what differs before.
func configPlans() []Row {
	const reboots, live, none = v1alpha1.ConfigEffectReboot, v1alpha1.ConfigEffectLive, v1alpha1.ConfigEffectNone
	return []Row{
		{
			Name: "config/a plan with a canary", Given: configWorld(reboots, machine("c1-w-2", differs(live)), machine("c1-cp-3", differs(none))),
			Call: plan(rollOut()),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				p := planOf(answer)
				g.Expect(p.GetRefusals()).To(gomega.BeEmpty())
				g.Expect(p.GetEffect()).To(gomega.Equal(pb.Effect_EFFECT_REBOOT))
				g.Expect(p.GetStages()).To(gomega.HaveLen(3))
				g.Expect(groupsOf(p.GetStages()[0])).To(gomega.Equal("c1-cp-2 c1-cp-1 c1-w-1 c1-w-2"))
				g.Expect(groupsOf(p.GetStages()[1])).To(gomega.Equal("c1-w-1"))
				g.Expect(groupsOf(p.GetStages()[2])).To(gomega.Equal("c1-cp-2 | c1-cp-1 | c1-w-2"))
				canary, last := p.GetStages()[1].GetGroups()[0].GetMachines()[0], p.GetStages()[2].GetGroups()[2].GetMachines()[0]
				g.Expect(canary.GetEffect()).To(gomega.Equal(pb.Effect_EFFECT_REBOOT))
				g.Expect(canary.GetDiff()).To(gomega.Equal("+c1-w-1"))
				g.Expect(last.GetEffect()).To(gomega.Equal(pb.Effect_EFFECT_RESTART_COMPONENTS))
				g.Expect(p.GetTarget().GetMachineConfigHash()).To(gomega.Equal(asked))
				g.Expect(p.GetWritesSpec()).To(gomega.BeFalse())
				g.Expect(p.GetCommand()).To(gomega.Equal("ichor config rollout --namespace default --cluster c1"))
			},
		},
		{
			Name: "config/machines by the names of their Nodes", Given: configWorld(live), Call: plan(rollOut("w-2", "c1-w-2", "cp-1")),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				p := planOf(answer)
				g.Expect(groupsOf(p.GetStages()[0])).To(gomega.Equal("c1-cp-1 c1-w-2"))
				g.Expect(p.GetStages()[1].GetDisruptive()).To(gomega.BeFalse(), "nothing reboots")
				g.Expect(p.GetCommand()).To(gomega.Equal("ichor config rollout --namespace default --cluster c1 --machine c1-w-2 --machine c1-cp-1"))
			},
		},
		{
			Name: "config/everything is there", Given: configWorld(none), Call: create(rollOut()),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(answer.(*pb.CreateOperationResponse).GetNothingToDo()).To(gomega.BeTrue())
			},
		},
		{
			Name: "config/a machine that is not compared yet", Given: configWorld(live, machine("c1-w-2", func(*v1alpha1.TalosMachine) {})),
			Call: create(rollOut()), Code: connect.CodeFailedPrecondition, Gates: []string{"MachineConfigKnown"},
			Message: "refused: MachineConfigKnown: the machine config of c1-w-2 has not been compared with what is asked for yet (wait some seconds; see: ichor config diff w-2 --cluster c1)",
		},
		{
			Name: "config/somebody tries one", Given: configWorld(live, machine("c1-w-2", func(m *v1alpha1.TalosMachine) {
				differs(live)(m)
				m.Status.Config.Pending = "somebody tries one"
			})),
			Call: plan(rollOut()),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(planOf(answer).GetRefusals()[0].GetGate()).To(gomega.Equal("MachineConfigPending"))
			},
		},
		{
			Name: "config/other patches than somebody saw", Given: configWorld(live),
			Call: create(rollOut(), func(r *pb.CreateOperationRequest) {
				r.ExpectedTarget = &pb.OperationTarget{MachineConfigHash: strings.Repeat("0", 64)}
			}),
			Code: connect.CodeFailedPrecondition, Gates: []string{"TargetExpected"},
			Message: "refused: TargetExpected: cluster c1 would be brought to machine_config_hash " + asked + ", and the request expects machine_config_hash " + strings.Repeat("0", 64) +
				" (look at the plan again: ichor config rollout --namespace default --cluster c1 --dry-run)",
		},
		{
			Name: "config/a start", Given: configWorld(live), Call: create(rollOut("w-1")), Writes: []string{"dry-run create TalosOperation", "create TalosOperation"},
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				op := answer.(*pb.CreateOperationResponse).GetOperation()
				g.Expect(op.GetKind()).To(gomega.Equal(pb.OperationKind_OPERATION_KIND_CONFIG))
				g.Expect(op.GetParameters().GetConfig().GetMachines()).To(gomega.Equal([]string{"c1-w-1"}))
				g.Expect(op.GetTarget().GetMachineConfigHash()).To(gomega.Equal(asked))
			},
		},
		{
			Name: "config/what differs", Given: configWorld(reboots, machine("c1-w-2", func(m *v1alpha1.TalosMachine) { m.Status.Config = nil })),
			Call: diffConfig("w-1", "c1-w-2"),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				machines := answer.(*pb.DiffConfigResponse).GetMachines()
				g.Expect(machines).To(gomega.HaveLen(2))
				g.Expect(machines[0].GetEffect()).To(gomega.Equal("Reboot"))
				g.Expect(machines[0].GetDiff()).To(gomega.Equal("+c1-w-1"))
				g.Expect(machines[1].GetTrouble()).To(gomega.Equal("the hub has not compared its config yet"))
			},
		},
		{
			Name: "config/what differs on no machine", Call: diffConfig("w-9"), Code: connect.CodeInvalidArgument,
			Message: `machines "w-9": an approved machine of cluster c1; see: ichor machine list --cluster c1`,
		},
	}
}
