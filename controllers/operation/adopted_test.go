// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

const (
	upgradeHook      = "before-upgrade.hook.cluster.cluster.x-k8s.io/ichor"
	theirUpgradeHook = "before-upgrade.hook.cluster.cluster.x-k8s.io/theirs"
)

// adopted makes the target one of Cluster API's providers, with a hook of somebody's.
func (f *fleet) adopted(ctx context.Context) {
	GinkgoHelper()
	change(ctx, f.capiCluster(), func(c *clusterv1.Cluster) {
		c.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "TalosControlPlane", Name: "c"}
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, theirUpgradeHook, "")
	})
}

func (f *fleet) capiCluster() *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c"}}
}

// upgradeHeld is for whom the topology of the target waits with a new version.
func (f *fleet) upgradeHeld(ctx context.Context) func() (string, error) {
	return func() (string, error) {
		cluster := f.capiCluster()
		err := admin.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)
		Expect(cluster.Annotations).To(HaveKey(theirUpgradeHook), "hooks of others stay")
		return cluster.Annotations[upgradeHook], err
	}
}

var _ = Describe("The topology of an adopted cluster", func() {
	It("waits with a new version while an operation holds the lock, and no longer when the hub is killed meanwhile", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		f.adopted(ctx)
		stop := f.talos.HangBefore("Reboot", f.addresses["cp1"])
		first := f.startHub()
		op := f.create(ctx, "re", reboot("c-cp1"))
		Eventually(stop.Reached).Should(BeClosed())
		Expect(f.upgradeHeld(ctx)()).To(Equal("ichor-controller/op/" + f.namespace + "/re"))
		Expect(f.movable(ctx)).To(BeFalse())
		first.kill()
		Expect(f.upgradeHeld(ctx)()).NotTo(BeEmpty())

		f.startHub()
		Eventually(now(ctx, op)).Should(And(beCompleted(), haveCondition("LockHeld", metav1.ConditionFalse, v1alpha1.LockReleasedReason, BeAssignableToTypeOf(""))))
		Expect(f.upgradeHeld(ctx)()).To(BeEmpty())
		Expect(f.movable(ctx)).To(BeTrue())
	})

	It("does not wait for an operation that stands, or is deleted", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		f.adopted(ctx)
		stop := f.talos.HangBefore("Reboot", f.addresses["cp1"])
		f.startHub()
		op := f.create(ctx, "re", reboot("c-cp1"))
		Eventually(stop.Reached).Should(BeClosed())
		pauseCluster(ctx, f, true)
		stop.Release()
		Eventually(f.upgradeHeld(ctx)).Should(BeEmpty(), "it settles, and gives the lock back")
		Expect(admin.Delete(ctx, op)).To(Succeed())
		pauseCluster(ctx, f, false)
		Eventually(func() bool { return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(op), op)) }).Should(BeTrue())
		Expect(f.upgradeHeld(ctx)()).To(BeEmpty())
	})

	It("does not wait where the hub was asked to keep out", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		f.adopted(ctx)
		change(ctx, f.capiCluster(), func(c *clusterv1.Cluster) { metav1.SetMetaDataAnnotation(&c.ObjectMeta, v1alpha1.OptOutAnnotation, "") })
		f.startHub()
		op := f.create(ctx, "re", reboot("c-cp1"))
		Eventually(now(ctx, op)).Should(bePaused(v1alpha1.ClusterPausedReason, ContainSubstring("ichor.maesh.dev/opt-out")))
		Expect(f.upgradeHeld(ctx)()).To(BeEmpty())
		Expect(f.calls("Reboot")).To(BeEmpty())

		change(ctx, f.capiCluster(), func(c *clusterv1.Cluster) { delete(c.Annotations, v1alpha1.OptOutAnnotation) })
		Eventually(now(ctx, op)).Should(beCompleted())
	})
})
