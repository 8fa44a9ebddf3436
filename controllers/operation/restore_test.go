// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/etcdrestore"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/script"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

// stored stands in for what is stored of snapshots.
type stored struct{ *script.Script }

// Find implements kind.StoredSnapshots.
func (s *stored) Find(ctx context.Context, t target.Target, name string) (*v1alpha1.EtcdSnapshot, error) {
	found := &v1alpha1.EtcdSnapshot{}
	return found, admin.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: name}, found)
}

// Check implements kind.StoredSnapshots.
func (s *stored) Check(ctx context.Context, _ *v1alpha1.EtcdSnapshot) error {
	return s.Run(ctx, "Check", "snapshot", func() error { return nil })
}

// Read implements kind.StoredSnapshots.
func (s *stored) Read(_ context.Context, _ *v1alpha1.EtcdSnapshot, take func(io.Reader) error) error {
	return take(strings.NewReader("a snapshot"))
}

func newRestoreExecutor(f *fleet) *etcdrestore.Executor {
	e := etcdrestore.New(f.talos, f.kube, f.snapshots, f.stored)
	e.Absent = 200 * time.Millisecond
	return e
}

// revisionOfSnapshot is the revision of etcd that the snapshot of the tests holds.
const revisionOfSnapshot = 1234

// snapshotted makes of a target one that has a snapshot, and whose Kubernetes API is away while it has no etcd. What comes back with the
// snapshot is the record of another hub.
func (f *fleet) snapshotted(ctx context.Context) {
	GinkgoHelper()
	f.backedUp(ctx)
	hash := strings.Repeat("0", 64)
	Expect(admin.Create(ctx, &v1alpha1.EtcdSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "s1"},
		Spec: v1alpha1.EtcdSnapshotSpec{ClusterName: "c", Reason: "Manual", Contents: &v1alpha1.SnapshotContents{
			TakenTime: metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second)), SizeBytes: 544, Hash: hash, Revision: revisionOfSnapshot,
			Location: v1alpha1.SnapshotLocation{BucketURL: "s3://backups?region=r", Key: "k", SizeBytes: 544, Hash: hash},
			Machine:  "c-cp1", Members: 3, TalosVersion: oldVersion,
		}},
	})).To(Succeed())
	config := []byte("version: v1alpha1\nmachine:\n  type: controlplane\n")
	for name, address := range f.addresses {
		f.talos.Configure(address, talos.Config{Active: config, Persistent: config})
		if strings.HasPrefix(name, "cp") {
			f.kube.SetPod(kube.ComponentPod{Component: "kube-apiserver", Node: name, Ready: true})
		}
	}
	rebooted := f.talos.Rebooted
	var begun atomic.Bool
	f.talos.Rebooted = func(address string, now talos.Machine) {
		rebooted(address, now)
		if f.talos.Prepares(address) && !begun.Load() {
			f.kube.Silence(true)
		}
	}
	f.talos.Recovered = func(string, []byte) {
		begun.Store(true)
		f.kube.SetRecord(kube.Record{OwnerID: "another-hub", OperationID: "of-old", Stage: "Upgrade", Sequence: 1})
		f.kube.SetRevision(revisionOfSnapshot + 5)
		f.kube.Silence(false)
	}
}

func restore(safety v1alpha1.SafetySnapshot) v1alpha1.TalosOperationSpec {
	return v1alpha1.TalosOperationSpec{
		Kind: v1alpha1.EtcdRestoreKind, EtcdRestore: &v1alpha1.EtcdRestoreParameters{SnapshotName: "s1", SafetySnapshot: safety},
	}
}

// newRestoreFleet makes a target with a snapshot of it.
func newRestoreFleet(ctx context.Context, controlPlanes, workers int) *fleet {
	GinkgoHelper()
	f := newFleet(ctx, controlPlanes, workers)
	f.snapshotted(ctx)
	return f
}

