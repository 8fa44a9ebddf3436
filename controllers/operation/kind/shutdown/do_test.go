// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	kubefake "ichor.maesh.dev/hub/providers/kube/fake"
	"ichor.maesh.dev/hub/providers/talos"
	talosfake "ichor.maesh.dev/hub/providers/talos/fake"
	"ichor.maesh.dev/hub/providers/target"
)

// storage keeps the names of the snapshots that were taken.
type storage struct {
	taken []string
	err   error
}

// Take implements Snapshots.
func (s *storage) Take(ctx context.Context, _ target.Target, g guard.Func, name string) error {
	if s.err != nil {
		return s.err
	}
	if !slices.Contains(s.taken, name) {
		s.taken = append(s.taken, name)
	}
	return g(ctx)
}

// world is the cluster of the tables, with fakes in place of its APIs: w-1 was cordoned by somebody.
func world() (*talosfake.Talos, *kubefake.Kube, kind.Scope) {
	machines, api, scope := talosfake.New(), kubefake.New(), cluster()
	scope.Guard = func(context.Context) error { return nil }
	for _, machine := range scope.Approved {
		node := machine.Status.NodeName
		var etcd *talos.Etcd
		if machine.Spec.Role == "ControlPlane" {
			etcd = &talos.Etcd{MemberID: 1, Leader: 1, Members: []talos.EtcdMember{{ID: 1, Started: true}}}
		}
		machines.Add(machine.Spec.Address, talos.Machine{BootID: "boot-" + node, UUID: machine.Spec.UUID, NodeName: node, Stage: "running", Ready: true}, etcd)
		api.Set(kube.Node{Name: node, Ready: true, BootID: "boot-" + node})
	}
	api.Set(kube.Node{Name: "stranger", Ready: true})
	api.Change("w-1", func(n *kube.Node) { n.Unschedulable = true })
	return machines, api, scope
}

// Case D3: what somebody cordoned before is neither recorded as ours nor given back.
func TestCaseD3CordonsAreRecordedAndGivenBackExactly(t *testing.T) {
	g := NewWithT(t)
	machines, api, scope := world()
	executor := New(machines, api, nil)
	_, err := executor.Do(t.Context(), scope, whole("Cordon", "Cordoning"), "Cordoning")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(api.Calls()).To(Equal([]string{"Cordon cp-1", "Cordon w-2"}), "a Node that is no machine of the cluster is nobody's business")
	g.Expect(api.Get("w-1")).To(And(HaveField("Unschedulable", true), HaveField("CordonedBy", "")))
	_, err = executor.Do(t.Context(), scope, whole("Cordon", "Cordoning"), "Cordoning")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(api.Calls()).To(HaveLen(2), "repeating it changes nothing")

	api.Set(kube.Node{Name: "w-2", Unschedulable: true, CordonedBy: stops})
	_, err = executor.Do(t.Context(), scope, whole("Uncordon", "Uncordoning"), "Uncordoning")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(api.Calls()[2:]).To(Equal([]string{"Uncordon w-2"}), "a start gives back what the stop has cordoned")

	_, err = executor.Do(t.Context(), scope, whole("Cordon", "Uncordoning"), "Uncordoning")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(api.Calls()[3:]).To(Equal([]string{"Uncordon cp-1"}), "a stop that is given up, what it has itself")
	g.Expect(api.Get("w-1").Unschedulable).To(BeTrue())
}

func TestNobodysCordonsAreNotGivenBack(t *testing.T) {
	g := NewWithT(t)
	machines, api, scope := world()
	scope.StoppedBy = ""
	_, err := New(machines, api, nil).Do(t.Context(), scope, whole("Uncordon", "Uncordoning"), "Uncordoning")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(api.Calls()).To(BeEmpty())
}

