// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/providers/capi"
	"ichor.maesh.dev/hub/test/framework"
)

// The API server merges what each owner applies, so the hub's condition and those of Cluster API do not come in each other's way. The hub
// has the rights that it ships with.
func TestOneConditionOfMany(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // It starts an API server.
	defer cancel()
	plane, err := framework.StartPlane(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(plane.Stop()).To(Succeed()) })
	admin, err := client.New(plane.Config, client.Options{Scheme: scheme.New()})
	g.Expect(err).NotTo(HaveOccurred())
	hub, err := client.New(plane.HubConfig, client.Options{Scheme: scheme.New()})
	g.Expect(err).NotTo(HaveOccurred())
	clusters := capi.Clusters{Client: hub, Live: hub}

	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}
	cluster.Spec.InfrastructureRef = capi.Infrastructure("c1")
	g.Expect(admin.Create(ctx, cluster)).To(Succeed())
	theirs := metav1.Condition{Type: "RemoteConnectionProbe", Status: "True", Reason: "ProbeSucceeded", LastTransitionTime: metav1.Now()}
	set := func(conditions ...metav1.Condition) {
		before := cluster.DeepCopy()
		cluster.Status.Conditions = conditions
		g.Expect(admin.Status().Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
	}
	types := func() (all []string) {
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
		for _, condition := range cluster.Status.Conditions {
			all = append(all, condition.Type+" "+string(condition.Status))
		}
		return all
	}
	ours := metav1.Condition{Type: "ichor.maesh.dev/TalosAvailable", Status: "True", Reason: "Available"}

	set(theirs)
	g.Expect(clusters.Report(ctx, cluster, ours)).To(Succeed())
	g.Expect(types()).To(ConsistOf("RemoteConnectionProbe True", "ichor.maesh.dev/TalosAvailable True"))
	since := meta.FindStatusCondition(cluster.Status.Conditions, ours.Type).LastTransitionTime

	theirs.Status = "False" // As Cluster API writes: all conditions that it has read, with its own changed.
	set(theirs, *meta.FindStatusCondition(cluster.Status.Conditions, ours.Type))
	version := cluster.ResourceVersion
	g.Expect(clusters.Report(ctx, cluster, ours)).To(Succeed())
	g.Expect(types()).To(ConsistOf("RemoteConnectionProbe False", "ichor.maesh.dev/TalosAvailable True"))
	g.Expect(cluster.ResourceVersion).To(Equal(version), "nothing was written")

	ours.Message = "another"
	g.Expect(clusters.Report(ctx, cluster, ours)).To(Succeed())
	g.Expect(types()).To(ConsistOf("RemoteConnectionProbe False", "ichor.maesh.dev/TalosAvailable True"))
	g.Expect(meta.FindStatusCondition(cluster.Status.Conditions, ours.Type).LastTransitionTime).To(Equal(since))

	g.Expect(clusters.Withdraw(ctx, cluster, ours.Type)).To(Succeed())
	g.Expect(types()).To(ConsistOf("RemoteConnectionProbe False"))

	g.Expect(clusters.HoldUpgrade(ctx, client.ObjectKeyFromObject(cluster), "a")).To(Succeed())
	g.Expect(clusters.ReleaseUpgrade(ctx, client.ObjectKeyFromObject(cluster), "b")).To(Succeed())
	types()
	g.Expect(cluster.Annotations).To(HaveKeyWithValue("before-upgrade.hook.cluster.cluster.x-k8s.io/ichor", "a"))
	g.Expect(clusters.ReleaseUpgrade(ctx, client.ObjectKeyFromObject(cluster), "a")).To(Succeed())
	types()
	g.Expect(cluster.Annotations).To(BeEmpty())
	g.Expect(clusters.HoldUpgrade(ctx, client.ObjectKey{Namespace: "default", Name: "gone"}, "a")).To(Succeed())
}
