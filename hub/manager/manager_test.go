// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"ichor.maesh.dev/hub/controllers/observe"
)

func TestProbesHaveADefault(t *testing.T) {
	g := NewWithT(t)
	g.Expect(orDefault(observe.Options{})).To(Equal(observe.Options{
		Interval: 10 * time.Second, Longest: time.Minute, Jitter: 0.1, Timeout: 15 * time.Second, AtOnce: 64,
	}))
	own := observe.Options{Interval: time.Second, Timeout: time.Second, AtOnce: 1}
	g.Expect(orDefault(own)).To(Equal(own))
}

// Secrets of no cluster are none of the hub's business, and do not belong into its memory.
func TestCacheKeepsWhatBelongsToClusters(t *testing.T) {
	g := NewWithT(t)
	of := labels.Set{"cluster.x-k8s.io/cluster-name": "c1"}
	seen := 0
	for object, by := range cacheOptions().ByObject {
		switch object.(type) {
		case *corev1.Secret, *coordinationv1.Lease:
			seen++
			g.Expect(by.Label.Matches(of)).To(BeTrue())
			g.Expect(by.Label.Matches(labels.Set{"app": "x"})).To(BeFalse())
		}
	}
	g.Expect(seen).To(Equal(2))
}
