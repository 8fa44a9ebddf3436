// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/gate"
)

// anchors makes the TalosCluster and the Cluster of the operation, which has the lock or not.
func (g *guarding) anchors(t *testing.T, block string, holds bool) {
	t.Helper()
	gomega := NewWithT(t)
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}
	if block != "" {
		cluster.Annotations = map[string]string{v1alpha1.BlockMoveAnnotation: block}
	}
	gomega.Expect(g.Client.Create(t.Context(), cluster)).To(Succeed())
	g.scope.Cluster = cluster.DeepCopy()
	gomega.Expect(g.Client.Create(t.Context(), g.scope.CAPICluster)).To(Succeed())
	if !holds {
		g.scope.op.Status.Conditions = nil
	}
}

func (g *guarding) blockNow(t *testing.T) string {
	t.Helper()
	cluster := &v1alpha1.TalosCluster{}
	NewWithT(t).Expect(g.Client.Get(t.Context(), key("c1"), cluster)).To(Succeed())
	return cluster.Annotations[v1alpha1.BlockMoveAnnotation]
}

// clusterctl waits only for blocks that it has found before it paused the Cluster.
func TestATargetIsKeptFromTheMomentOnAtWhichAnOperationMayBegin(t *testing.T) {
	const own = "talosoperation/o1"
	paused := func(s *scope) { s.CAPICluster.Spec.Paused = ptr.To(true) }
	failed := func(s *scope) { s.op.Status.FailureReason = "x" }
	for name, row := range map[string]struct {
		block  string
		holds  bool
		change func(*scope)
		want   string
	}{
		"one that waits":                          {"", false, func(*scope) {}, own},
		"one that is kept already":                {own, false, func(*scope) {}, own},
		"one that another keeps":                  {"talosoperation/o2", false, func(*scope) {}, "talosoperation/o2"},
		"not where somebody moves it":             {own, false, paused, ""},
		"not where somebody is about to":          {"", false, paused, ""},
		"not for one that failed":                 {own, false, failed, ""},
		"until the lock is given back":            {own, true, paused, own},
		"by another, whatever becomes of this":    {"talosoperation/o2", false, failed, "talosoperation/o2"},
		"not for a kind that nobody knows":        {own, false, func(s *scope) { s.executor = nil }, ""},
		"not where the hub was asked to keep out": {own, false, func(s *scope) { s.CAPICluster.Annotations = map[string]string{v1alpha1.OptOutAnnotation: ""} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newStanding(t, time.Hour, gate.View{})
			g.anchors(t, row.block, row.holds)
			row.change(g.scope)
			NewWithT(t).Expect(g.anchor(t.Context(), g.scope)).To(Succeed())
			NewWithT(t).Expect(g.blockNow(t)).To(Equal(row.want))
		})
	}
}

// Who moves a Cluster pauses it first, and looks for the block then. Whatever the cache knows, nothing begins behind the pause.
func TestNothingBeginsOnATargetThatIsPausedMeanwhile(t *testing.T) {
	for name, paused := range map[string]bool{"paused": true, "not paused": false} {
		t.Run(name, func(t *testing.T) {
			gomega := NewWithT(t)
			g := newStanding(t, time.Hour, gate.View{})
			g.anchors(t, "", true)
			now := &clusterv1.Cluster{}
			gomega.Expect(g.Client.Get(t.Context(), key("c1"), now)).To(Succeed())
			now.Spec.Paused = ptr.To(paused)
			gomega.Expect(g.Client.Update(t.Context(), now)).To(Succeed())

			stop, err := g.shield(t.Context(), g.scope)
			gomega.Expect(err).NotTo(HaveOccurred())
			gomega.Expect(stop).To(Equal(paused))
			gomega.Expect(g.blockNow(t)).To(Equal("talosoperation/o1"))
			if paused {
				gomega.Expect(g.scope.why.reason).To(Equal(v1alpha1.ClusterPausedReason))
				stop, err = g.shield(t.Context(), g.scope)
				gomega.Expect(err).NotTo(HaveOccurred())
				gomega.Expect(stop).To(BeTrue(), "as often as it is asked")
			}
		})
	}
}
