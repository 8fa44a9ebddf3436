// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

func (w *world) planUpgrade(version string) *Start {
	start, err := w.PlanTalosUpgrade(w.ctx, c1, version, nil)
	w.g.ExpectWithOffset(1, err).NotTo(HaveOccurred())
	return start
}

func TestPlanTalosUpgrade(t *testing.T) {
	w := newWorld(t, cluster()...)
	start, err := w.PlanTalosUpgrade(w.ctx, c1, "1.14.1", ptr.To(intstr.FromString("25%")))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(start.Spec).To(Equal(v1alpha1.TalosOperationSpec{
		ClusterName: "c1", Kind: "talos", MaxUnavailable: ptr.To(intstr.FromString("25%")), ExpectedTarget: &v1alpha1.OperationTarget{TalosVersion: "v1.14.1"},
	}))
	w.g.Expect(start.Plan.Stages[1].Machines).To(Equal([]string{"c1-cp-1", "c1-cp-2", "c1-cp-3", "c1-w-1"}))
	w.g.Expect(start.Refusals).To(BeEmpty())
	w.g.Expect(w.writes).To(BeEmpty())

	_, err = w.PlanTalosUpgrade(w.ctx, c1, "1.14", nil)
	w.g.Expect(err).To(MatchError(ContainSubstring("did you mean 1.14.0?")))
	_, err = w.PlanTalosUpgrade(w.ctx, client.ObjectKey{Namespace: "default", Name: "c9"}, "1.14.1", nil)
	w.g.Expect(err).To(MatchError(`there is no cluster "c9" in namespace "default"; list them with: ichor cluster list`))
	w.g.Expect(errors.As(err, new(*NotFoundError))).To(BeTrue())
}

// What an upgrade of Talos does not bring about is no part of what it expects, and a reboot expects nothing.
func TestPlansAreNarrow(t *testing.T) {
	objects := cluster()
	spec := &objects[0].(*v1alpha1.TalosCluster).Spec
	spec.SchematicID, spec.KubernetesVersion, spec.CNI = "s1", "v1.36.0", &v1alpha1.CNISpec{CiliumVersion: "1.18.2"}
	w := newWorld(t, objects...)
	want := v1alpha1.OperationTarget{TalosVersion: "v1.14.1", SchematicID: "s1"}
	start := w.planUpgrade("v1.14.1")
	w.g.Expect(start.Spec.ExpectedTarget).To(HaveValue(Equal(want)))
	w.g.Expect(start.Plan.Target).To(Equal(want))
	start, err := w.PlanReboot(w.ctx, machine("c1-w-1", "c1", "w-1", "Worker"), "")
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(start.Spec.ExpectedTarget).To(BeNil())
	w.g.Expect(start.Plan.Target).To(BeZero())
}

// Case F8: whoever asks for a Talos that this hub does not know is told what helps.
func TestCaseF8NewerThanTheHub(t *testing.T) {
	w := newWorld(t, cluster()...)
	_, err := w.Create(w.ctx, w.planUpgrade("v1.99.0"))
	w.g.Expect(err).To(MatchError(ContainSubstring("and not v1.99.0 (upgrade the hub first)")))
	w.g.Expect(w.writes).To(BeEmpty())
}

func TestPlanReboot(t *testing.T) {
	w := newWorld(t, cluster()...)
	start, err := w.PlanReboot(w.ctx, machine("c1-w-1", "c1", "w-1", "Worker"), "PowerCycle")
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(start.Spec).To(Equal(v1alpha1.TalosOperationSpec{
		ClusterName: "c1", Kind: "node", Node: &v1alpha1.NodeParameters{Machine: "c1-w-1", Action: "Reboot", RebootMode: "PowerCycle"},
	}))
	w.g.Expect(start.AtTarget()).To(BeFalse())
	op, err := w.Create(w.ctx, start)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(op.Name).To(HavePrefix("c1-node-"))
	w.g.Expect(w.writes).To(Equal([]string{"dry-run TalosOperation", "create TalosOperation"}), "a reboot changes no spec")
}