// dies makes a machine answer no more, and its Node not ready.
func (f *fleet) dies(name string) {
	f.talos.Silence(f.addresses[name], true)
	f.kube.Change(name, func(n *kube.Node) { n.Ready = false })
}

// expectRestored holds what was done against what may be done: each control plane was wiped once, one was told to begin, once, and the record
// of the target is this hub's again.
func (f *fleet) expectRestored() {
	GinkgoHelper()
	wiped := f.calls("Reset")
	slices.Sort(wiped)
	var all []string
	for name := range f.addresses {
		if strings.HasPrefix(name, "cp") {
			all = append(all, "Reset "+name)
			Expect(f.talos.Wiped(f.addresses[name])).To(Equal(&talos.Reset{Partitions: []string{"EPHEMERAL"}}))
		}
	}
	slices.Sort(all)
	Expect(wiped).To(Equal(all))
	Expect(f.calls("BootstrapEtcd")).To(Equal([]string{"BootstrapEtcd cp1"}))
	Expect(f.kube.Record()).To(And(HaveField("OwnerID", ownerID), HaveField("Stage", "Clean"), HaveField("Sequence", BeNumerically(">=", 3))))
	Expect(f.kube.Stale()).NotTo(BeEmpty())
}

// givesUp makes the etcd of cp3 give up waiting before there is another one to join.
func (f *fleet) givesUp() {
	recovered := f.talos.Recovered
	f.talos.Hesitate(f.addresses["cp3"], 1<<30)
	f.talos.Recovered = func(address string, data []byte) {
		recovered(address, data)
		f.talos.GiveUp(f.addresses["cp3"])
		f.talos.Hesitate(f.addresses["cp3"], 0)
	}
}

// restoreVictim is a restore, killed at steps of one of its units.
func restoreVictim(unit string, prepare func(f *fleet), names ...v1alpha1.OperationStep) victim {
	var steps []kind.Step
	for _, step := range etcdrestore.New(nil, nil, nil, nil).Steps() {
		if slices.Contains(names, step.Name) {
			steps = append(steps, step)
		}
	}
	machine := strings.TrimPrefix(unit, "c-")
	at := func(call string) findCall {
		return func(f *fleet) (*script.Script, string, string) { return f.talos.Script, call, f.addresses[machine] }
	}
	return victim{
		unit: unit, steps: steps, spec: func() v1alpha1.TalosOperationSpec { return restore("Take") },
		prepare: func(ctx context.Context, f *fleet, _ kind.Step) {
			f.snapshotted(ctx)
			if prepare != nil {
				prepare(f)
			}
		},
		calls: map[v1alpha1.OperationStep]findCall{
			v1alpha1.CheckingStep: func(f *fleet) (*script.Script, string, string) { return f.stored.Script, "Check", "snapshot" },
			v1alpha1.SnapshottingStep: func(f *fleet) (*script.Script, string, string) {
				return f.snapshots.Script, "Take", "snapshot"
			},
			v1alpha1.ResettingStep: at("Reset"), v1alpha1.RecoveringStep: at("RecoverEtcd"), v1alpha1.BootstrappingStep: at("BootstrapEtcd"),
			v1alpha1.RebootingStep:  at("Reboot"),
			v1alpha1.RestartingStep: at("RestartService"),
			v1alpha1.CleaningStep:   func(f *fleet) (*script.Script, string, string) { return f.kube.Script, "RemoveStale", "" },
		},
		expect: func(f *fleet, step kind.Step, _ bool) {
			GinkgoHelper()
			f.expectRestored()
			if step.Name == v1alpha1.AwaitingStep {
				Expect(f.calls("RestartService")).To(BeEmpty())
				return
			}
			Expect(f.calls("RestartService")).To(Equal([]string{"RestartService w1"}))
		},
	}
}

