// SPDX-License-Identifier: Apache-2.0

package table

import (
	"connectrpc.com/connect"
	"github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// nodeOrder orders an action of kind node.
func nodeOrder(machine, action string, change ...func(*pb.NodeParameters)) *pb.OperationOrder {
	return reboot(machine, func(o *pb.OperationOrder) {
		o.GetParameters().GetNode().Action = action
		for _, c := range change {
			c(o.GetParameters().GetNode())
		}
	})
}

// fullReset asks for everything that a reset has.
func fullReset(n *pb.NodeParameters) {
	n.Reset_ = &pb.ResetParameters{Manner: "Forced", Wipe: []string{"System", "UserVolumes"}, After: "PowerOff"}
}

func toolsService(n *pb.NodeParameters) { n.Service = "ext-tools" }

// nodes are the actions of kind node: what their plans say, and what an operation gets of them.
func nodes() []Row {
	plans := []struct {
		name         string
		order        *pb.OperationOrder
		effect       pb.Effect
		confirmation pb.Confirmation
		groups       []string
		losses       int
		warnings     []string
		command      string
	}{
		{
			"a shutdown", nodeOrder("cp-2", "Shutdown"), pb.Effect_EFFECT_STOP, pb.Confirmation_CONFIRMATION_NAME, []string{"c1-cp-2"}, 0,
			[]string{"StaysOff", "EtcdRoom"}, "ichor node shutdown c1-cp-2 --namespace default --cluster c1",
		},
		{
			"a reset", nodeOrder("c1-w-1", "Reset", fullReset), pb.Effect_EFFECT_RESET, pb.Confirmation_CONFIRMATION_NAME, []string{"c1-w-1"}, 2,
			[]string{"NotGraceful", "Remains"},
			"ichor node reset c1-w-1 --namespace default --cluster c1 --manner forced --wipe system,user-volumes --after power-off",
		},
		{
			"a service", nodeOrder("c1-w-1", "RestartService", toolsService), pb.Effect_EFFECT_RESTART_COMPONENTS, pb.Confirmation_CONFIRMATION_YES,
			[]string{"c1-w-1"}, 0, nil, "ichor node restart-service c1-w-1 --namespace default --cluster c1 --service ext-tools",
		},
		{
			"a defragmentation of every member", nodeOrder("", "EtcdDefrag", func(n *pb.NodeParameters) { n.Alarms = "Disarm" }), pb.Effect_EFFECT_RESTART_COMPONENTS,
			pb.Confirmation_CONFIRMATION_YES, []string{"c1-cp-2 | c1-cp-3 | c1-cp-1", "c1-cp-2"}, 0, nil,
			"ichor node etcd-defrag --namespace default --cluster c1 --alarms disarm",
		},
		{
			"a leadership", nodeOrder("c1-cp-1", "EtcdForfeitLeadership"), pb.Effect_EFFECT_NONE, pb.Confirmation_CONFIRMATION_YES, []string{"c1-cp-1"}, 0, nil,
			"ichor node etcd-forfeit-leadership c1-cp-1 --namespace default --cluster c1",
		},
	}
	rows := []Row{nodeKey(), nodeCreate()}
	for _, row := range plans {
		rows = append(rows, Row{
			Name: "plan/node, " + row.name, Call: plan(row.order),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				p := planOf(answer)
				g.Expect(p.GetEffect()).To(gomega.Equal(row.effect))
				g.Expect(p.GetConfirmation()).To(gomega.Equal(row.confirmation), "who stops or wipes a machine types its name")
				var groups []string
				for _, stage := range p.GetStages() {
					groups = append(groups, groupsOf(stage))
				}
				g.Expect(groups).To(gomega.Equal(row.groups))
				g.Expect(p.GetLosses()).To(gomega.HaveLen(row.losses))
				g.Expect(warningsOf(p)).To(gomega.Equal(row.warnings))
				g.Expect(p.GetCommand()).To(gomega.Equal(row.command))
				g.Expect(p.GetRefusals()).To(gomega.BeEmpty())
				g.Expect(p.GetWritesSpec()).To(gomega.BeFalse())
			},
		})
	}
	for _, action := range []struct{ name, verb string }{
		{"Shutdown", "node-shutdown"}, {"RestartService", "node-restart-service"}, {"EtcdDefrag", "node-etcd-defrag"},
		{"EtcdForfeitLeadership", "node-etcd-forfeit-leadership"}, {"Reset", "node-reset"}, {"Join", "node-join"}, {"Remove", "node-remove"},
	} {
		order := nodeOrder("c1-cp-1", action.name, func(n *pb.NodeParameters) {
			if action.name == "RestartService" {
				toolsService(n)
			}
		})
		rows = append(rows, Row{
			Name: "rights/node, no start of " + action.verb, Given: with(denied("start", action.verb)), Call: create(order), Code: connect.CodePermissionDenied,
			Message: User + " may not start talosoperations/" + action.verb + " in namespace default",
		})
	}
	return rows
}

// nodeCreate writes all that was ordered, and says it again.
func nodeCreate() Row {
	return Row{
		Name: "create/node, a reset with everything", Call: create(nodeOrder("w-1", "Reset", fullReset)), Writes: []string{all[0], all[2]},
		Check: func(g gomega.Gomega, answer proto.Message, w *World) {
			op := read(g, w, &v1alpha1.TalosOperation{}, created(answer).GetOperation().GetRef().GetName())
			g.Expect(op.Spec.Node).To(gomega.HaveValue(gomega.Equal(v1alpha1.NodeParameters{
				Machine: "c1-w-1", Action: "Reset", Reset: &v1alpha1.ResetParameters{Manner: "Forced", Wipe: []v1alpha1.WipeTarget{"System", "UserVolumes"}, After: "PowerOff"},
			})))
			said := created(answer).GetOperation().GetParameters().GetNode()
			g.Expect(said.GetReset_().GetManner()).To(gomega.Equal("Forced"))
			g.Expect(said.GetReset_().GetWipe()).To(gomega.Equal([]string{"System", "UserVolumes"}))
			g.Expect(said.GetReset_().GetAfter()).To(gomega.Equal("PowerOff"))
		},
	}
}

// nodeKey holds a key to its order, down to the parameters.
func nodeKey() Row {
	return Row{
		Name: "key/node, another manner", Writes: []string{all[0], all[2]}, Code: connect.CodeAlreadyExists,
		Call: twice(create(nodeOrder("c1-w-1", "Reset", fullReset)), create(nodeOrder("c1-w-1", "Reset"))),
		Message: `idempotency_key "key-1" stands for operation ` + keyedReboot + ` (kind node on cluster c1: Reset of c1-w-1, manner forced, wipe system,user-volumes, after power-off) ` +
			"already, and the request is for kind node on cluster c1: Reset of c1-w-1; use a key of its own for each order",
	}
}
