// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

// upgradeTo is the order of an upgrade of cluster c1.
func upgradeTo(version string) Order {
	return Order{
		Cluster: c1, Spec: v1alpha1.TalosOperationSpec{ClusterName: c1.Name, Kind: v1alpha1.TalosKind}, Target: v1alpha1.OperationTarget{TalosVersion: version},
	}
}

func (w *world) planUpgrade(version string) *Start {
	start, err := w.Plan(w.ctx, upgradeTo(version))
	w.g.ExpectWithOffset(1, err).NotTo(HaveOccurred())
	return start
}

func TestPlan(t *testing.T) {
	w := newWorld(t, cluster()...)
	order := upgradeTo("v1.14.1")
	order.Spec.MaxUnavailable = ptr.To(intstr.FromString("25%"))
	start, err := w.Plan(w.ctx, order)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(start.Spec).To(Equal(v1alpha1.TalosOperationSpec{
		ClusterName: "c1", Kind: "talos", MaxUnavailable: ptr.To(intstr.FromString("25%")), ExpectedTarget: &v1alpha1.OperationTarget{TalosVersion: "v1.14.1"},
	}))
	w.g.Expect(start.Plan.Stages[1].Machines).To(Equal([]string{"c1-cp-1", "c1-cp-2", "c1-cp-3", "c1-w-1"}))
	w.g.Expect(start.Observed).To(Equal(now))
	w.g.Expect(start.Refusals).To(BeEmpty())
	w.g.Expect(w.writes).To(BeEmpty())
}

// What an upgrade of Talos does not bring about is no part of what it expects, and a reboot expects nothing.
func TestPlansAreNarrow(t *testing.T) {
	objects := cluster()
	spec := &objects[0].(*v1alpha1.TalosCluster).Spec
	spec.SchematicID, spec.KubernetesVersion, spec.CNI = strings.Repeat("a", 64), "v1.36.0", &v1alpha1.CNISpec{CiliumVersion: "1.18.2"}
	w := newWorld(t, objects...)
	want := v1alpha1.OperationTarget{TalosVersion: "v1.14.1", SchematicID: strings.Repeat("a", 64)}
	start := w.planUpgrade("v1.14.1")
	w.g.Expect(start.Spec.ExpectedTarget).To(HaveValue(Equal(want)))
	w.g.Expect(start.Plan.Target).To(Equal(want))
	start, err := w.Plan(w.ctx, Order{Cluster: c1, Spec: v1alpha1.TalosOperationSpec{
		ClusterName: "c1", Kind: "node", Node: &v1alpha1.NodeParameters{Machine: "w-1", Action: "Reboot"},
	}})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(start.Spec.ExpectedTarget).To(BeNil())
	w.g.Expect(start.Spec.Node.Machine).To(Equal("c1-w-1"))
	w.g.Expect(start.Plan.Target).To(BeZero())
	w.g.Expect(start.AtTarget()).To(BeFalse())
}

// Case F8: whoever asks for a Talos that this hub does not know is told what helps.
func TestCaseF8NewerThanTheHub(t *testing.T) {
	w := newWorld(t, cluster()...)
	_, err := w.Create(w.ctx, w.planUpgrade("v1.99.0"), CreateOptions{})
	w.g.Expect(err).To(MatchError(ContainSubstring("and not v1.99.0 (upgrade the hub first)")))
	w.g.Expect(w.writes).To(BeEmpty())
}

