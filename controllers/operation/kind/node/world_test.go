// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	nodeplan "ichor.maesh.dev/hub/controllers/operation/kind/node/plan"
	"ichor.maesh.dev/hub/providers/kube"
	kubefake "ichor.maesh.dev/hub/providers/kube/fake"
	"ichor.maesh.dev/hub/providers/talos"
	talosfake "ichor.maesh.dev/hub/providers/talos/fake"
)

// world is three control planes and a worker, with fakes in place of their APIs.
type world struct {
	talos    *talosfake.Talos
	kube     *kubefake.Kube
	machines map[string]*v1alpha1.TalosMachine
	executor *Executor
	scope    kind.Scope

	// forgotten are the TalosMachines that were deleted.
	forgotten []string
}

// systemDisk are the volumes of a machine as Talos 1.13 has them.
func systemDisk() []talos.Volume {
	return []talos.Volume{
		{ID: "EPHEMERAL", Partition: true, Disk: "/dev/vda", System: true, Size: "41 GB"},
		{ID: "ETCD", Disk: "/dev/vda6", Size: "41 GB"},
		{ID: "META", Partition: true, Disk: "/dev/vda", System: true, Size: "1.0 MB"},
		{ID: "STATE", Partition: true, Disk: "/dev/vda", System: true, Size: "105 MB"},
	}
}

func newWorld(action v1alpha1.NodeAction, change func(*v1alpha1.NodeParameters)) *world {
	w := &world{talos: talosfake.New(), kube: kubefake.New(), machines: map[string]*v1alpha1.TalosMachine{}}
	var members []talos.EtcdMember
	for i := range 3 {
		members = append(members, talos.EtcdMember{ID: uint64(0x1a + i), Hostname: fmt.Sprintf("cp-%d", i+1), Started: true})
	}
	for i, member := range members {
		w.add(member.Hostname, fmt.Sprintf("10.0.0.%d", i+1), &talos.Etcd{MemberID: member.ID, Leader: members[0].ID, Members: slices.Clone(members)})
	}
	w.add("w-1", "10.0.1.1", nil)
	w.talos.Rebooted = func(_ string, now talos.Machine) {
		w.kube.Change(now.NodeName, func(n *kube.Node) { n.BootID = now.BootID })
	}
	w.talos.PoweredOff = func(address string) {
		w.kube.Change(w.talos.Facts(address).NodeName, func(n *kube.Node) { n.Ready = false })
	}
	w.executor = New(w.talos, w.kube)
	node := &v1alpha1.NodeParameters{Action: action}
	if change != nil {
		change(node)
	}
	w.scope = kind.Scope{
		Owner: "default/op-1", Machines: 4, Guard: func(context.Context) error { return nil },
		Spec:     v1alpha1.TalosOperationSpec{Kind: v1alpha1.NodeKind, Node: node},
		Approved: []*v1alpha1.TalosMachine{w.machines["cp-1"], w.machines["cp-2"], w.machines["cp-3"], w.machines["w-1"]},
	}
	return w
}

func (w *world) add(name, address string, etcd *talos.Etcd) {
	machine := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-" + name},
		Spec:       v1alpha1.TalosMachineSpec{Role: v1alpha1.WorkerRole, Address: address, UUID: "uuid-" + name, Approval: v1alpha1.Approved},
		Status:     v1alpha1.TalosMachineStatus{NodeName: name},
	}
	if etcd != nil {
		machine.Spec.Role, machine.Status.EtcdMemberID = v1alpha1.ControlPlaneRole, fmt.Sprintf("%x", etcd.MemberID)
	}
	w.machines[name] = machine
	w.talos.Add(address, talos.Machine{BootID: name + "-boot-0", UUID: machine.Spec.UUID, NodeName: name, Stage: talos.StageRunning, Ready: true}, etcd)
	w.talos.Hold(address, systemDisk()...)
	w.talos.Serve(address, talos.Service{ID: "ext-tools", Running: true, Started: noon}, talos.Service{ID: "kubelet", Running: true, Healthy: true, Checked: true, Started: noon})
	w.kube.Set(kube.Node{Name: name, UUID: machine.Spec.UUID, BootID: name + "-boot-0", Ready: true, ControlPlane: etcd != nil})
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// unit is a machine at a step of the one stage of the order.
func (w *world) unit(name string, step v1alpha1.OperationStep, change func(*v1alpha1.UnitStatus)) kind.Unit {
	u := kind.Unit{Status: v1alpha1.UnitStatus{Name: "c1-" + name, Step: step}, Machine: w.machines[name]}
	if change != nil {
		change(&u.Status)
	}
	return u
}