// The spec first, then the operation, and before both a try that writes nothing.
func TestCreate(t *testing.T) {
	w := newWorld(t, cluster(completed(operation("c1-talos-old", "c1")), operation("c2-talos-x", "c2"))...)
	op, err := w.Create(w.ctx, w.planUpgrade("v1.14.1"))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(w.writes).To(Equal([]string{"dry-run TalosOperation", "patch TalosCluster", "create TalosOperation"}))
	w.g.Expect(op.Name).To(HavePrefix("c1-talos-"))
	w.g.Expect(op.Labels).To(Equal(map[string]string{"cluster.x-k8s.io/cluster-name": "c1"}))
	talos, made := &v1alpha1.TalosCluster{}, &v1alpha1.TalosOperation{}
	w.get(talos, "c1")
	w.g.Expect(talos.Spec.TalosVersion).To(Equal("v1.14.1"))
	w.get(made, op.Name)
	w.g.Expect(made.Spec.ExpectedTarget.TalosVersion).To(Equal("v1.14.1"))
}

func TestCreateRefusesBeforeItWrites(t *testing.T) {
	t.Run("what the plan refuses", func(t *testing.T) {
		w := newWorld(t, cluster()...)
		start := w.planUpgrade("v1.13.0")
		_, err := w.Create(w.ctx, start)
		w.g.Expect(err).To(BeAssignableToTypeOf(&RefusedError{}))
		w.g.Expect(err).To(MatchError(HavePrefix("refused: TalosVersionPath: c1-")))
		w.g.Expect(w.writes).To(BeEmpty())
	})
	t.Run("a second operation (E5)", func(t *testing.T) {
		other := operation("c1-talos-x", "c1")
		other.Status.Phase = "Paused"
		w := newWorld(t, cluster(other)...)
		_, err := w.Create(w.ctx, w.planUpgrade("v1.14.1"))
		w.g.Expect(err).To(MatchError("operation c1-talos-x of cluster c1 is not finished (Paused): follow it with: ichor operation watch c1-talos-x, or delete it first"))
		w.g.Expect(w.writes).To(BeEmpty())
	})
	t.Run("what the API server would not accept", func(t *testing.T) {
		w := newWorld(t, cluster()...)
		w.fail = func(string) error { return errors.New("forbidden") }
		_, err := w.Create(w.ctx, w.planUpgrade("v1.14.1"))
		w.g.Expect(err).To(MatchError("the operation would not be accepted, nothing was changed: forbidden"))
		w.g.Expect(w.writes).To(Equal([]string{"dry-run TalosOperation"}))
	})
}

func TestCreateTellsHowFarItCame(t *testing.T) {
	t.Run("the spec was changed meanwhile", func(t *testing.T) {
		w := newWorld(t, cluster()...)
		start := w.planUpgrade("v1.14.1")
		talos := &v1alpha1.TalosCluster{}
		w.get(talos, "c1")
		talos.Spec.TalosVersion = "v1.14.0"
		w.g.Expect(w.Client.Update(w.ctx, talos)).To(Succeed())
		_, err := w.Create(w.ctx, start)
		w.g.Expect(apierrors.IsConflict(err)).To(BeTrue())
		w.g.Expect(err).To(MatchError(HavePrefix("writing spec.talosVersion of TalosCluster c1, nothing was started: ")))
		w.g.Expect(w.writes).NotTo(ContainElement("create TalosOperation"))
	})
	t.Run("the hub wrote status meanwhile", func(t *testing.T) {
		w := newWorld(t, cluster()...)
		start := w.planUpgrade("v1.14.1")
		talos := &v1alpha1.TalosCluster{}
		w.get(talos, "c1")
		talos.Status.KubernetesVersion = "v1.36.1"
		w.g.Expect(w.Client.Update(w.ctx, talos)).To(Succeed())
		_, err := w.Create(w.ctx, start)
		w.g.Expect(err).NotTo(HaveOccurred())
		w.get(talos, "c1")
		w.g.Expect(talos.Spec.TalosVersion).To(Equal("v1.14.1"))
	})
	t.Run("the second write fails, and the next try finishes", func(t *testing.T) {
		w := newWorld(t, cluster()...)
		w.fail = func(write string) error {
			if write == "create TalosOperation" {
				return errors.New("no answer")
			}
			return nil
		}
		_, err := w.Create(w.ctx, w.planUpgrade("v1.14.1"))
		w.g.Expect(err).To(MatchError("creating the operation (spec.talosVersion of TalosCluster c1 is v1.14.1 already; run the command again to finish): no answer"))
		w.fail = func(string) error { return nil }
		w.writes = nil
		_, err = w.Create(w.ctx, w.planUpgrade("v1.14.1"))
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(w.writes).To(Equal([]string{"dry-run TalosOperation", "create TalosOperation"}))
	})
}

