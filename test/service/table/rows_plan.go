// SPDX-License-Identifier: Apache-2.0

package table

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// orders are requests that nobody can mean: each names the field, its value and what is allowed. Cases F5 and F6 are among them.
func orders() []Row {
	const modes, actions = "one of Default, PowerCycle, Force", "one of Reboot, Shutdown, RestartService, EtcdDefrag, EtcdForfeitLeadership, Reset"
	const services = "kubelet, or ext- and the name of an extension's service: Talos restarts no others"
	reset := func(parameters *pb.ResetParameters) *pb.OperationOrder {
		return nodeOrder("c1-w-1", "Reset", func(n *pb.NodeParameters) { n.Reset_ = parameters })
	}
	node := func(change func(*pb.NodeParameters)) *pb.OperationOrder {
		return reboot("c1-w-1", func(o *pb.OperationOrder) { change(o.GetParameters().GetNode()) })
	}
	return []Row{
		invalid("order/nothing", "order.kind is missing: this hub runs ca-rotation, config, etcd-restore, key-rotation, kubernetes, node, shutdown, talos", plan(nil)),
		invalid("order/a kind that this hub does not run", `order.kind "cni": this hub runs ca-rotation, config, etcd-restore, key-rotation, kubernetes, node, shutdown, talos`,
			plan(upgrade(func(o *pb.OperationOrder) { o.Kind = pb.OperationKind_OPERATION_KIND_CNI }))),
		invalid("order/no namespace", "order.cluster.namespace is missing: the namespace of the object",
			plan(upgrade(func(o *pb.OperationOrder) { o.Cluster.Namespace = "" }))),
		invalid("order/no cluster", "order.cluster.name is missing: the name of an object", plan(upgrade(func(o *pb.OperationOrder) { o.Cluster.Name = "" }))),
		invalid("order/another hub", `order.cluster.hub "hub-2": empty, for the hub that is asked`,
			plan(upgrade(func(o *pb.OperationOrder) { o.Cluster.Hub = "hub-2" }))),
		invalid("order/no patch level (F6)", `order.target.talos_version "1.14": version "1.14" has no patch level: did you mean 1.14.0?`, plan(upgrade(to("1.14")))),
		invalid("order/no version", `order.target.talos_version "latest": version "latest" is not of the form v1.2.3`, plan(upgrade(to("latest")))),
		invalid("order/a schematic that is none", `order.target.schematic_id "s1": 64 hexadecimal digits in lower case`,
			plan(upgrade(func(o *pb.OperationOrder) { o.Target.SchematicId = "s1" }))),
		invalid("order/what the kind does not bring", `order.target "talos_version v1.14.1, kubernetes_version v1.36.0": kind talos brings talos_version, schematic_id and nothing else`,
			plan(upgrade(func(o *pb.OperationOrder) { o.Target.KubernetesVersion = "v1.36.0" }))),
		invalid("order/a reboot to a version", `order.target "talos_version v1.14.1": kind node changes no spec`, plan(reboot("c1-w-1", to(wanted)))),
		invalid("order/no budget", `order.max_unavailable "0": a number from 1 to 1000, or a percentage from 1% to 100%`,
			plan(upgrade(func(o *pb.OperationOrder) { o.MaxUnavailable = "0" }))),
		invalid("order/more than all", `order.max_unavailable "101%": a number from 1 to 1000, or a percentage from 1% to 100%`,
			plan(upgrade(func(o *pb.OperationOrder) { o.MaxUnavailable = "101%" }))),
		invalid("order/a word", `order.max_unavailable "all": a number from 1 to 1000, or a percentage from 1% to 100%`,
			plan(upgrade(func(o *pb.OperationOrder) { o.MaxUnavailable = "all" }))),
		invalid("order/an override without reason", "order.overrides[0].reason is missing: say why, in 1 to 256 bytes", plan(upgrade(override("Quorum", "")))),
		invalid("order/an override without gate", "order.overrides[0].gate is missing: the name of a gate, as a refusal has it", plan(upgrade(override("", "x")))),
		invalid("order/a gate twice", `order.overrides[1].gate "Quorum": each gate once`, plan(upgrade(override("Quorum", "x"), override("Quorum", "y")))),
		invalid("order/parameters of another kind", `order.parameters.node "c1-w-1": kind talos takes no parameters`,
			plan(upgrade(func(o *pb.OperationOrder) { o.Parameters = reboot("c1-w-1").GetParameters() }))),
		invalid("order/no machine", "order.parameters.node.machine is missing: name a TalosMachine, or its Node", plan(reboot(""))),
		invalid("order/no action", "order.parameters.node.action is missing: "+actions, plan(node(func(n *pb.NodeParameters) { n.Action = "" }))),
		invalid("order/an action that is none", `order.parameters.node.action "Explode": `+actions, plan(node(func(n *pb.NodeParameters) { n.Action = "Explode" }))),
		invalid("order/a mode that is none", `order.parameters.node.reboot_mode "fast": `+modes, plan(node(func(n *pb.NodeParameters) { n.RebootMode = "fast" }))),
		invalid("order/a mode of another action", `order.parameters.node.reboot_mode "Force": goes with action Reboot only`,
			plan(node(func(n *pb.NodeParameters) { n.Action, n.RebootMode = "Shutdown", "Force" }))),
		invalid("order/a service of another action", `order.parameters.node.service "kubelet": goes with action RestartService only`,
			plan(node(func(n *pb.NodeParameters) { n.Service = "kubelet" }))),
		invalid("order/no service", "order.parameters.node.service is missing: "+services, plan(node(func(n *pb.NodeParameters) { n.Action = "RestartService" }))),
		invalid("order/a service that Talos does not restart", `order.parameters.node.service "etcd": `+services,
			plan(node(func(n *pb.NodeParameters) { n.Action, n.Service = "RestartService", "etcd" }))),
		invalid("order/alarms of another action", `order.parameters.node.alarms "Disarm": goes with action EtcdDefrag only`,
			plan(node(func(n *pb.NodeParameters) { n.Alarms = "Disarm" }))),
		invalid("order/alarms that are neither kept nor disarmed", `order.parameters.node.alarms "Off": one of Keep, Disarm`,
			plan(node(func(n *pb.NodeParameters) { n.Action, n.Alarms = "EtcdDefrag", "Off" }))),
		invalid("order/a reset of another action", `order.parameters.node.reset "given": goes with action Reset only`,
			plan(node(func(n *pb.NodeParameters) { n.Reset_ = &pb.ResetParameters{After: "PowerOff"} }))),
		invalid("order/a manner that is none", `order.parameters.node.reset.manner "Rude": one of Graceful, Forced`, plan(reset(&pb.ResetParameters{Manner: "Rude"}))),
		invalid("order/nothing after a reset that is known", `order.parameters.node.reset.after "Sleep": one of Reboot, PowerOff`, plan(reset(&pb.ResetParameters{After: "Sleep"}))),
		invalid("order/what cannot be wiped", `order.parameters.node.reset.wipe[1] "Cloud": one of System, UserVolumes`,
			plan(reset(&pb.ResetParameters{Wipe: []string{"System", "Cloud"}}))),
		invalid("order/wiped twice", `order.parameters.node.reset.wipe[1] "System": each once`, plan(reset(&pb.ResetParameters{Wipe: []string{"System", "System"}}))),
		invalid("order/every etcd member of no cluster", "order.cluster.name is missing: the name of an object",
			plan(reboot("", func(o *pb.OperationOrder) { o.Cluster.Name = ""; o.GetParameters().GetNode().Action = "EtcdDefrag" }))),
		invalid("order/a stop of another kind", `order.parameters.shutdown "Stop": goes with kind shutdown only`,
			plan(upgrade(func(o *pb.OperationOrder) { o.Parameters = shutdown("Stop", "None").GetParameters() }))),
		invalid("order/neither stop nor start", "order.parameters.shutdown.action is missing: one of Stop, Start", plan(shutdown("", ""))),
		invalid("order/a stop that says nothing of a snapshot", "order.parameters.shutdown.snapshot is missing: one of Take, None: it has to be said", plan(shutdown("Stop", ""))),
		invalid("order/a start with a snapshot", `order.parameters.shutdown.snapshot "Take": goes with action Stop only`, plan(shutdown("Start", "Take"))),
		invalid("order/two machines of one Node", `machine "w-1": it is one of c1-w-1, c9-w-1: name the cluster with --cluster, or use a full name`,
			plan(reboot("w-1", func(o *pb.OperationOrder) { o.Cluster.Name = "" }))).given(given(elsewhere())),
	}
}

