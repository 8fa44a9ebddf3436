// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig/bases"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/node"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	kubefake "ichor.maesh.dev/hub/providers/kube/fake"
	"ichor.maesh.dev/hub/providers/script"
	"ichor.maesh.dev/hub/providers/talos"
	talosfake "ichor.maesh.dev/hub/providers/talos/fake"
)

// newNodeExecutor is the executor of kind node for machines that are off as soon as they have gone.
func newNodeExecutor(t *talosfake.Talos, k *kubefake.Kube) *node.Executor {
	executor := node.New(t, k)
	executor.GoneFor, executor.DeadFor = time.Second, time.Second
	executor.Records = records{Script: k.Script, Machines: node.Machines{Client: admin, Live: admin}}
	executor.Configs = node.Configs{Client: admin, Bases: &bases.Store{Client: admin, Live: admin}, Factory: "factory.example"}
	return executor
}

// records are the TalosMachines of the management cluster, which a hub can be killed at.
type records struct {
	*script.Script
	node.Machines
}

// Forget implements node.Records.
func (r records) Forget(ctx context.Context, g guard.Func, machine *v1alpha1.TalosMachine) error {
	return r.Run(ctx, "Forget", machine.Name, func() error { return r.Machines.Forget(ctx, g, machine) })
}

// stepsOf are those steps of an action that a row of the matrix takes.
func stepsOf(action v1alpha1.NodeAction, names ...v1alpha1.OperationStep) []kind.Step {
	var steps []kind.Step
	for _, name := range names {
		i := slices.IndexFunc(node.StepsOf(action), func(s kind.Step) bool { return s.Name == name })
		if i < 0 {
			panic(fmt.Sprintf("action %s has no step %s", action, name))
		}
		steps = append(steps, node.StepsOf(action)[i])
	}
	return steps
}

func on(machine string, action v1alpha1.NodeAction, change func(*v1alpha1.NodeParameters)) func() v1alpha1.TalosOperationSpec {
	return func() v1alpha1.TalosOperationSpec {
		parameters := &v1alpha1.NodeParameters{Machine: machine, Action: action}
		if change != nil {
			change(parameters)
		}
		return v1alpha1.TalosOperationSpec{Kind: v1alpha1.NodeKind, Node: parameters}
	}
}

func kubelet(n *v1alpha1.NodeParameters) { n.Service = "kubelet" }
func disarm(n *v1alpha1.NodeParameters)  { n.Alarms = v1alpha1.EtcdAlarmsDisarm }
func thenOff(n *v1alpha1.NodeParameters) {
	n.Reset = &v1alpha1.ResetParameters{After: v1alpha1.AfterResetPowerOff}
}
func forced(n *v1alpha1.NodeParameters) {
	n.Reset = &v1alpha1.ResetParameters{Manner: v1alpha1.ResetForced}
}
func userVolumes(n *v1alpha1.NodeParameters) {
	n.Reset = &v1alpha1.ResetParameters{Wipe: []v1alpha1.WipeTarget{v1alpha1.WipeUserVolumes}}
}

