// SPDX-License-Identifier: Apache-2.0

package deep_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/observe"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/journal"
)

// managed is a hub with a deep cluster of its own.
type managed struct {
	*harness.Harness

	name    string
	cluster *sim.Cluster
}

// A hub in tests leaves processors that run a control plane to it, and waits for one that is slow.
var (
	calmProbes = observe.Options{Interval: time.Second, Timeout: 30 * time.Second, AtOnce: 32}
	calmLooks  = observe.Options{Interval: 250 * time.Millisecond, Timeout: 30 * time.Second, AtOnce: 32}
)

// restartAfter is less than in the product: simulated static pods are back in the second in which their files were written, so that each of
// them has to be restarted once more.
const restartAfter = 5 * time.Second

// manage starts a hub and a deep cluster, and imports the cluster.
func manage(ctx context.Context, t *testing.T, spec sim.ClusterSpec) *managed {
	t.Helper()
	g := NewWithT(t)
	o := options(t, "", spec)
	before := time.Now()
	h, err := harness.Start(ctx, harness.Options{
		Clusters: o.Clusters, Speed: o.Speed, KubeAPIServer: o.KubeAPIServer, Probes: calmProbes, Looks: calmLooks, RestartAfter: restartAfter,
	})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if t.Failed() {
			tellLogs(t, h.FleetDir())
		}
		NewWithT(t).Expect(h.Stop()).To(Succeed())
	})
	g.Expect(h.Import(ctx, spec.Name)).To(Succeed())
	t.Logf("hub and cluster are there after %s", time.Since(before).Round(time.Millisecond))
	return &managed{Harness: h, name: spec.Name, cluster: h.Fleet.Cluster(spec.Name)}
}

// object makes a key of a name in the namespace of the hub's objects.
func object(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: harness.Namespace, Name: name}
}

// backUp says that the cluster's snapshots are stored on the disk of the hub.
func (m *managed) backUp(ctx context.Context, t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	target := &v1alpha1.TalosCluster{}
	g.Expect(m.Client.Get(ctx, object(m.name), target)).To(Succeed())
	before := target.DeepCopy()
	target.Spec.EtcdBackup = &v1alpha1.EtcdBackupSpec{BucketURL: "file://" + m.SnapshotDir()}
	g.Expect(m.Client.Patch(ctx, target, client.MergeFrom(before))).To(Succeed())
}

// takeSnapshot takes a snapshot by the hub, and returns it when it is stored.
func (m *managed) takeSnapshot(ctx context.Context, t *testing.T, name string) *v1alpha1.EtcdSnapshot {
	t.Helper()
	g := NewWithT(t)
	_, _, err := m.Service.TakeSnapshot(ctx, object(m.name), name)
	g.Expect(err).NotTo(HaveOccurred())
	taken := &v1alpha1.EtcdSnapshot{}
	g.Eventually(ctx, func() (*v1alpha1.SnapshotContents, error) {
		err := m.Client.Get(ctx, object(name), taken)
		return taken.Spec.Contents, err
	}).WithPolling(poll).Should(Not(BeNil()), func() string { return "snapshot " + name + " is stored" })
	return taken
}

// asked are the nodes of the cluster that got a call, in order.
func (m *managed) asked(method string) []string {
	var names []string
	for _, entry := range m.Journal().Entries(journal.Filter{Cluster: m.name, Method: method}) {
		names = append(names, entry.Node)
	}
	return names
}

// storm kills the hub, and starts another one, each time that an operation comes to a step where it has not been in that stage.
type storm struct {
	done chan struct{}
	err  error

	mu    sync.Mutex
	kills []string
}

// storm begins to kill. It ends with the operation, or with the test.
func (m *managed) storm(ctx context.Context, t *testing.T, op *v1alpha1.TalosOperation) *storm {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	watcher, err := m.Client.Watch(ctx, &v1alpha1.TalosOperationList{}, client.InNamespace(op.Namespace), client.MatchingFields{"metadata.name": op.Name})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	s := &storm{done: make(chan struct{})}
	t.Cleanup(func() { cancel(); <-s.done })
	go func() {
		defer close(s.done)
		defer watcher.Stop()
		for event := range watcher.ResultChan() {
			current, ok := event.Object.(*v1alpha1.TalosOperation)
			if !ok || event.Type == watch.Deleted || harness.Completed().Holds(current) {
				return
			}
			if !s.isNew(current) {
				continue
			}
			if s.err = errors.Join(m.KillHub(), m.StartHub()); s.err != nil {
				return
			}
		}
	}()
	return s
}

// isNew says whether an operation is at a step of a stage, or at a place in it, where it has not been before, and remembers that.
func (s *storm) isNew(op *v1alpha1.TalosOperation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.kills)
	for _, u := range slices.Concat(op.Status.Machines, op.Status.Units) {
		at := u.Stage + "/" + string(u.Step)
		if u.Progress != nil && u.Progress.Cursor != "" {
			at += " behind " + u.Progress.Cursor
		}
		if u.Step != "" && !slices.Contains(s.kills, at) {
			s.kills = append(s.kills, at)
		}
	}
	return len(s.kills) > before
}

// at are the steps where the hub was killed, in order.
func (s *storm) at() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kills)
}

// over waits for the end of an operation that is stormed, and returns the operation and the steps where the hub was killed.
func (m *managed) over(ctx context.Context, t *testing.T, op *v1alpha1.TalosOperation, s *storm) (*v1alpha1.TalosOperation, []string) {
	t.Helper()
	g := NewWithT(t)
	before := time.Now()
	done, err := m.WaitFor(ctx, op, harness.Completed())
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(ctx, s.done).Should(BeClosed())
	g.Expect(s.err).NotTo(HaveOccurred())
	t.Logf("over after another %s; the hub was killed at %v", time.Since(before).Round(time.Millisecond), s.at())
	return done, s.at()
}