// Case D2: a cordon that failed half-way leaves none.
func TestCaseD2UndoTakesTheCordonsOff(t *testing.T) {
	g := NewWithT(t)
	machines, api, scope := world()
	api.FailNext("Cordon", "w-2", apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "w-2", errors.New("may not")))
	executor := New(machines, api, nil)
	_, err := executor.Do(t.Context(), scope, whole("Cordon", "Cordoning"), "Cordoning")
	g.Expect(executor.Classify(err)).To(BeEquivalentTo("Permanent"))
	g.Expect(api.Get("cp-1").Unschedulable).To(BeTrue())
	g.Expect(executor.Undo(t.Context(), scope, whole("Cordon", "Cordoning"), "Cordoning", err)).To(Succeed())
	g.Expect(api.Get("cp-1").Unschedulable).To(BeFalse())
	g.Expect(executor.Undo(t.Context(), scope, whole("Off", "ShuttingDown"), "ShuttingDown", err)).To(Succeed())
}

// Only those that are back are told again, and each only if it is the machine that it is thought to be.
func TestShutDownAgain(t *testing.T) {
	g := NewWithT(t)
	machines, api, scope := world()
	machines.Silence("at-w-1", true)
	executor := New(machines, api, nil)
	_, err := executor.Do(t.Context(), scope, whole("WorkersOff", "ShuttingDown"), "ShuttingDown")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(machines.Calls()).To(Equal([]string{"Shutdown at-w-2"}))
	machines.Change("at-cp-1", func(m *talos.Machine, _ *talos.Etcd) { m.UUID = "uuid-9" })
	_, err = executor.Do(t.Context(), scope, whole("Off", "ShuttingDown"), "ShuttingDown")
	g.Expect(err).To(MatchError(ContainSubstring(`has UUID "uuid-9"`)))
	g.Expect(machines.Calls()).To(HaveLen(1))
}

func TestSnapshots(t *testing.T) {
	g := NewWithT(t)
	machines, api, scope := world()
	kept := &storage{}
	executor := New(machines, api, kept)
	for range 2 {
		_, err := executor.Do(t.Context(), scope, whole("Snapshot", "Snapshotting"), "Snapshotting")
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(kept.taken).To(Equal([]string{"c1-shutdown-y-01234567"}))
	g.Expect(executor.Classify(fmt.Errorf("%w: the bucket is gone", kind.ErrNotStored))).To(BeEquivalentTo("Permanent"))
	g.Expect(executor.Classify(errors.New("x"))).To(BeEquivalentTo("Retryable"))
	g.Expect(executor.StoresSnapshots).To(BeTrue())
	g.Expect(New(machines, api, nil).StoresSnapshots).To(BeFalse())
}

// What stages look at, and whom they ask: once control planes are off, nobody can be asked for a worker.
func TestObserve(t *testing.T) {
	machines, api, scope := world()
	machines.Silence("at-w-2", true)
	executor := New(machines, api, nil)
	for stage, want := range map[string][]string{
		"WorkersOff": {"c1-w-1", "c1-w-2"}, "Off": {"c1-cp-1"}, "PowerOn": {"c1-cp-1", "c1-w-1", "c1-w-2"}, "Verify": {"c1-cp-1", "c1-w-1", "c1-w-2"}, "Cordon": nil,
	} {
		g := NewWithT(t)
		seen, ok := executor.Observe(t.Context(), scope, whole(stage, "")).Own.(View)
		g.Expect(ok).To(BeTrue())
		var names []string
		for name := range seen.Machines {
			names = append(names, name)
		}
		g.Expect(names).To(ConsistOf(want), stage)
		if want != nil && stage != "Off" {
			g.Expect(seen.Machines["c1-w-2"]).To(Equal(isOff), stage)
		}
		if stage == "Verify" || stage == "Cordon" {
			g.Expect(seen.Target.Nodes).NotTo(BeEmpty(), stage)
		} else {
			g.Expect(seen.Target.Nodes).To(BeEmpty(), stage)
		}
	}
	one := kind.Unit{Status: whole("Workers", "").Status, Machine: machineOf(scope, "c1-w-2")}
	NewWithT(t).Expect(executor.Observe(t.Context(), scope, one)).To(And(HaveField("TalosSilent", true), HaveField("Node.Name", "w-2")))
}
