// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	talosupgrade "ichor.maesh.dev/hub/controllers/operation/kind/talos"
	"ichor.maesh.dev/hub/providers/script"
)

// backedUp says where the snapshots of the cluster are stored.
func (f *fleet) backedUp(ctx context.Context) {
	GinkgoHelper()
	cluster := &v1alpha1.TalosCluster{}
	cluster.Namespace, cluster.Name = f.namespace, "c"
	change(ctx, cluster, func(c *v1alpha1.TalosCluster) {
		c.Spec.EtcdBackup = &v1alpha1.EtcdBackupSpec{BucketURL: "s3://backups?region=r"}
	})
}

// snapshotSteps are the steps that take a snapshot, or the others.
func snapshotSteps(steps []kind.Step, snapshots bool) []kind.Step {
	return slices.DeleteFunc(steps, func(s kind.Step) bool { return (s.Name == v1alpha1.SnapshottingStep) != snapshots })
}

var _ = addVictim("kind talos, snapshot", victim{
	unit: "Snapshot", steps: snapshotSteps(talosupgrade.New(nil, nil, "", nil).Steps(), true), spec: upgrade,
	prepare: func(ctx context.Context, f *fleet, _ kind.Step) { f.backedUp(ctx) },
	calls: map[v1alpha1.OperationStep]findCall{
		v1alpha1.SnapshottingStep: func(f *fleet) (*script.Script, string, string) { return f.snapshots.Script, "Take", "snapshot" },
	},
	expect: func(f *fleet, step kind.Step, unknown bool) {
		GinkgoHelper()
		Expect(f.snapshots.Calls()).NotTo(BeEmpty())
		if !unknown {
			Expect(f.snapshots.Calls()).To(HaveLen(1))
		}
		expectNothingTwice(f, step, unknown)
	},
})

var _ = Describe("An upgrade of a cluster whose snapshots are stored", func() {
	It("takes one before the first control plane goes", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		f.backedUp(ctx)
		stop := f.snapshots.HangBefore("Take", "snapshot")
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(stop.Reached).Should(BeClosed())
		Expect(f.calls("PullImage")).To(HaveLen(4))
		Consistently(func() []string { return f.calls("InstallImage", "Reboot", "Drain") }, 300*time.Millisecond).Should(BeEmpty())
		stop.Release()
		Eventually(now(ctx, op), time.Minute).Should(beCompleted())
		Expect(f.snapshots.Calls()).To(Equal([]string{"Take snapshot"}))
		current, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		Expect(current.Status.CompletedStages).To(Equal([]string{"Pull", "Snapshot", "Upgrade"}))
		Expect(current.Status.Units).To(HaveLen(1))
		Expect(current.Status.Machines).To(HaveLen(4))
	})

	It("takes one before the first API server of a Kubernetes upgrade changes", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		f.runsKubernetes(ctx, oldKubernetes, newKubernetes)
		f.backedUp(ctx)
		stop := f.snapshots.HangBefore("Take", "snapshot")
		f.startHub()
		op := f.create(ctx, "up", upgradeKubernetes())
		Eventually(stop.Reached).Should(BeClosed())
		Expect(f.calls("PullImage")).To(HaveLen(3*5+1), "every image of every machine")
		Consistently(func() []string { return f.calls("ApplyConfig") }, 300*time.Millisecond).Should(BeEmpty())
		stop.Release()
		Eventually(now(ctx, op), time.Minute).Should(beCompleted())
		f.expectKubernetes(newKubernetes)
		Expect(f.snapshots.Calls()).To(Equal([]string{"Take snapshot"}))
		current, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		Expect(current.Status.CompletedStages[:3]).To(Equal([]string{"Check", "PrePull", "Snapshot"}))
	})

	It("stops where none can be stored, and goes on when somebody says so", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 0)
		f.backedUp(ctx)
		f.snapshots.FailNext("Take", "snapshot", fmt.Errorf("%w: the bucket is not there", kind.ErrNotStored))
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("Snapshotting failed: no snapshot of etcd is stored: the bucket is not there")))
		Expect(f.calls("InstallImage")).To(BeEmpty())
		retry(ctx, op)
		Eventually(now(ctx, op), time.Minute).Should(beCompleted())
		Expect(f.snapshots.Calls()).To(HaveLen(1))
	})
})