// What happens between the plan and the writes: the hub writes status at any time, and somebody may change the spec.
func TestCreateMeetsOthers(t *testing.T) {
	changed := func(change func(*v1alpha1.TalosCluster)) (*world, error) {
		w := newWorld(t, cluster()...)
		start := w.planUpgrade("v1.14.1")
		talos := &v1alpha1.TalosCluster{}
		w.get(talos, "c1")
		change(talos)
		w.g.Expect(w.Client.Update(w.ctx, talos)).To(Succeed())
		w.writes = nil
		_, err := w.Create(w.ctx, start, CreateOptions{})
		return w, err
	}
	t.Run("another version", func(*testing.T) {
		w, err := changed(func(c *v1alpha1.TalosCluster) { c.Spec.TalosVersion = "v1.14.0" })
		w.g.Expect(err).To(MatchError("the spec of TalosCluster c1 was changed meanwhile, and nothing was started: look at it again, and repeat the request"))
		w.g.Expect(is[*ChangedError](err)).To(BeTrue())
		w.g.Expect(w.writes).NotTo(ContainElement("create TalosOperation"))
	})
	for name, change := range map[string]func(*v1alpha1.TalosCluster){
		"status": func(c *v1alpha1.TalosCluster) { c.Status.KubernetesVersion = "v1.36.1" },
		"a part that is none of its concern": func(c *v1alpha1.TalosCluster) {
			c.Spec.KubernetesVersion, c.Annotations = "v1.36.1", map[string]string{"a": "b"}
		},
	} {
		t.Run(name, func(*testing.T) {
			w, err := changed(change)
			w.g.Expect(err).NotTo(HaveOccurred())
			talos := &v1alpha1.TalosCluster{}
			w.get(talos, "c1")
			w.g.Expect(talos.Spec.TalosVersion).To(Equal("v1.14.1"))
			w.g.Expect(w.writes).To(ContainElement("create TalosOperation"))
		})
	}
}

// Two calls with the same key at once make one operation: the second finds out from the API server.
func TestCreateMeetsItself(t *testing.T) {
	w := newWorld(t, cluster()...)
	first, second := w.planUpgrade("v1.14.1"), w.planUpgrade("v1.14.1")
	made, err := w.Create(w.ctx, first, CreateOptions{IdempotencyKey: "k"})
	w.g.Expect(err).NotTo(HaveOccurred())
	again, err := w.Create(w.ctx, second, CreateOptions{IdempotencyKey: "k"})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(again.Existed).To(BeTrue())
	w.g.Expect(again.Operation.Name).To(Equal(made.Operation.Name))
	third := w.planUpgrade("v1.13.10")
	third.operations = nil
	third.Refusals = nil
	_, err = w.Create(w.ctx, third, CreateOptions{IdempotencyKey: "k"})
	w.g.Expect(is[*ExistsError](err)).To(BeTrue())
}

// Fields belong to who wrote them. What was asked for by nobody in particular may be taken, what somebody else asks for may not.
func TestChangeOf(t *testing.T) {
	const fields = `{"f:spec":{"f:talosVersion":{}}}`
	managed := func(manager string, operation metav1.ManagedFieldsOperationType, raw string) metav1.ManagedFieldsEntry {
		entry := metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: &metav1.FieldsV1{}}
		entry.FieldsV1.SetRawBytes([]byte(raw))
		return entry
	}
	for name, row := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		takes   bool
		owners  []fieldOwner
	}{
		"nobody":                      {},
		"an earlier start":            {entries: []metav1.ManagedFieldsEntry{managed("ichor-operations", "Apply", fields)}},
		"the command line of before":  {entries: []metav1.ManagedFieldsEntry{managed("ichor", "Update", fields)}, takes: true},
		"a move":                      {entries: []metav1.ManagedFieldsEntry{managed("clusterctl", "Update", fields)}, takes: true},
		"somebody of another field":   {entries: []metav1.ManagedFieldsEntry{managed("kubectl", "Update", `{"f:spec":{"f:schematicID":{}}}`)}},
		"somebody":                    {entries: []metav1.ManagedFieldsEntry{managed("kubectl-edit", "Update", fields)}, owners: []fieldOwner{{"spec.talosVersion", "kubectl-edit"}}},
		"somebody beside the hub":     {entries: []metav1.ManagedFieldsEntry{managed("ichor", "Update", fields), managed("argocd", "Apply", fields)}, takes: true, owners: []fieldOwner{{"spec.talosVersion", "argocd"}}},
		"what is no set of fields":    {entries: []metav1.ManagedFieldsEntry{managed("kubectl", "Update", `[`), {Manager: "none"}}},
		"the same name, not applying": {entries: []metav1.ManagedFieldsEntry{managed("ichor-operations", "Update", fields)}, takes: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{ManagedFields: row.entries}, Spec: v1alpha1.TalosClusterSpec{TalosVersion: "v1.13.9"}}
			c := changeOf(cluster, v1alpha1.OperationTarget{TalosVersion: "v1.14.1"})
			g.Expect(c.fields).To(Equal([]string{"spec.talosVersion is v1.14.1"}))
			g.Expect(c.apply).To(Equal(map[string]any{"spec": map[string]any{"talosVersion": "v1.14.1"}}))
			g.Expect(c.takes).To(Equal(row.takes))
			g.Expect(c.owners).To(Equal(row.owners))
			g.Expect(changeOf(cluster, v1alpha1.OperationTarget{TalosVersion: "v1.13.9"}).fields).To(BeEmpty())
		})
	}
}