// elsewhere is a machine of another cluster whose Node has the name of another.
func elsewhere() *v1alpha1.TalosMachine {
	m := Machine("c9-w-1", v1alpha1.WorkerRole)
	m.Labels["cluster.x-k8s.io/cluster-name"], m.Spec.ClusterName, m.Status.NodeName = "c9", "c9", "w-1"
	return m
}

func (row Row) given(world func() *World) Row {
	row.Given = world
	return row
}

// planOf is the plan of an answer.
func planOf(message proto.Message) *pb.Plan { return message.(*pb.PlanOperationResponse).GetPlan() }

// groupsOf writes groups of machines as "a | b c".
func groupsOf(stage *pb.PlanStage) string {
	var groups []string
	for _, group := range stage.GetGroups() {
		var names []string
		for _, machine := range group.GetMachines() {
			names = append(names, machine.GetName())
		}
		groups = append(groups, strings.Join(names, " "))
	}
	return strings.Join(groups, " | ")
}

func warningsOf(p *pb.Plan) []string {
	var codes []string
	for _, warning := range p.GetWarnings() {
		codes = append(codes, warning.GetCode())
	}
	return codes
}

// plans are plans in full, and what they refuse. A plan writes nothing.
func plans() []Row {
	held := machine("c1-w-2", func(m *v1alpha1.TalosMachine) {
		m.Annotations = map[string]string{v1alpha1.UpgradeHoldAnnotation: "disk"}
	})
	return slices.Concat([]Row{
		{
			Name: "plan/an upgrade",
			Call: plan(upgrade(func(o *pb.OperationOrder) { o.MaxUnavailable = "100%" })),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				p := planOf(answer)
				g.Expect(p.GetEffect()).To(gomega.Equal(pb.Effect_EFFECT_REBOOT))
				g.Expect(p.GetStages()).To(gomega.HaveLen(2))
				g.Expect(groupsOf(p.GetStages()[0])).To(gomega.Equal("c1-cp-2 c1-cp-3 c1-cp-1 c1-w-1 c1-w-2"))
				g.Expect(groupsOf(p.GetStages()[1])).To(gomega.Equal("c1-cp-2 | c1-cp-3 | c1-cp-1 | c1-w-1 c1-w-2"), "the leader of etcd is the last of the control planes")
				g.Expect(p.GetStages()[1].GetDisruptive()).To(gomega.BeTrue())
				first := p.GetStages()[1].GetGroups()[0].GetMachines()[0]
				g.Expect(first.GetNode()).To(gomega.Equal("cp-2"))
				g.Expect(first.GetRole()).To(gomega.Equal(pb.MachineRole_MACHINE_ROLE_CONTROL_PLANE))
				g.Expect(first.GetCurrent().GetTalosVersion()).To(gomega.Equal(running))
				g.Expect(first.GetTarget().GetTalosVersion()).To(gomega.Equal(wanted))
				g.Expect(first.GetTarget().GetSchematicId()).To(gomega.Equal(schematic), "it keeps what it runs")
				g.Expect(p.GetCurrent().GetTalosVersion()).To(gomega.Equal(running))
				g.Expect(p.GetTarget().GetTalosVersion()).To(gomega.Equal(wanted))
				g.Expect(p.GetObservedTime().AsTime()).To(gomega.Equal(now))
				g.Expect(p.GetConfirmation()).To(gomega.Equal(pb.Confirmation_CONFIRMATION_YES))
				g.Expect(p.GetWritesSpec()).To(gomega.BeTrue())
				g.Expect(p.GetAtTarget()).To(gomega.BeFalse())
				g.Expect(p.GetEstimatedDuration()).To(gomega.BeNil(), "nothing like it has been done yet")
				g.Expect(p.GetCommand()).To(gomega.Equal("ichor upgrade talos v1.14.1 --namespace default --cluster c1 --max-unavailable 100%"))
				g.Expect(p.GetLiveGates()).To(gomega.ContainElements("EtcdHealthy", "WorkersAvailable", "ControlPlaneTransitioning"))
				g.Expect(warningsOf(p)).To(gomega.Equal([]string{"EtcdOneWay", "NoSnapshot"}))
				g.Expect(p.GetRefusals()).To(gomega.BeEmpty())
			},
		},
		{
			Name: "plan/a version without its v (F5), a held machine and the estimate of the cluster", Given: given(held, pastUpgrade("c1-talos-before", Cluster, time.Minute),
				pastUpgrade("c9-talos-before", "c9", time.Hour)),
			Call: plan(upgrade(to("1.14.1"))),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				p := planOf(answer)
				g.Expect(p.GetTarget().GetTalosVersion()).To(gomega.Equal(wanted))
				g.Expect(p.GetHeld()).To(gomega.Equal([]string{"c1-w-2"}))
				g.Expect(groupsOf(p.GetStages()[1])).To(gomega.Equal("c1-cp-2 | c1-cp-3 | c1-cp-1 | c1-w-1"))
				g.Expect(p.GetEstimatedDuration().AsDuration()).To(gomega.Equal(time.Minute/2 + 4*time.Minute))
			},
		},
		{
			Name: "plan/the estimate of others", Given: given(pastUpgrade("c9-talos-before", "c9", time.Hour)),
			Call: plan(upgrade()),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(planOf(answer).GetEstimatedDuration().AsDuration()).To(gomega.Equal(time.Hour/2 + 5*time.Hour))
			},
		},
	}, otherPlans(), powerPlans(), keyPlans(), restorePlans(), planRefusals())
}

