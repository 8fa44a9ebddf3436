// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"maps"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Where no hub comes back, all goes that any has left, and nothing else.
func TestLetGo(t *testing.T) {
	w := newWorld(t, func(c *clusterv1.Cluster, talos *v1alpha1.TalosCluster) {
		c.Annotations = map[string]string{upgrade: owner, "before-upgrade.hook.cluster.cluster.x-k8s.io/theirs": ""}
		c.Status.Conditions = []metav1.Condition{{Type: "ichor.maesh.dev/TalosAvailable", Status: "True", Reason: "Available"}}
		talos.Annotations = map[string]string{block: "talosoperation/o1", "x": ""}
	})
	w.operationHolds()
	w.g.Expect(w.reconcile(w.hub("e1"))).To(Succeed())
	const skip = "cluster.x-k8s.io/skip-remediation"
	for name, whose := range map[string]string{"m1": owner, "m3": ""} {
		machine := w.machine(name)
		machine.Annotations[skip] = whose
		w.g.Expect(w.Update(t.Context(), machine)).To(Succeed())
	}
	w.g.Expect(w.held()).To(HaveLen(2))
	for kill := range 3 { // Doing it again finishes it.
		w.writes = kill
		w.g.Expect(LetGo(t.Context(), w, "")).To(MatchError(errKilled))
	}
	w.writes = -1
	w.g.Expect(LetGo(t.Context(), w, "default")).To(Succeed())
	w.g.Expect(w.held()).To(BeEmpty())
	w.g.Expect(w.applied).To(ContainElement(""), "the condition is withdrawn")
	w.g.Expect(w.machine("m1").Annotations).NotTo(HaveKey(skip))
	w.g.Expect(w.machine("m3").Annotations).To(HaveKey(skip), "somebody else's")
	cluster, talos := &clusterv1.Cluster{}, &v1alpha1.TalosCluster{}
	w.g.Expect(w.Get(t.Context(), c1, cluster)).To(Succeed())
	w.g.Expect(w.Get(t.Context(), c1, talos)).To(Succeed())
	w.g.Expect(slices.Collect(maps.Keys(cluster.Annotations))).To(ConsistOf("before-upgrade.hook.cluster.cluster.x-k8s.io/theirs"))
	w.g.Expect(slices.Collect(maps.Keys(talos.Annotations))).To(ConsistOf("x"))
}