func TestRefusedError(t *testing.T) {
	NewWithT(t).Expect(&RefusedError{Refusals: []plan.Refusal{
		{Gate: "Quorum", Message: "two control planes", Help: "add a third"}, {Gate: "TargetExpected", Message: "another"},
	}}).To(MatchError("refused: Quorum: two control planes (add a third); TargetExpected: another"))
}

func TestAtTarget(t *testing.T) {
	const target = "v1.14.1"
	at := func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion = target }
	all := func(_ int, m *v1alpha1.TalosMachine) { at(m) }
	for name, row := range map[string]struct {
		change          func(i int, m *v1alpha1.TalosMachine)
		spec, schematic string
		want            bool
	}{
		"none": {func(int, *v1alpha1.TalosMachine) {}, target, "", false},
		"some": {func(i int, m *v1alpha1.TalosMachine) {
			if i > 0 {
				at(m)
			}
		}, target, "", false},
		"all":                                {all, target, "", true},
		"all, and the spec asks for another": {all, "v1.13.9", "", false},
		"all, and the spec asks for nothing": {all, "", "", false},
		"all, another schematic":             {all, target, "s2", false},
		"all, the schematic":                 {all, target, "s1", true},
		"all but one that is held": {func(i int, m *v1alpha1.TalosMachine) {
			at(m)
			if i == 0 {
				m.Status.TalosVersion = "v1.13.9"
				m.Annotations = map[string]string{"ichor.maesh.dev/upgrade-hold": ""}
			}
		}, target, "", true},
		"all, and one that nobody approved": {func(i int, m *v1alpha1.TalosMachine) {
			at(m)
			if i == 0 {
				m.Status.TalosVersion, m.Spec.Approval = "v1.13.9", "Pending"
			}
		}, target, "", true},
		"all, and all are held": {func(_ int, m *v1alpha1.TalosMachine) {
			at(m)
			m.Annotations = map[string]string{"ichor.maesh.dev/upgrade-hold": ""}
		}, target, "", false},
		"none, and all are held": {func(_ int, m *v1alpha1.TalosMachine) {
			m.Annotations = map[string]string{"ichor.maesh.dev/upgrade-hold": ""}
		}, target, "", false},
		"all but one that has not told": {func(i int, m *v1alpha1.TalosMachine) {
			if i > 0 {
				at(m)
			} else {
				m.Status = v1alpha1.TalosMachineStatus{}
			}
		}, target, "", false},
		"nobody is approved (A17)": {func(_ int, m *v1alpha1.TalosMachine) { m.Spec.Approval = "Pending" }, target, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			objects := cluster()
			for i, object := range objects[1:] {
				row.change(i, object.(*v1alpha1.TalosMachine))
			}
			spec := &objects[0].(*v1alpha1.TalosCluster).Spec
			spec.TalosVersion, spec.SchematicID = row.spec, row.schematic
			w := newWorld(t, objects...)
			w.g.Expect(w.planUpgrade(target).AtTarget()).To(Equal(row.want))
		})
	}
}