// otherPlans are plans of something else than an upgrade that goes on.
func otherPlans() []Row {
	return []Row{
		{
			Name: "plan/a reboot, by the name of the Node alone",
			Call: plan(reboot("cp-2", func(o *pb.OperationOrder) { o.Cluster.Name = ""; o.GetParameters().GetNode().RebootMode = "PowerCycle" })),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				p := planOf(answer)
				g.Expect(p.GetCluster().GetName()).To(gomega.Equal(Cluster))
				g.Expect(groupsOf(p.GetStages()[0])).To(gomega.Equal("c1-cp-2"))
				g.Expect(p.GetWritesSpec()).To(gomega.BeFalse())
				g.Expect(p.GetCommand()).To(gomega.Equal("ichor node reboot c1-cp-2 --namespace default --cluster c1 --mode powercycle"))
				g.Expect(p.GetLiveGates()).NotTo(gomega.ContainElement("WorkersAvailable"))
			},
		},
		{
			Name: "plan/everything is there", Given: given(append(everywhere(runs(wanted)), cluster(asks(wanted)))...),
			Call: plan(upgrade()),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(planOf(answer).GetAtTarget()).To(gomega.BeTrue())
				g.Expect(planOf(answer).GetWritesSpec()).To(gomega.BeFalse())
			},
		},
		{
			Name: "plan/an override that needs quotes", Given: given(cluster(func(c *v1alpha1.TalosCluster) { c.Status.KubernetesVersion = "v1.31.9" })),
			Call: plan(upgrade(override("KubernetesPairing", "it's tested"))),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				p := planOf(answer)
				g.Expect(p.GetRefusals()).To(gomega.BeEmpty())
				g.Expect(p.GetOverridden()).To(gomega.HaveLen(1))
				g.Expect(p.GetCommand()).To(gomega.HaveSuffix(`--override 'KubernetesPairing=it'\''s tested'`))
			},
		},
		{
			Name: "plan/what the operation would wait for", Given: given(own(func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) }), cluster(func(c *v1alpha1.TalosCluster) {
				c.Status.LockHolder = "ichor-controller/machine/default/c1-w-2"
				c.Status.Conditions = []metav1.Condition{{Type: "Available", Status: "False", Reason: "NotAvailable", LastTransitionTime: metav1.NewTime(now)}}
			})),
			Call: plan(reboot("c1-w-1")),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				p := planOf(answer)
				g.Expect(p.GetRefusals()).To(gomega.BeEmpty())
				g.Expect(warningsOf(p)).To(gomega.Equal([]string{"ClusterPaused", "ClusterLocked", "NotAvailable"}))
				g.Expect(p.GetWarnings()[1].GetMessage()).To(gomega.Equal("the operation waits for cluster c1: its lock is held by ichor-controller/machine/default/c1-w-2"))
			},
		},
		{
			Name: "plan/a hub may be named", Call: plan(upgrade(func(o *pb.OperationOrder) { o.Cluster.Hub = "hub-1" })),
		},
		{
			Name: "plan/no such cluster", Call: plan(upgrade(func(o *pb.OperationOrder) { o.Cluster.Name = "c9" })),
			Code: connect.CodeNotFound, Message: `there is no cluster "c9" in namespace "default"; list them with: ichor cluster list`,
		},
		{
			Name: "plan/no such machine, and no cluster named", Call: plan(reboot("w-9", func(o *pb.OperationOrder) { o.Cluster.Name = "" })),
			Code: connect.CodeNotFound, Message: `there is no machine "w-9"; list them with: ichor machine list`,
		},
	}
}