// next is what comes next for a unit, with a look at the world as it is.
func (w *world) next(t *testing.T, u kind.Unit) kind.Action {
	t.Helper()
	return w.executor.Next(w.scope, u, w.executor.Observe(t.Context(), w.scope, u))
}

// goThrough takes a machine as far as it goes, as the engine does: with nothing but Next, Do, and a status that is carried along.
func (w *world) goThrough(t *testing.T, name, stage string) (steps []v1alpha1.OperationStep, last kind.Action) {
	t.Helper()
	g := NewWithT(t)
	u := w.unit(name, "", func(s *v1alpha1.UnitStatus) { s.Stage = stage })
	for range 20 {
		action := w.next(t, u)
		if action.Verdict == kind.Done || action.Verdict == kind.Fail || action.Verdict == kind.Wait && action.Step == "" {
			return steps, action
		}
		steps = append(steps, action.Step)
		claim(&u.Status, action)
		if action.Verdict == kind.Call {
			_, err := w.executor.Do(t.Context(), w.scope, u, action.Step)
			g.Expect(err).NotTo(HaveOccurred())
			u.Status.Outcome = &v1alpha1.CallOutcome{Result: v1alpha1.CallSucceeded}
		}
	}
	t.Fatalf("no end: %v", steps)
	return nil, kind.Action{}
}

// claim writes an action into status, as the engine does.
func claim(status *v1alpha1.UnitStatus, action kind.Action) {
	status.Step, status.Outcome = action.Step, nil
	status.Steps = append(status.Steps, v1alpha1.StepRecord{Step: action.Step})
	if action.Verdict == kind.Call {
		status.PreRebootBootID = action.PreRebootBootID
	}
	if !action.ServiceStart.IsZero() {
		status.ServiceStartTime = metav1.NewMicroTime(action.ServiceStart)
	}
}

func failed(class v1alpha1.ErrorClass) func(*v1alpha1.UnitStatus) {
	return func(s *v1alpha1.UnitStatus) {
		s.Outcome = &v1alpha1.CallOutcome{Result: v1alpha1.CallFailed, Class: class, Message: "it broke"}
	}
}

func succeeded(s *v1alpha1.UnitStatus) {
	s.Outcome = &v1alpha1.CallOutcome{Result: v1alpha1.CallSucceeded}
}