var (
	_ = addVictim("kind etcd-restore, check", restoreVictim("Check", nil, "Checking"))
	_ = addVictim("kind etcd-restore, snapshot", restoreVictim("Snapshot", nil, "Snapshotting"))
	_ = addVictim("kind etcd-restore, wipe", restoreVictim("c-cp2", nil, "Resetting", "Preparing"))
	_ = addVictim("kind etcd-restore, chosen", restoreVictim("c-cp1", nil, "Recovering", "Bootstrapping", "Verifying"))
	_ = addVictim("kind etcd-restore, join", restoreVictim("c-cp3", func(f *fleet) { f.talos.Hesitate(f.addresses["cp3"], 20) }, "Joining"))
	_ = addVictim("kind etcd-restore, join after a reboot", restoreVictim("c-cp3", (*fleet).givesUp, "Rebooting"))
	_ = addVictim("kind etcd-restore, kubelet", restoreVictim("c-w1", nil, "Restarting"))
	_ = addVictim("kind etcd-restore, absent", restoreVictim("c-w1", func(f *fleet) { f.talos.Silence(f.addresses["w1"], true) }, "Awaiting"))
	_ = addVictim("kind etcd-restore, clean", restoreVictim("Clean", nil, "Cleaning"))
)

// unsafe is the operation that has a window of the target for itself.
func (f *fleet) unsafe(ctx context.Context) func() (string, error) {
	return func() (string, error) {
		cluster := f.cluster()
		err := admin.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)
		return cluster.Annotations[v1alpha1.UnsafeAnnotation], err
	}
}