// An object that was never asked about tells its owners only when it is applied.
func TestDeclareMeetsOwners(t *testing.T) {
	conflict := func(manager string) error {
		return apierrors.NewApplyConflict([]metav1.StatusCause{{
			Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.talosVersion", Message: "conflict with \"" + manager + "\" using ichor.maesh.dev/v1alpha1",
		}}, "conflict")
	}
	for manager, taken := range map[string]bool{"before-first-apply": true, "ichor": true, "kubectl-edit": false, "ichor-like": false} {
		t.Run(manager, func(t *testing.T) {
			w := newWorld(t, cluster()...)
			start, tried := w.planUpgrade("v1.14.1"), false
			w.fail = func(write string) error {
				if write != "apply TalosCluster" || tried {
					return nil
				}
				tried = true
				return conflict(manager)
			}
			_, err := w.Create(w.ctx, start, CreateOptions{})
			if taken {
				w.g.Expect(err).NotTo(HaveOccurred())
				w.g.Expect(w.writes).To(Equal([]string{"dry-run TalosOperation", "apply TalosCluster", "apply TalosCluster", "create TalosOperation"}))
				return
			}
			w.g.Expect(is[*RefusedError](err)).To(BeTrue())
			w.g.Expect(err).To(MatchError(ContainSubstring("SpecOwned: spec.talosVersion of TalosCluster c1: conflict with \"" + manager + "\"")))
			w.g.Expect(err).To(MatchError(ContainSubstring(`--field-manager ichor-operations -p '{"spec":{"talosVersion":"v1.14.1"}}'`)))
			w.g.Expect(w.writes).To(Equal([]string{"dry-run TalosOperation", "apply TalosCluster"}))
		})
	}
}

// How a field is handed over is said in a line, or left out where names are too long for that.
func TestHandOver(t *testing.T) {
	g := NewWithT(t)
	start := &Start{Order: upgradeTo("v1.14.1"), Spec: upgradeTo("v1.14.1").Spec}
	start.Facts.Cluster = &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}
	start.Plan.Target = v1alpha1.OperationTarget{TalosVersion: "v1.14.1", SchematicID: strings.Repeat("a", 64), CiliumVersion: "1.18.2"}
	g.Expect(start.handOver("spec.cni.ciliumVersion")).To(Equal("set it where it was set before, or hand it over with: kubectl patch taloscluster c1 " +
		`-n default --type merge --field-manager ichor-operations -p '{"spec":{"cni":{"ciliumVersion":"1.18.2"}}}'; then start again`))
	g.Expect(start.handOver("spec.schematicID")).To(ContainSubstring("kubectl patch"))
	g.Expect(len(start.handOver("spec.schematicID"))).To(BeNumerically("<=", 256))
	start.Facts.Cluster.Name = "a-cluster-of-a-much-longer-name"
	g.Expect(start.handOver("spec.schematicID")).To(HavePrefix("set it in the way in which it was set before, and then start with: ichor upgrade talos v1.14.1"))
	g.Expect(start.handOver("spec.talosVersion")).To(ContainSubstring("kubectl patch"))
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

// Who writes the spec creates the operation as well, even if whoever asked goes meanwhile: nobody else would be told.
func TestCreateOfSomebodyWhoGoes(t *testing.T) {
	w := newWorld(t, cluster()...)
	ctx, leave := context.WithCancel(w.ctx)
	w.fail = func(write string) error {
		if write == "apply TalosCluster" {
			leave()
		}
		return nil
	}
	created, err := w.Create(ctx, w.planUpgrade("v1.14.1"), CreateOptions{})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(ctx.Err()).To(MatchError(context.Canceled))
	w.get(&v1alpha1.TalosOperation{}, created.Operation.Name)
}
