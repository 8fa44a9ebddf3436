// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func ofNode(node *pb.NodeParameters) *pb.OperationOrder {
	return &pb.OperationOrder{
		Kind: pb.OperationKind_OPERATION_KIND_NODE, Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_Node{Node: node}},
	}
}

// Every action of kind node: what is typed, what the hub is asked, and what the user reads.
func TestNodeCommands(t *testing.T) {
	for name, row := range map[string]struct {
		args []string
		want *pb.NodeParameters
		says string
	}{
		"reboot": {
			[]string{"reboot", "W-2", "--mode", "powercycle"}, &pb.NodeParameters{Machine: "prod-1-w-2", Action: "Reboot", RebootMode: "PowerCycle"},
			": reboot of prod-1-w-2 (powercycle); machines reboot\n",
		},
		"shutdown": {[]string{"shutdown", "w-2"}, &pb.NodeParameters{Machine: "prod-1-w-2", Action: "Shutdown"}, ": shutdown of prod-1-w-2; machines reboot\n"},
		"service": {
			[]string{"restart-service", "w-2", "--service", "kubelet"}, &pb.NodeParameters{Machine: "prod-1-w-2", Action: "RestartService", Service: "kubelet"},
			": restart-service of prod-1-w-2 (kubelet)",
		},
		"every member": {
			[]string{"etcd-defrag", "--cluster", "prod-1", "--alarms", "disarm"}, &pb.NodeParameters{Action: "EtcdDefrag", Alarms: "Disarm"},
			": etcd-defrag of every member (disarm)",
		},
		"one member": {[]string{"etcd-defrag", "cp-1"}, &pb.NodeParameters{Machine: "prod-1-cp-1", Action: "EtcdDefrag"}, ": etcd-defrag of prod-1-cp-1"},
		"leadership": {
			[]string{"etcd-forfeit-leadership", "cp-1"}, &pb.NodeParameters{Machine: "prod-1-cp-1", Action: "EtcdForfeitLeadership"},
			": etcd-forfeit-leadership of prod-1-cp-1",
		},
		"reset": {[]string{"reset", "w-2"}, &pb.NodeParameters{Machine: "prod-1-w-2", Action: "Reset"}, ": reset of prod-1-w-2"},
		"reset with everything": {
			[]string{"reset", "w-2", "--manner", "forced", "--wipe", "system,user-volumes", "--after", "power-off"},
			&pb.NodeParameters{Machine: "prod-1-w-2", Action: "Reset", Reset_: &pb.ResetParameters{Manner: "Forced", Wipe: []string{"System", "UserVolumes"}, After: "PowerOff"}},
			": reset of prod-1-w-2 (forced, system+uservolumes, poweroff)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h, u := planning(t, &pb.Plan{Cluster: ref("default", "prod-1"), Kind: pb.OperationKind_OPERATION_KIND_NODE, Effect: pb.Effect_EFFECT_REBOOT})
			order := ofNode(row.want)
			order.Cluster = ref("default", "prod-1")
			r := u.ichor(append([]string{"node"}, append(row.args, "--yes")...)...)
			g.Expect(r.Code).To(BeZero(), r.Err)
			g.Expect(r.Err).To(ContainSubstring(row.says))
			g.Expect(of[*pb.PlanOperationRequest](h)[0].GetOrder()).To(BeComparableTo(order, protoEqual))
			g.Expect(of[*pb.CreateOperationRequest](h)).To(HaveLen(1))

			if row.args[0] == "shutdown" { // There, that is a cluster's.
				row.args[0] = "node-shutdown"
			}
			planned := u.ichor(append([]string{"operation", "plan"}, row.args...)...)
			g.Expect(planned.Code).To(BeZero(), planned.Err)
			g.Expect(of[*pb.PlanOperationRequest](h)[1].GetOrder()).To(BeComparableTo(order, protoEqual), "what is planned is what would be started")
			g.Expect(of[*pb.CreateOperationRequest](h)).To(HaveLen(1))
		})
	}
}

// Who wipes a machine reads what is lost before they type its name.
func TestResetTellsWhatIsLost(t *testing.T) {
	g := NewWithT(t)
	plan := &pb.Plan{
		Cluster: ref("default", "prod-1"), Kind: pb.OperationKind_OPERATION_KIND_NODE, Effect: pb.Effect_EFFECT_RESET, Confirmation: pb.Confirmation_CONFIRMATION_NAME,
		Stages:   []*pb.PlanStage{{Name: "Reset", Disruptive: true, Groups: []*pb.PlanGroup{together(planMachineOf("prod-1-w-2", 2))}}},
		Losses:   []string{"prod-1-w-2: its machine config", "prod-1-w-2: its user volumes"},
		Warnings: []*pb.Warning{{Code: "Remains", Message: "TalosMachine prod-1-w-2 stays"}},
	}
	h, u := planning(t, plan)
	u.in, u.terminal = strings.NewReader("prod-1-w-2\n"), true
	r := u.ichor("node", "reset", "w-2", "--wipe", "system,user-volumes")
	g.Expect(r.Code).To(BeZero(), r.Err)
	golden(t, "node-reset.txt", strings.ReplaceAll("standard output:\n"+r.Out+"standard error:\n"+r.Err, h.url, "http://hub"))
}

// Who removes a machine says why, reads what that means, and types its name; who says that it is dead says so.
func TestRemoveCommand(t *testing.T) {
	for name, row := range map[string]struct {
		args []string
		want *pb.NodeParameters
		says string
	}{
		"in good order": {
			[]string{"--reason", "sold"}, &pb.NodeParameters{Machine: "prod-1-w-2", Action: "Remove", Remove: &pb.RemoveParameters{Reason: "sold"}},
			": remove of prod-1-w-2; the machine leaves the cluster for good\n",
		},
		"dead": {
			[]string{"--dead", "--reason", "mainboard", "--override", "ControlPlanesReady=two are lost"},
			&pb.NodeParameters{Machine: "prod-1-w-2", Action: "Remove", Remove: &pb.RemoveParameters{Manner: "Dead", Reason: "mainboard"}},
			": remove of prod-1-w-2 (dead); the machine leaves the cluster for good\n",
		},
		"as Git has asked": {nil, &pb.NodeParameters{Machine: "prod-1-w-2", Action: "Remove", Remove: &pb.RemoveParameters{}}, ": remove of prod-1-w-2;"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h, u := planning(t, &pb.Plan{
				Cluster: ref("default", "prod-1"), Kind: pb.OperationKind_OPERATION_KIND_NODE, Effect: pb.Effect_EFFECT_REMOVE, Confirmation: pb.Confirmation_CONFIRMATION_NAME,
			})
			r := u.ichor(append([]string{"machine", "remove", "w-2", "--yes"}, row.args...)...)
			g.Expect(r.Code).NotTo(BeZero(), "--yes is not enough")
			g.Expect(of[*pb.CreateOperationRequest](h)).To(BeEmpty())
			r = u.ichor(append([]string{"machine", "remove", "w-2", "--confirm", "prod-1-w-2"}, row.args...)...)
			g.Expect(r.Code).To(BeZero(), r.Err)
			g.Expect(r.Err).To(ContainSubstring(row.says))
			made := of[*pb.CreateOperationRequest](h)
			g.Expect(made).To(HaveLen(1))
			g.Expect(made[0].GetOrder().GetParameters().GetNode()).To(BeComparableTo(row.want, protoEqual))
			g.Expect(u.ichor(append([]string{"operation", "plan", "remove", "w-2"}, row.args...)...).Code).To(BeZero())
		})
	}
}
