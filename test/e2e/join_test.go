// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/journal"
)

var grow = sim.ClusterSpec{Name: "grow", ControlPlanes: 1, Workers: 1, BlankControlPlanes: 4, BlankWorkers: 1}

var _ = Describe("A cluster that grows and shrinks", Ordered, func() {
	var w *world
	var cluster *sim.Cluster

	BeforeAll(func(ctx SpecContext) {
		w = install(ctx, grow)
		cluster = w.Fleet.Cluster("grow")
	}, NodeTimeout(8*time.Minute))

	joins := func(ctx context.Context, name, role string, more ...string) []string {
		GinkgoHelper()
		node := cluster.Node(name)
		fingerprint, err := node.Fingerprint()
		Expect(err).NotTo(HaveOccurred())
		return append([]string{
			"machine", "join", "--cluster", "grow", "--address", node.Address(), "--role", role, "--hostname", name, "--fingerprint", fingerprint,
			"--approve", "--yes",
		}, more...)
	}
	happened := func(node, method string) func() bool {
		return func() bool {
			return len(w.Fleet.Journal().Entries(journal.Filter{Cluster: "grow", Node: node, Method: method})) > 0
		}
	}
	over := func(ctx context.Context, name string) func() (bool, error) {
		return func() (bool, error) {
			var list v1alpha1.TalosOperationList
			if err := w.client.List(ctx, &list); err != nil {
				return false, err
			}
			for i := range list.Items {
				if node := list.Items[i].Spec.Node; node != nil && node.Machine == "grow-"+name {
					Expect(list.Items[i].Status.FailureReason).To(BeEmpty())
					return list.Items[i].Completed(), nil
				}
			}
			return false, nil
		}
	}

	It("shows a machine in maintenance mode, and gives it nothing before somebody vouches for it", func(ctx SpecContext) {
		node := cluster.Node("worker-2")
		fingerprint, err := node.Fingerprint()
		Expect(err).NotTo(HaveOccurred())
		shown := w.ichor(ctx, 0, "machine", "join", "--cluster", "grow", "--address", node.Address(), "--role", "worker", "--dry-run")
		Expect(shown.Out).To(And(ContainSubstring(fingerprint), ContainSubstring(node.UUID()), ContainSubstring("/dev/vda")))
		w.ichor(ctx, 2, "machine", "join", "--cluster", "grow", "--address", node.Address(), "--role", "worker", "--yes")
		other := "A" + fingerprint[1:]
		if other == fingerprint {
			other = "B" + fingerprint[1:]
		}
		wrong := w.ichor(ctx, 1, "machine", "join", "--cluster", "grow", "--address", node.Address(), "--role", "worker", "--fingerprint", other, "--yes")
		Expect(wrong.Err).To(ContainSubstring("compare it with the machine's console"))
		taken := w.ichor(ctx, 1, "machine", "join", "--cluster", "grow", "--address", node.Address(), "--role", "worker", "--hostname", "cp-1", "--fingerprint", fingerprint, "--yes")
		Expect(taken.Err).To(ContainSubstring("TalosMachine grow-cp-1 is called cp-1"))
		Expect(node.State().Maintenance).To(BeTrue())

		recorded := w.ichor(ctx, 0, "machine", "join", "--cluster", "grow", "--address", node.Address(), "--role", "worker", "--hostname", "worker-2", "--fingerprint", fingerprint, "--yes")
		Expect(recorded.Out).To(ContainSubstring("ichor machine approve grow-worker-2"))
		Expect(w.ichor(ctx, 1, "node", "join", "grow-worker-2", "--yes").Err).To(ContainSubstring("TalosMachine grow-worker-2 is not approved"))
		w.ichor(ctx, 0, "machine", "approve", "grow-worker-2")
		w.ichor(ctx, 0, "node", "join", "grow-worker-2", "--yes", "--follow")
		Expect(node.State().Ready).To(BeTrue())
		var machines struct{ Machines []json.RawMessage }
		Expect(w.CLIJSON(ctx, &machines, "machine", "list", "--cluster", "grow")).To(Succeed())
		Expect(machines.Machines).To(HaveLen(3))
	}, SpecTimeout(12*time.Minute))

	It("goes from one control plane to five, one at a time, with a hub that is killed on the way", func(ctx SpecContext) {
		for i, at := range []string{"event provisioned", "event down", "event etcd-learner", "event etcd-voter"} {
			name := fmt.Sprintf("cp-%d", i+2)
			w.ichor(ctx, 0, joins(ctx, name, "controlplane")...)
			Eventually(happened(name, at)).WithContext(ctx).Should(BeTrue())
			Expect(w.KillHub()).To(Succeed())
			Expect(w.StartHub(ctx)).To(Succeed())
			Eventually(over(ctx, name)).WithContext(ctx).Should(BeTrue())
			Expect(cluster.Node(name).State()).To(And(HaveField("Ready", true), HaveField("EtcdUp", true)))
		}
	}, SpecTimeout(12*time.Minute))

	gone := func(name string) func(Gomega) {
		return func(g Gomega) {
			err := w.client.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "grow-" + name}, &v1alpha1.TalosMachine{})
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "TalosMachine of %s: %v", name, err)
			for _, node := range cluster.KubernetesNodes() {
				g.Expect(node.Name).NotTo(Equal(name))
			}
		}
	}
	removals := func(ctx context.Context, name string) func() (bool, error) {
		return func() (bool, error) {
			var list v1alpha1.TalosOperationList
			if err := w.client.List(ctx, &list); err != nil {
				return false, err
			}
			for i := range list.Items {
				if node := list.Items[i].Spec.Node; node != nil && node.Machine == "grow-"+name && node.Action == v1alpha1.RemoveAction {
					Expect(list.Items[i].Status.FailureReason).To(BeEmpty())
					return list.Items[i].Completed(), nil
				}
			}
			return false, nil
		}
	}

	It("goes back to three, by way of four, and is killed on the way", func(ctx SpecContext) {
		kills := map[string][]string{
			"cp-5": {"event etcd-removed", "MachineService/Reset"}, "cp-4": {"MachineService/EtcdLeaveCluster", "MachineService/Reset"},
		}
		for _, name := range []string{"cp-5", "cp-4"} {
			Expect(w.ichor(ctx, 1, "machine", "remove", "grow-"+name, "--confirm", "grow-"+name).Err).To(ContainSubstring("does not ask to be removed (spec.removal)"))
			w.ichor(ctx, 2, "machine", "remove", "grow-"+name, "--reason", "it was lent", "--yes")
			shown := w.ichor(ctx, 0, "machine", "remove", "grow-"+name, "--reason", "it was lent", "--dry-run")
			Expect(shown.Out).To(And(ContainSubstring("the machine leaves the cluster for good"), ContainSubstring("its etcd member")))
			w.ichor(ctx, 0, "machine", "remove", "grow-"+name, "--reason", "it was lent", "--confirm", "grow-"+name)
			for _, at := range kills[name] {
				Eventually(happened(name, at)).WithContext(ctx).Should(BeTrue(), at)
				Expect(w.KillHub()).To(Succeed())
				Expect(w.StartHub(ctx)).To(Succeed())
			}
			Eventually(removals(ctx, name)).WithContext(ctx).Should(BeTrue())
			Eventually(gone(name)).WithContext(ctx).Should(Succeed())
			Expect(cluster.Node(name).State().Maintenance).To(BeTrue(), "it is wiped")
		}
		Eventually(w.Unavailable).WithContext(ctx).Should(BeEmpty())
		Expect(cluster.KubernetesNodes()).To(HaveLen(5), "three control planes and two workers")
	}, SpecTimeout(12*time.Minute))

	It("gives a control plane up that is dead, and does not take it back when it returns", func(ctx SpecContext) {
		Expect(w.RestartHub(ctx, "--step-deadline", "StayingOff=2s")).To(Succeed())
		key := client.ObjectKey{Namespace: "default", Name: "grow-cp-3"}
		dead := []string{"machine", "remove", "cp-3", "--cluster", "grow", "--dead", "--reason", "mainboard", "--confirm", "grow-cp-3"}
		Expect(w.ichor(ctx, 1, dead...).Err).To(ContainSubstring("it is not dead"))
		cluster.Node("cp-3").PowerOff()
		Eventually(func(g Gomega) {
			machine := &v1alpha1.TalosMachine{}
			g.Expect(w.client.Get(ctx, key, machine)).To(Succeed())
			g.Expect(machine.Status.Conditions).To(ContainElement(And(HaveField("Type", "Ready"), HaveField("Reason", "NotReachable"))))
		}).WithContext(ctx).Should(Succeed())
		w.ichor(ctx, 0, dead...)
		Eventually(happened("cp-3", "event etcd-removed")).WithContext(ctx).Should(BeTrue())
		Expect(w.KillHub()).To(Succeed())
		Expect(w.StartHub(ctx)).To(Succeed())
		Eventually(removals(ctx, "cp-3")).WithContext(ctx).Should(BeTrue())
		Eventually(gone("cp-3")).WithContext(ctx).Should(Succeed())

		cluster.Node("cp-3").PowerOn()
		Eventually(func(g Gomega) {
			machine := &v1alpha1.TalosMachine{}
			g.Expect(w.client.Get(ctx, key, machine)).To(Succeed())
			g.Expect(machine.Spec.Approval).To(Equal(v1alpha1.ApprovalPending))
			g.Expect(machine.Spec.Removal).To(BeNil())
		}).WithContext(ctx).Should(Succeed())
		Expect(cluster.Node("cp-3").State().EtcdUp).To(BeFalse(), "it is no member any more")
	}, SpecTimeout(12*time.Minute))

	It("changed who belongs to etcd one at a time, gave each machine its config once, and bootstrapped nothing", func() {
		changes := invariant.ReadMembership(w.Fleet.Journal(), "grow", invariant.IsControlPlane)
		Expect(changes.Problems()).To(BeEmpty())
		Expect(changes.Joined).To(Equal([]string{"cp-2", "cp-3", "cp-4", "cp-5"}))
		Expect(changes.Removed).To(Equal([]string{"cp-5", "cp-4", "cp-3"}))
		Expect(changes.Most).To(Equal(1))
		Expect(changes.Provisioned).To(HaveKeyWithValue("worker-2", 1))
	})
})