// pastUpgrade is one that is over. Each machine took half of a time to pull and all of it to upgrade.
func pastUpgrade(name, cluster string, took time.Duration) *v1alpha1.TalosOperation {
	op := Operation(name, cluster)
	at := func(after time.Duration) metav1.Time { return metav1.NewTime(now.Add(after - 24*time.Hour)) }
	op.Status.Phase, op.Status.CompletionTime = v1alpha1.OperationCompleted, at(10*took)
	for i := range 3 {
		op.Status.Machines = append(op.Status.Machines, v1alpha1.UnitStatus{
			Name: fmt.Sprintf("%s-m-%d", cluster, i), Phase: v1alpha1.UnitCompleted,
			Steps: []v1alpha1.StepRecord{
				{Step: "Pulling", Stage: "Pull", StartTime: at(0), CompletionTime: at(took / 2)},
				{Step: "Installing", Stage: "Upgrade", StartTime: at(took), CompletionTime: at(took + took/4)},
				{Step: "Rebooting", Stage: "Upgrade", StartTime: at(took + took/4), CompletionTime: at(2 * took)},
			},
		})
	}
	return op
}

func asks(version string) func(*v1alpha1.TalosCluster) {
	return func(c *v1alpha1.TalosCluster) { c.Spec.TalosVersion = version }
}