// Each action from its beginning to its end, with the calls that it makes, each of them once and in this order.
func TestActionsFromBeginToEnd(t *testing.T) {
	reset := func(manner v1alpha1.ResetManner, after v1alpha1.AfterReset, wipe ...v1alpha1.WipeTarget) func(*v1alpha1.NodeParameters) {
		return func(n *v1alpha1.NodeParameters) {
			n.Reset = &v1alpha1.ResetParameters{Manner: manner, After: after, Wipe: wipe}
		}
	}
	serviceOf := func(name string) func(*v1alpha1.NodeParameters) {
		return func(n *v1alpha1.NodeParameters) { n.Service = name }
	}
	off, gone := kind.Action{Verdict: kind.Done, After: 10 * time.Second}, kind.Action{Verdict: kind.Done}
	drained := []string{"Cordon cp-1", "Drain cp-1"}
	for name, row := range map[string]struct {
		action  v1alpha1.NodeAction
		change  func(*v1alpha1.NodeParameters)
		machine string
		steps   []v1alpha1.OperationStep
		talos   []string
		kube    []string
		last    kind.Action
	}{
		"reboot by force drains nothing": {
			"Reboot", func(n *v1alpha1.NodeParameters) { n.RebootMode = "Force" }, "cp-1",
			[]v1alpha1.OperationStep{"Forfeiting", "Rebooting", "Verifying"}, []string{"ForfeitLeadership 10.0.0.1", "Reboot 10.0.0.1"}, nil, gone,
		},
		"shutdown (D1, D10: one way to drain)": {
			"Shutdown", nil, "cp-1", []v1alpha1.OperationStep{"Forfeiting", "Draining", "ShuttingDown", "StayingOff"},
			[]string{"ForfeitLeadership 10.0.0.1", "Shutdown 10.0.0.1"}, drained, off,
		},
		"kubelet": {
			"RestartService", serviceOf("kubelet"), "w-1", []v1alpha1.OperationStep{"Restarting"}, []string{"RestartService 10.0.1.1"}, nil, gone,
		},
		"service of an extension": {
			"RestartService", serviceOf("ext-tools"), "cp-2", []v1alpha1.OperationStep{"Restarting"}, []string{"RestartService 10.0.0.2"}, nil, gone,
		},
		"defragmentation": {
			"EtcdDefrag", nil, "cp-2", []v1alpha1.OperationStep{"Defragmenting"}, []string{"Defragment 10.0.0.2"}, nil, gone,
		},
		"leadership": {
			"EtcdForfeitLeadership", nil, "cp-1", []v1alpha1.OperationStep{"Forfeiting"}, []string{"ForfeitLeadership 10.0.0.1"}, nil, gone,
		},
		"leadership of who has none": {"EtcdForfeitLeadership", nil, "cp-2", nil, nil, nil, gone},
		"reset of a control plane": {
			"Reset", nil, "cp-1", []v1alpha1.OperationStep{"Forfeiting", "Draining", "Leaving", "Resetting"},
			[]string{"ForfeitLeadership 10.0.0.1", "LeaveEtcd 10.0.0.1", "Reset 10.0.0.1"}, drained, gone,
		},
		"reset of a worker, then off": {
			"Reset", reset("", "PowerOff"), "w-1", []v1alpha1.OperationStep{"Draining", "Resetting", "StayingOff"},
			[]string{"Reset 10.0.1.1"}, []string{"Cordon w-1", "Drain w-1"}, off,
		},
		"reset by force removes the member, by its ID, from beside (B21)": {
			"Reset", reset("Forced", ""), "cp-2", []v1alpha1.OperationStep{"RemovingMember", "Resetting"},
			[]string{"RemoveEtcdMember 10.0.0.1", "Reset 10.0.0.2"}, nil, gone,
		},
		"reset of user volumes ends as a reboot": {
			"Reset", reset("", "", "UserVolumes"), "cp-1", []v1alpha1.OperationStep{"Forfeiting", "Draining", "Resetting", "Verifying", "Uncordoning"},
			[]string{"ForfeitLeadership 10.0.0.1", "Reset 10.0.0.1"}, append(slices.Clone(drained), "Uncordon cp-1"), gone,
		},
		"reset of user volumes, then off": {
			"Reset", reset("", "PowerOff", "UserVolumes"), "cp-2", []v1alpha1.OperationStep{"Draining", "Resetting", "StayingOff"},
			[]string{"Reset 10.0.0.2"}, []string{"Cordon cp-2", "Drain cp-2"}, off,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld(row.action, row.change)
			w.talos.Hold(w.machines[row.machine].Spec.Address, append(systemDisk(), talos.Volume{ID: "u-data", Partition: true, Disk: "/dev/vdb"})...)
			stage := map[v1alpha1.NodeAction]string{"EtcdDefrag": nodeplan.DefragStage}[row.action]
			steps, last := w.goThrough(t, row.machine, stage)
			g.Expect(last).To(Equal(row.last))
			g.Expect(steps).To(Equal(row.steps))
			g.Expect(w.talos.Calls()).To(Equal(row.talos))
			g.Expect(w.kube.Calls()).To(Equal(row.kube))
		})
	}
}
