// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"ichor.maesh.dev/hub/controllers/cluster"
	"ichor.maesh.dev/hub/controllers/observe"
	"ichor.maesh.dev/hub/hub/audit"
	"ichor.maesh.dev/hub/hub/fleet"
)

func TestProbesHaveADefault(t *testing.T) {
	g := NewWithT(t)
	g.Expect(orDefault(observe.Options{}, cluster.Probes)).To(Equal(observe.Options{
		Interval: 10 * time.Second, Longest: time.Minute, Jitter: 0.1, Timeout: 15 * time.Second, AtOnce: 64,
	}))
	own := observe.Options{Interval: time.Second, Timeout: time.Second, AtOnce: 1}
	g.Expect(orDefault(own, cluster.Probes)).To(Equal(own))
}

// Secrets of no cluster are none of the hub's business, and do not belong into its memory.
func TestCacheKeepsWhatBelongsToClusters(t *testing.T) {
	g := NewWithT(t)
	of := labels.Set{"cluster.x-k8s.io/cluster-name": "c1"}
	seen := 0
	for object, by := range cacheOptions("", "").ByObject {
		switch object.(type) {
		case *corev1.Secret, *coordinationv1.Lease:
			seen++
			g.Expect(by.Label.Matches(of)).To(BeTrue())
			g.Expect(by.Label.Matches(labels.Set{"app": "x"})).To(BeFalse())
		}
	}
	g.Expect(seen).To(Equal(2))
}

// Metrics leave this machine encrypted, and for those alone who may get them.
func TestMetricsAreForWhoMayGetThem(t *testing.T) {
	for address, open := range map[string]bool{
		"0": true, "127.0.0.1:8080": true, "[::1]:8080": true, "localhost:8080": true,
		":9443": false, "0.0.0.0:9443": false, "[::]:9443": false, "192.0.2.1:9443": false, "hub.example:9443": false,
	} {
		t.Run(address, func(t *testing.T) {
			g := NewWithT(t)
			options := metricsOptions(Options{MetricsBindAddress: address})
			g.Expect(options.BindAddress).To(Equal(address))
			g.Expect(options.SecureServing).NotTo(Equal(open))
			g.Expect(options.FilterProvider == nil).To(Equal(open))
		})
	}
}

// A replica is ready when it has read the fleet and the audit: it would answer neither before.
func TestReadinessWaitsForAllThatIsRead(t *testing.T) {
	g := NewWithT(t)
	b := &hubBackend{fleet: fleet.New(), audit: audit.NewLog()}
	failing := func() (names []string) {
		for _, check := range b.checks(func(context.Context) error { return nil }) {
			if check.Holds(t.Context()) != nil {
				names = append(names, check.Name)
			}
		}
		return names
	}
	g.Expect(failing()).To(Equal([]string{"fleet", "audit"}))
	b.fleet.MarkSynced()
	g.Expect(failing()).To(Equal([]string{"audit"}))
	b.audit.MarkSynced()
	g.Expect(failing()).To(BeEmpty())
}