var _ = Describe("A restore", func() {
	It("has all its steps in the kill matrix", func() {
		missing := map[v1alpha1.OperationStep]bool{}
		for _, step := range etcdrestore.New(nil, nil, nil, nil).Steps() {
			missing[step.Name] = true
		}
		for _, v := range victims {
			if v.spec().Kind == v1alpha1.EtcdRestoreKind {
				for _, step := range v.steps {
					delete(missing, step.Name)
				}
			}
		}
		Expect(missing).To(BeEmpty())
	})

	It("brings a cluster back that has lost its etcd and its Kubernetes API, and the next operation trusts it", func(ctx SpecContext) {
		f := newRestoreFleet(ctx, 3, 2)
		f.startHub()
		earlier := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, earlier)).Should(beCompleted())
		before := f.kube.Record().Sequence
		for _, name := range []string{"cp1", "cp2", "cp3"} {
			f.talos.LoseEtcd(f.addresses[name])
		}
		f.kube.Silence(true)
		op := f.create(ctx, "op", restore("None"))
		Eventually(now(ctx, op)).Should(beCompleted())
		f.expectRestored()
		Expect(f.snapshots.Calls()).To(BeEmpty())
		Expect(f.kube.Record().Sequence).To(BeNumerically(">", before), "what is on the target is not older than what was begun there")
		current, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		Expect(current.Status.CompletedStages).To(Equal([]string{"Check", "Wipe", "Recover", "Join", "Kubelets", "Clean", "Verify"}))
		Expect(unitOf(current, "Check").Message).To(ContainSubstring("revision 1234 of etcd"))
		Eventually(f.unsafe(ctx)).Should(BeEmpty())
		Eventually(f.movable).WithContext(ctx).Should(BeTrue())
		later := f.create(ctx, "again", reboot("c-w2"))
		Eventually(now(ctx, later)).Should(beCompleted())
	})

	It("touches nothing while a control plane does not answer, and goes on without one that somebody declares lost", func(ctx SpecContext) {
		f := newRestoreFleet(ctx, 3, 1)
		f.dies("cp3")
		f.startHub()
		op := f.create(ctx, "op", restore("Take"))
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "TargetReachable", And(
			ContainSubstring("control plane c-cp3 does not answer"), ContainSubstring("delete talosmachine c-cp3"))))
		Expect(f.calls()).To(BeEmpty())
		Expect(admin.Delete(ctx, &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c-cp3"}})).To(Succeed())
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Reset")).To(ConsistOf("Reset cp1", "Reset cp2"))
		Expect(f.snapshots.Calls()).To(Equal([]string{"Take snapshot"}))
	})

	It("wipes nobody where a control plane has gone away since the check, and goes on when it is back", func(ctx SpecContext) {
		f := newRestoreFleet(ctx, 3, 0)
		stop := f.snapshots.HangBefore("Take", "snapshot")
		f.startHub()
		op := f.create(ctx, "op", restore("Take"))
		Eventually(stop.Reached).Should(BeClosed())
		f.talos.Silence(f.addresses["cp3"], true)
		stop.Release()
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "TargetReachable", And(
			ContainSubstring("control plane c-cp3 does not answer"), ContainSubstring("delete talosmachine c-cp3"))))
		Consistently(func() []string { return f.calls() }).Should(BeEmpty())
		f.talos.Silence(f.addresses["cp3"], false)
		Eventually(now(ctx, op)).Should(beCompleted())
		f.expectRestored()
	})

	It("waits for a control plane that dies in the middle, and goes on without it once its TalosMachine is deleted", func(ctx SpecContext) {
		f := newRestoreFleet(ctx, 3, 1)
		recovered := f.talos.Recovered
		f.talos.Hesitate(f.addresses["cp3"], 1<<30)
		f.talos.Recovered = func(address string, data []byte) {
			recovered(address, data)
			f.dies("cp3")
		}
		f.startHub()
		op := f.create(ctx, "op", restore("Take"))
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "TargetReachable", And(
			ContainSubstring("control plane c-cp3 does not answer"), ContainSubstring("delete talosmachine c-cp3"))))
		Eventually(f.unsafe(ctx)).Should(Equal("op"))
		other := f.create(ctx, "other", reboot("c-w1"))
		Eventually(now(ctx, other)).Should(bePaused("ClusterLockHeld", Not(BeEmpty())))
		Expect(admin.Delete(ctx, &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c-cp3"}})).To(Succeed())
		Eventually(now(ctx, op)).Should(beCompleted())
		Eventually(now(ctx, other)).Should(beCompleted())
	})

	It("chooses another control plane for one that dies before etcd has begun", func(ctx SpecContext) {
		f := newRestoreFleet(ctx, 3, 0)
		stop := f.talos.HangBefore("RecoverEtcd", f.addresses["cp1"])
		f.startHub()
		op := f.create(ctx, "op", restore("Take"))
		Eventually(stop.Reached).Should(BeClosed())
		f.dies("cp1")
		Expect(admin.Delete(ctx, &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c-cp1"}})).To(Succeed())
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("BootstrapEtcd")).To(Equal([]string{"BootstrapEtcd cp2"}))
	})

	It("sends the snapshot once more where a boot has made the machine forget it (I1, I5)", func(ctx SpecContext) {
		f := newRestoreFleet(ctx, 1, 0)
		recovered, lost := f.talos.Recovered, false
		f.talos.Recovered = func(address string, data []byte) {
			if !lost {
				lost = true
				f.talos.LoseEtcd(address)
				f.talos.PowerCycle(address)
				return
			}
			recovered(address, data)
		}
		f.startHub()
		op := f.create(ctx, "op", restore("None"))
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("BootstrapEtcd")).To(Equal([]string{"BootstrapEtcd cp1", "BootstrapEtcd cp1"}))
		Expect(f.calls("Reset")).To(Equal([]string{"Reset cp1"}))
	})

	It("goes on where everybody has waited for too long, and their etcd does not wait any more", func(ctx SpecContext) {
		f := newRestoreFleet(ctx, 3, 0)
		stop := f.talos.HangBefore("RecoverEtcd", f.addresses["cp1"])
		f.startHub()
		op := f.create(ctx, "op", restore("None"))
		Eventually(stop.Reached).Should(BeClosed())
		for _, name := range []string{"cp1", "cp2", "cp3"} {
			f.talos.GiveUp(f.addresses[name])
		}
		stop.Release()
		Eventually(now(ctx, op)).Should(beCompleted())
		f.expectRestored()
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot cp2", "Reboot cp3"}))
	})

	It("fails where etcd came up with something else", func(ctx SpecContext) {
		f := newRestoreFleet(ctx, 1, 0)
		recovered := f.talos.Recovered
		f.talos.Recovered = func(address string, data []byte) {
			recovered(address, data)
			f.kube.SetRevision(7)
		}
		f.startHub()
		op := f.create(ctx, "op", restore("None"))
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("etcd is at revision 7, and the snapshot holds 1234")))
		next := f.create(ctx, "re", reboot("c-cp1"))
		Eventually(now(ctx, next)).Should(bePaused("ClusterLockHeld", Not(BeEmpty())))
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "DeletionBlocked", ContainSubstring("ichor operation resume op")))
		f.kube.SetRevision(revisionOfSnapshot)
		retry(ctx, op)
		Eventually(isGone(ctx, op)).Should(BeTrue(), "past the window it lets itself be deleted")
		Eventually(f.unsafe(ctx)).Should(BeEmpty())
		Eventually(now(ctx, next)).Should(beCompleted())
	})

	It("that is deleted in the middle goes on until the cluster is whole, and before that goes at once", func(ctx SpecContext) {
		f := newRestoreFleet(ctx, 3, 0)
		stop := f.talos.HangBefore("RecoverEtcd", f.addresses["cp1"])
		f.startHub()
		op := f.create(ctx, "op", restore("Take"))
		Eventually(stop.Reached).Should(BeClosed())
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "DeletionBlocked", ContainSubstring("half-way through stage Recover")))
		stop.Release()
		Eventually(isGone(ctx, op)).Should(BeTrue())
		Expect(f.calls("BootstrapEtcd")).To(HaveLen(1))
		Eventually(f.unsafe(ctx)).Should(BeEmpty())

		By("nothing has happened yet")
		hold := f.stored.HangBefore("Check", "snapshot")
		early := f.create(ctx, "early", restore("None"))
		Eventually(hold.Reached).Should(BeClosed(), func() string {
			current, err := now(ctx, early)()
			return fmt.Sprintf("%+v %v", current.Status, err)
		})
		Expect(admin.Delete(ctx, early)).To(Succeed())
		Eventually(isGone(ctx, early)).Should(BeTrue())
		Expect(f.calls("Reset")).To(HaveLen(3))
	})

	It("is refused where its snapshot cannot be used, and fails before it has touched anything where that shows later (I3)", func(ctx SpecContext) {
		f := newRestoreFleet(ctx, 3, 0)
		f.startHub()
		spec := restore("None")
		spec.EtcdRestore.SnapshotName = "s2"
		refused := f.create(ctx, "refused", spec)
		Eventually(now(ctx, refused)).Should(bePaused("Refused", ContainSubstring(`SnapshotUsable: spec.etcdRestore.snapshotName is "s2"`)))
		Expect(admin.Delete(ctx, refused)).To(Succeed())
		Eventually(isGone(ctx, refused)).Should(BeTrue())
		f.stored.FailNext("Check", "snapshot", fmt.Errorf("%w: it is cut", kind.ErrUnusable))
		op := f.create(ctx, "op", restore("Take"))
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("Checking failed: the snapshot cannot be used: it is cut")))
		Expect(f.calls()).To(BeEmpty())
		Expect(f.kube.Calls()).To(BeEmpty())
		Expect(f.snapshots.Calls()).To(BeEmpty())
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(isGone(ctx, op)).Should(BeTrue())
	})

	It("waits for an etcd that it is to keep, and says how to go on without", func(ctx SpecContext) {
		f := newRestoreFleet(ctx, 3, 0)
		for _, name := range []string{"cp1", "cp2", "cp3"} {
			f.talos.Change(f.addresses[name], func(_ *talos.Machine, etcd *talos.Etcd) { etcd.Leader = 0 })
		}
		f.startHub()
		op := f.create(ctx, "op", restore("Take"))
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "EtcdHealthy", ContainSubstring("--no-safety-snapshot")))
		Expect(f.calls()).To(BeEmpty())
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(isGone(ctx, op)).Should(BeTrue())
	})
})
