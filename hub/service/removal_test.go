// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// removalOf is the order to remove a machine.
func removalOf(name string, parameters *v1alpha1.RemoveParameters) Order {
	return Order{Cluster: c1, Spec: v1alpha1.TalosOperationSpec{
		ClusterName: c1.Name, Kind: v1alpha1.NodeKind, Node: &v1alpha1.NodeParameters{Machine: name, Action: v1alpha1.RemoveAction, Remove: parameters},
	}}
}

func (w *world) remove(name string, parameters *v1alpha1.RemoveParameters, options CreateOptions) (Created, error) {
	start, err := w.Plan(w.ctx, removalOf(name, parameters))
	w.g.Expect(err).NotTo(HaveOccurred())
	return w.Create(w.ctx, start, options)
}

// notAnswering is a cluster whose worker has not answered for a while.
func notAnswering() []client.Object {
	objects := cluster()
	worker := objects[1].(*v1alpha1.TalosMachine)
	worker.Status.Conditions = []metav1.Condition{{Type: v1alpha1.MachineReadyCondition, Status: "Unknown", Reason: v1alpha1.MachineNotReachableReason}}
	return objects
}

// The request is on the machine before there is an operation, and stays what it was if it was there.
func TestRemoveRecordsFirst(t *testing.T) {
	w := newWorld(t, cluster()...)
	plan, err := w.Plan(w.ctx, removalOf("w-1", &v1alpha1.RemoveParameters{Reason: "sold"}))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(plan.Refusals).To(BeEmpty(), "it will ask for it by then")
	w.g.Expect(plan.Command()).To(Equal("ichor machine remove c1-w-1 --namespace default --cluster c1 --reason sold"))
	w.g.Expect(w.writes).To(BeEmpty())

	created, err := w.remove("w-1", &v1alpha1.RemoveParameters{Reason: "sold"}, CreateOptions{ValidateOnly: true})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(created.Operation.Spec.Node.Remove.Reason).To(Equal("sold"))
	machine := &v1alpha1.TalosMachine{}
	w.get(machine, "c1-w-1")
	w.g.Expect(machine.Spec.Removal).To(BeNil())

	w.writes = nil
	_, err = w.remove("w-1", &v1alpha1.RemoveParameters{Reason: "sold"}, CreateOptions{})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(w.writes).To(Equal([]string{"dry-run TalosOperation", "patch TalosMachine", "create TalosOperation"}))
	w.get(machine, "c1-w-1")
	w.g.Expect(machine.Spec.Removal).To(HaveValue(Equal(v1alpha1.RemovalSpec{Reason: "sold"})))
}

func TestRemoveTakesTheRecord(t *testing.T) {
	objects := cluster()
	objects[1].(*v1alpha1.TalosMachine).Spec.Removal = &v1alpha1.RemovalSpec{Reason: "by Git"}
	w := newWorld(t, objects...)
	_, err := w.remove("c1-w-1", nil, CreateOptions{})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(w.writes).To(Equal([]string{"dry-run TalosOperation", "create TalosOperation"}))

	w = newWorld(t, cluster()...)
	_, err = w.remove("c1-w-1", nil, CreateOptions{})
	w.g.Expect(err).To(MatchError(ContainSubstring("does not ask to be removed (spec.removal)")))
	w.g.Expect(w.writes).To(BeEmpty())
}

// Nobody is declared dead who answered when the hub last looked.
func TestRemoveDead(t *testing.T) {
	dead := &v1alpha1.RemoveParameters{Manner: v1alpha1.RemoveDead, Reason: "mainboard"}
	w := newWorld(t, cluster()...)
	_, err := w.remove("w-1", dead, CreateOptions{})
	w.g.Expect(err).To(MatchError(ContainSubstring("it is not dead")))
	w.g.Expect(w.writes).To(BeEmpty())

	w = newWorld(t, notAnswering()...)
	created, err := w.remove("w-1", dead, CreateOptions{})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(created.Operation.Spec.Node.Dead()).To(BeTrue())
	start, err := w.Plan(w.ctx, removalOf("w-1", dead))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(start.Command()).To(HaveSuffix("--reason mainboard --dead"))
	w.g.Expect(describeNode(start.Spec.Node)).To(Equal("Remove of c1-w-1, reason mainboard, as dead"))
}

// Who asked for it and got no operation is told so, and how to finish.
func TestRemoveHalfDone(t *testing.T) {
	w := newWorld(t, cluster()...)
	w.fail = func(write string) error {
		if write == "create TalosOperation" {
			return errors.New("no answer")
		}
		return nil
	}
	_, err := w.remove("w-1", &v1alpha1.RemoveParameters{Reason: "sold"}, CreateOptions{})
	var half *PartlyDoneError
	w.g.Expect(errors.As(err, &half)).To(BeTrue())
	w.g.Expect(half.Done).To(Equal("TalosMachine c1-w-1 asks to be removed now (spec.removal)"))
	w.g.Expect(half.Finish).To(ContainSubstring("ichor machine remove c1-w-1"))
	w.fail = func(string) error { return nil }
	_, err = w.remove("w-1", &v1alpha1.RemoveParameters{Reason: "sold"}, CreateOptions{})
	w.g.Expect(err).NotTo(HaveOccurred(), "once more finishes it")
}

func TestRemoveChecks(t *testing.T) {
	for want, parameters := range map[string]*pb.RemoveParameters{
		"remove.manner": {Manner: "Quick", Reason: "x"},
		"remove.reason": {Reason: strings.Repeat("x", 257)},
	} {
		_, err := removeOf(v1alpha1.RemoveAction, parameters)
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring(want)))
	}
	_, err := removeOf(v1alpha1.ResetAction, &pb.RemoveParameters{Manner: "Dead"})
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("goes with action Remove only")))
	none, err := removeOf(v1alpha1.RemoveAction, &pb.RemoveParameters{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(none).To(BeNil())
}
