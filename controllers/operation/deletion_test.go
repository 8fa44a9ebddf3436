// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
)

// A control plane that Cluster API deletes goes before whatever has not begun; a worker concerns nobody.
func TestDeletionUnderWay(t *testing.T) {
	controlPlane := func(m *clusterv1.Machine) { m.Labels[clusterv1.MachineControlPlaneLabel] = "" }
	deleted := func(m *clusterv1.Machine) { m.Finalizers = []string{"machine.cluster.x-k8s.io"} }
	for name, row := range map[string]struct {
		changes []func(*clusterv1.Machine)
		holds   bool
		adopted bool
		waits   bool
	}{
		"a control plane":                    {[]func(*clusterv1.Machine){controlPlane, deleted}, false, true, true},
		"a worker":                           {[]func(*clusterv1.Machine){deleted}, false, true, false},
		"nobody":                             {[]func(*clusterv1.Machine){controlPlane}, false, true, false},
		"while its lock is this operation's": {[]func(*clusterv1.Machine){controlPlane, deleted}, true, true, false},
		"of a cluster that the hub alone manages": {[]func(*clusterv1.Machine){controlPlane, deleted}, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			gomega := NewWithT(t)
			g := newGuarding(t, nil)
			g.Locks = &lock.Locks{Client: g.Client, Reader: g.Client, Clock: clocktesting.NewFakePassiveClock(time.Now())}
			machine := &clusterv1.Machine{}
			gomega.Expect(g.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "m1"}, machine)).To(Succeed())
			for _, change := range row.changes {
				change(machine)
			}
			gomega.Expect(g.Client.Update(t.Context(), machine)).To(Succeed())
			if len(machine.Finalizers) > 0 {
				gomega.Expect(g.Client.Delete(t.Context(), machine)).To(Succeed())
			}
			if row.holds {
				_, err := g.Locks.Acquire(t.Context(), g.scope.clusterKey(), metav1.OwnerReference{APIVersion: "v1", Kind: "Cluster", Name: "c1", UID: "1"}, lock.Operation(g.scope.op), nil)
				gomega.Expect(err).NotTo(HaveOccurred())
			}
			if !row.adopted {
				g.scope.CAPICluster.Spec = clusterv1.ClusterSpec{}
			}
			why, err := g.deletionUnderWay(t.Context(), g.scope)
			gomega.Expect(err).NotTo(HaveOccurred())
			if !row.waits {
				gomega.Expect(why).To(BeNil())
				return
			}
			gomega.Expect(why.reason).To(Equal(v1alpha1.ClusterLockHeldReason))
			gomega.Expect(why.message).To(ContainSubstring(`Machine "m1", a control plane, is being deleted and goes first`))
		})
	}
}

// The lock of a machine is free when nothing of that name is left.
func TestTheLockOfAMachineThatIsGone(t *testing.T) {
	for name, row := range map[string]struct {
		holder string
		free   bool
	}{
		"a TalosMachine": {"c1-w-9", false},
		"a Machine":      {"m1", false},
		"neither":        {"m9", true},
	} {
		t.Run(name, func(t *testing.T) {
			gomega := NewWithT(t)
			g := newGuarding(t, nil)
			machine := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-w-9"}}
			gomega.Expect(g.Client.Create(t.Context(), machine)).To(Succeed())
			free, err := g.MayTakeOver(t.Context(), lock.Machine(client.ObjectKey{Namespace: "default", Name: row.holder}))
			gomega.Expect(err).NotTo(HaveOccurred())
			gomega.Expect(free).To(Equal(row.free))
		})
	}
}