// furnish gives a machine services and volumes.
func (f *fleet) furnish(address string) {
	f.talos.Serve(address, talos.Service{ID: "kubelet", Running: true, Checked: true, Healthy: true, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
	f.talos.Hold(address,
		talos.Volume{ID: "EPHEMERAL", Partition: true, Disk: "/dev/vda", System: true}, talos.Volume{ID: "STATE", Partition: true, Disk: "/dev/vda", System: true},
		talos.Volume{ID: "u-data", Partition: true, Disk: "/dev/vdb"})
}

// raise makes every etcd member know alarms.
func (f *fleet) raise(alarms ...string) {
	for _, address := range f.addresses {
		f.talos.Change(address, func(_ *talos.Machine, e *talos.Etcd) {
			if e != nil {
				e.Alarms = alarms
			}
		})
	}
}

// nodeVictim is an action of kind node, killed at some of its steps.
func nodeVictim(action v1alpha1.NodeAction, change func(*v1alpha1.NodeParameters), steps ...v1alpha1.OperationStep) victim {
	machine := "c-cp1"
	if action == v1alpha1.EtcdDefragAction {
		machine = ""
	}
	spec := on(machine, action, change)
	return victim{
		steps: stepsOf(action, steps...), spec: spec,
		prepare: func(_ context.Context, f *fleet, step kind.Step) {
			f.deadlines = map[v1alpha1.OperationStep]time.Duration{v1alpha1.StayingOffStep: time.Second}
			if step.Name == v1alpha1.DisarmingStep {
				f.raise("NOSPACE on member 0000000000000001")
			}
		},
		expect: func(f *fleet, _ kind.Step, _ bool) { f.expectDone(spec().Node) },
	}.with(map[v1alpha1.OperationStep]findCall{
		v1alpha1.ShuttingDownStep: toTalos("Shutdown"), v1alpha1.RestartingStep: toTalos("RestartService"), v1alpha1.DefragmentingStep: toTalos("Defragment"),
		v1alpha1.DisarmingStep: toTalos("DisarmAlarms"), v1alpha1.LeavingStep: toTalos("LeaveEtcd"), v1alpha1.ResettingStep: toTalos("Reset"),
		v1alpha1.RemovingMemberStep: func(f *fleet) (*script.Script, string, string) { // From beside it.
			return f.talos.Script, "RemoveEtcdMember", f.addresses["cp2"]
		},
	})
}

var (
	_ = addVictim("kind node, action Shutdown", nodeVictim(v1alpha1.ShutdownAction, nil, "ShuttingDown", "StayingOff"))
	_ = addVictim("kind node, action RestartService", nodeVictim(v1alpha1.RestartServiceAction, kubelet, "Restarting"))
	_ = addVictim("kind node, action EtcdDefrag", nodeVictim(v1alpha1.EtcdDefragAction, disarm, "Defragmenting", "Disarming"))
	_ = addVictim("kind node, action EtcdForfeitLeadership", nodeVictim(v1alpha1.EtcdForfeitLeadershipAction, nil, "Forfeiting"))
	_ = addVictim("kind node, action Reset", nodeVictim(v1alpha1.ResetAction, nil, "Draining", "Leaving", "Resetting"))
	_ = addVictim("kind node, action Reset, then off", nodeVictim(v1alpha1.ResetAction, thenOff, "StayingOff"))
	_ = addVictim("kind node, action Reset, forced", nodeVictim(v1alpha1.ResetAction, forced, "RemovingMember"))
	_ = addVictim("kind node, action Reset, of disks", nodeVictim(v1alpha1.ResetAction, userVolumes, "Resetting", "Verifying", "Uncordoning"))
)

// expectDone holds what an action has come to against what it should: what may not be repeated was done once, and a machine that does not
// come back keeps its cordon.
func (f *fleet) expectDone(parameters *v1alpha1.NodeParameters) {
	GinkgoHelper()
	once := f.calls("Reboot", "Shutdown", "RestartService", "Reset")
	Expect(once).To(HaveLen(len(slices.Compact(once))))
	stays := parameters.PowersOff() || parameters.Wipes(v1alpha1.WipeSystem)
	call := map[v1alpha1.NodeAction]string{
		v1alpha1.ShutdownAction: "Shutdown", v1alpha1.RestartServiceAction: "RestartService", v1alpha1.EtcdDefragAction: "Defragment",
		v1alpha1.EtcdForfeitLeadershipAction: "ForfeitLeadership", v1alpha1.ResetAction: "Reset",
	}[parameters.Action]
	Expect(f.calls(call)).To(ContainElement(call + " cp1"))
	Expect(f.kube.Get("cp1").Unschedulable).To(Equal(stays && !parameters.Forced()))
	if !stays {
		Expect(f.kube.Get("cp1").CordonedBy).To(BeEmpty())
	}
	if parameters.Action == v1alpha1.EtcdDefragAction {
		Expect(slices.Compact(f.calls("Defragment"))).To(Equal([]string{"Defragment cp2", "Defragment cp3", "Defragment cp1"}), "the leader comes last")
		Expect(slices.Compact(f.calls())).To(Or(HaveLen(3), HaveExactElements(Not(BeEmpty()), Not(BeEmpty()), Not(BeEmpty()), Equal("DisarmAlarms cp1"))))
	}
	if parameters.Wipes(v1alpha1.WipeSystem) {
		order := f.calls("LeaveEtcd", "RemoveEtcdMember", "Reset")
		Expect(order[len(order)-1]).To(Equal("Reset cp1"))
		Expect(len(order)).To(BeNumerically(">", 1), "nothing is wiped that belongs to etcd")
	}
}

// Every step of kind node that an action takes has a row.
var _ = Describe("The kill matrix", func() {
	It("has all steps of kind node", func() {
		missing := map[v1alpha1.OperationStep]bool{}
		for _, step := range node.New(nil, nil).Steps() {
			missing[step.Name] = true
		}
		for _, v := range victims {
			if v.spec().Kind == v1alpha1.NodeKind {
				for _, step := range v.steps {
					delete(missing, step.Name)
				}
			}
		}
		Expect(missing).To(BeEmpty())
	})
})

// down makes the Node of a machine that has gone not ready.
func (f *fleet) down(address string) {
	f.kube.Change(f.talos.Facts(address).NodeName, func(n *kube.Node) { n.Ready = false })
}

// errForbiddenByTalos is what Talos answers to who may not.
var errForbiddenByTalos = status.Error(codes.PermissionDenied, "not authorized")
