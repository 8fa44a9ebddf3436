// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/snapshot"
	"ichor.maesh.dev/hub/providers/blob"
	"ichor.maesh.dev/hub/providers/blob/drivers"
	"ichor.maesh.dev/hub/providers/progress"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

var _ = Describe("A snapshot that is asked for", func() {
	It("is taken from a member that does not lead, and read back; what is in it does not change", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.startHub()
		w.ask(ctx, "one")
		Eventually(w.get(ctx, "one")).Should(taken)
		s, err := w.get(ctx, "one")()
		Expect(err).NotTo(HaveOccurred())
		contents := s.Spec.Contents
		Expect(contents).To(And(
			HaveField("Machine", "c-cp2"), HaveField("Revision", w.revision), HaveField("SizeBytes", BeEquivalentTo(len(w.data))),
			HaveField("Members", BeEquivalentTo(3)), HaveField("EtcdVersion", "3.6.4"), HaveField("TalosVersion", "v1.14.1"), HaveField("Encryption", BeNil())))
		Expect(contents.TakenTime.UTC()).To(Equal(start))
		Expect(contents.Keys.Encryption).To(HaveLen(1))
		Expect(w.stored()).To(Equal([]string{contents.Location.Key}))
		Expect(readFile(filepath.Join(w.dir, contents.Location.Key))).To(Equal(w.data))
		Expect(s.OwnerReferences).To(ConsistOf(HaveField("Kind", "Cluster")))
		Expect(s.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "c"))

		before := s.DeepCopy()
		s.Spec.Contents.Revision++
		Expect(admin.Patch(ctx, s, client.MergeFrom(before))).To(MatchError(ContainSubstring("the contents of a snapshot do not change")))
	})

	It("is taken again, from the beginning, after the hub was killed in the middle of the upload", func(ctx SpecContext) {
		w := newWorld(ctx)
		stop := w.talos.HangBefore("EtcdSnapshot", "10.0.0.2")
		first := w.startHub()
		w.ask(ctx, "one")
		Eventually(stop.Reached).Should(BeClosed())
		Eventually(w.stored).Should(HaveLen(1), "half of it")
		first.kill()
		Eventually(w.stored).Should(BeEmpty())
		Expect(w.get(ctx, "one")()).To(HaveField("Spec.Contents", BeNil()))

		w.startHub()
		Eventually(w.get(ctx, "one")).Should(taken)
		Expect(w.stored()).To(HaveLen(1))
	})

	It("takes away what a process left that had no time to", func(ctx SpecContext) {
		w := newWorld(ctx)
		s := w.ask(ctx, "one")
		dir := filepath.Join(w.dir, w.namespace, "c", "one-"+string(bytes.ReplaceAll([]byte(s.UID), []byte("-"), nil)[:12]))
		Expect(os.MkdirAll(dir, 0o700)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(dir, "fileblob123"), w.data[:100], 0o600)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(dir, "00000000-0000-0000-0000-000000000000.db"), w.data, 0o600)).To(Succeed())
		w.startHub()
		Eventually(w.get(ctx, "one")).Should(taken)
		current, err := w.get(ctx, "one")()
		Expect(err).NotTo(HaveOccurred())
		Eventually(w.stored).Should(Equal([]string{current.Spec.Contents.Location.Key}))
	})

	It("is not stored where it arrives damaged, and is taken from another member then (I3)", func(ctx SpecContext) {
		w := newWorld(ctx)
		bad := bytes.Clone(w.data)
		bad[len(bad)/3] ^= 1
		w.talos.Store("10.0.0.2", bad)
		w.startHub()
		w.ask(ctx, "one")
		Eventually(w.get(ctx, "one")).Should(is(metav1.ConditionFalse, "Damaged", ContainSubstring("c-cp2: the snapshot is damaged: its data is not what the SHA-256 at its end was made of")))
		Expect(w.stored()).To(BeEmpty())
		Consistently(w.get(ctx, "one"), 300*time.Millisecond).Should(HaveField("Status.Attempts", BeEquivalentTo(1)), "not at once")
		w.later(10 * time.Second)
		Eventually(w.get(ctx, "one")).Should(taken)
		Expect(w.get(ctx, "one")()).To(HaveField("Spec.Contents.Machine", "c-cp3"))
	})

	It("is refused where the storage gives back something else", func(ctx SpecContext) {
		w := newWorld(ctx)
		store := &lying{Backend: s3mem.New()}
		Expect(store.CreateBucket("backups")).To(Succeed())
		server := httptest.NewServer(gofakes3.New(store).Server())
		DeferCleanup(server.Close)
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "s3"},
			StringData: map[string]string{"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "hunter2"},
		}
		Expect(admin.Create(ctx, secret)).To(Succeed())
		w.configure(ctx, func(b *v1alpha1.EtcdBackupSpec) {
			b.BucketURL, b.CredentialsSecretName = "s3://backups?region=r&use_path_style=true&endpoint="+server.URL, "s3"
		})
		w.storage = blob.Opener{Drivers: drivers.All(false)}
		w.startHub()
		w.ask(ctx, "one")
		Eventually(w.get(ctx, "one")).Should(is(metav1.ConditionFalse, "Damaged", ContainSubstring("what the storage gives back is not what was stored")))
		Expect(w.get(ctx, "one")()).To(HaveField("Spec.Contents", BeNil()))
		list, err := store.ListBucket("backups", nil, gofakes3.ListBucketPage{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Contents).To(BeEmpty())
	})

	It("waits for etcd, and says what keeps it", func(ctx SpecContext) {
		w := newWorld(ctx)
		for i := range 3 {
			w.talos.Change(fmt.Sprintf("10.0.0.%d", i+1), func(_ *talos.Machine, etcd *talos.Etcd) { etcd.Leader = 0 })
		}
		w.talos.Silence("10.0.0.1", true)
		w.startHub()
		w.ask(ctx, "one")
		Eventually(w.get(ctx, "one")).Should(is(metav1.ConditionFalse, "EtcdNotAvailable",
			"no etcd member can send a snapshot: c-cp1: no answer; c-cp2: its member knows no leader; c-cp3: its member knows no leader"))
	})

	It("ends a stream that brings nothing", func(ctx SpecContext) {
		w := newWorld(ctx)
		stop := w.talos.HangBefore("EtcdSnapshot", "10.0.0.2")
		w.startHub()
		w.ask(ctx, "one")
		Eventually(stop.Reached).Should(BeClosed())
		w.later(time.Minute)
		Eventually(w.get(ctx, "one")).Should(is(metav1.ConditionFalse, "EtcdNotAvailable", "c-cp2: nothing came for 1m0s"))
		Expect(w.stored()).To(BeEmpty())
	})

	It("says that nobody said where it is stored", func(ctx SpecContext) {
		w := newWorld(ctx)
		cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "c"}}
		Expect(admin.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"etcdBackup":null}}`)))).To(Succeed())
		w.startHub()
		w.ask(ctx, "one")
		Eventually(w.get(ctx, "one")).Should(is(metav1.ConditionFalse, "NotConfigured", "TalosCluster c does not say where snapshots are stored: spec.etcdBackup.bucketURL is not set"))
	})
})

// later makes time pass, again until something has seen it.
func (w *world) later(d time.Duration) {
	GinkgoHelper()
	w.clock.Step(d)
	// A requeue waits by the real clock: something else has to wake the reconciler.
	list := &v1alpha1.EtcdSnapshotList{}
	Expect(admin.List(context.Background(), list, client.InNamespace(w.namespace))).To(Succeed())
	for i := range list.Items {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"test/now":%q}}}`, w.clock.Now().Format(time.RFC3339))
		Expect(admin.Patch(context.Background(), &list.Items[i], client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
	}
}

// lying is a storage that gives back another byte than it was given.
type lying struct{ gofakes3.Backend }

// GetObject implements gofakes3.Backend.
func (l *lying) GetObject(bucket, name string, part *gofakes3.ObjectRangeRequest) (*gofakes3.Object, error) {
	object, err := l.Backend.GetObject(bucket, name, part)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(object.Contents)
	if err != nil || len(data) == 0 {
		return nil, errors.Join(err, errors.New("there is nothing to lie about"))
	}
	data[len(data)/2] ^= 1
	object.Contents = io.NopCloser(bytes.NewReader(data))
	return object, nil
}

var _ = Describe("A snapshot that is deleted", func() {
	It("takes what is stored with it", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.startHub()
		s := w.ask(ctx, "one")
		Eventually(w.get(ctx, "one")).Should(taken)
		Expect(admin.Delete(ctx, s)).To(Succeed())
		Eventually(gone(w.get(ctx, "one"))).Should(BeTrue())
		Expect(w.stored()).To(BeEmpty())
	})

	It("leaves what is stored where that is to be retained", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.startHub()
		s := w.ask(ctx, "one")
		Eventually(w.get(ctx, "one")).Should(taken)
		Expect(admin.Patch(ctx, s, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"deletionPolicy":"Retain"}}`)))).To(Succeed())
		Expect(admin.Delete(ctx, s)).To(Succeed())
		Eventually(gone(w.get(ctx, "one"))).Should(BeTrue())
		Expect(w.stored()).To(HaveLen(1))
	})

	It("leaves what is stored where it goes with its cluster", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.startHub()
		s := w.ask(ctx, "one")
		Eventually(w.get(ctx, "one")).Should(taken)
		Expect(admin.Delete(ctx, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "c"}})).To(Succeed())
		_ = admin.Delete(ctx, s) // The garbage collector may have been faster.
		Eventually(gone(w.get(ctx, "one"))).Should(BeTrue())
		Expect(w.stored()).To(HaveLen(1))
	})

	It("says why it does not go, and goes when what is stored is let alone", func(ctx SpecContext) {
		w := newWorld(ctx)
		first := w.startHub()
		s := w.ask(ctx, "one")
		Eventually(w.get(ctx, "one")).Should(taken)
		first.kill()
		w.storage = blob.Opener{Directory: w.dir + "-other"}
		w.startHub()
		Expect(admin.Delete(ctx, s)).To(Succeed())
		Eventually(w.get(ctx, "one")).Should(is(metav1.ConditionFalse, "Deleting", And(
			HavePrefix("what is stored cannot be deleted: bucketURL: "), HaveSuffix("; to leave it there: ichor snapshot delete one --retain"))))
		Expect(admin.Patch(ctx, s, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"deletionPolicy":"Retain"}}`)))).To(Succeed())
		Eventually(gone(w.get(ctx, "one"))).Should(BeTrue())
		Expect(w.stored()).To(HaveLen(1))
	})

	It("ends the attempt to take it", func(ctx SpecContext) {
		w := newWorld(ctx)
		stop := w.talos.HangBefore("EtcdSnapshot", "10.0.0.2")
		w.startHub()
		s := w.ask(ctx, "one")
		Eventually(stop.Reached).Should(BeClosed())
		Expect(admin.Delete(ctx, s)).To(Succeed())
		Eventually(gone(w.get(ctx, "one"))).Should(BeTrue())
		Expect(w.stored()).To(BeEmpty())
	})
})

func gone(get func() (*v1alpha1.EtcdSnapshot, error)) func() bool {
	return func() bool {
		_, err := get()
		return apierrors.IsNotFound(err)
	}
}

var _ = Describe("A schedule", func() {
	It("makes up for missed runs once, with two hubs at once, and keeps only so many", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.configure(ctx, func(b *v1alpha1.EtcdBackupSpec) { b.Schedule, b.Keep = "0 2 * * *", 2 })
		w.startHub()
		w.startHub()
		Eventually(w.names(ctx)).Should(Equal([]string{"c-20261129-0200"}))
		Eventually(w.get(ctx, "c-20261129-0200")).Should(taken)
		Expect(w.get(ctx, "c-20261129-0200")()).To(And(HaveField("Spec.Reason", v1alpha1.SnapshotScheduled), HaveField("Spec.ScheduledTime.Time", BeTemporally("==", start.Add(-10*time.Hour)))))

		w.ask(ctx, "mine")
		Eventually(w.get(ctx, "mine")).Should(taken)
		for _, name := range []string{"c-20261130-0200", "c-20261201-0200"} {
			w.later(24 * time.Hour)
			Eventually(w.names(ctx)).Should(ContainElement(name))
			Eventually(w.get(ctx, name)).Should(taken)
		}
		w.later(3 * 24 * time.Hour) // Three runs are missed.
		Eventually(w.names(ctx)).Should(ContainElement("c-20261204-0200"))
		Eventually(w.get(ctx, "c-20261204-0200")).Should(taken)
		Eventually(w.names(ctx)).Should(Equal([]string{"c-20261201-0200", "c-20261204-0200", "mine"}), "two of the schedule, and what somebody asked for")
		Eventually(w.stored).Should(HaveLen(3))
	})

	It("asks nothing of a cluster that was stopped on purpose", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.configure(ctx, func(b *v1alpha1.EtcdBackupSpec) { b.Schedule, b.Keep = "0 2 * * *", 2 })
		w.annotate(ctx, map[string]any{v1alpha1.StoppedByAnnotation: w.namespace + "/stop"})
		w.startHub()
		w.later(24 * time.Hour)
		Consistently(w.names(ctx), 300*time.Millisecond).Should(BeEmpty())
		w.annotate(ctx, map[string]any{v1alpha1.StoppedByAnnotation: nil})
		Eventually(w.names(ctx)).Should(Equal([]string{"c-20261130-0200"}), "the last of the missed runs")
	})

	It("never deletes the last good one, however old it is", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.configure(ctx, func(b *v1alpha1.EtcdBackupSpec) { b.Schedule, b.Keep = "0 2 * * *", 1 })
		w.startHub()
		Eventually(w.get(ctx, "c-20261129-0200")).Should(taken)
		for i := range 3 {
			w.talos.Silence(fmt.Sprintf("10.0.0.%d", i+1), true)
		}
		w.later(24 * time.Hour)
		Eventually(w.get(ctx, "c-20261130-0200")).Should(is(metav1.ConditionFalse, "EtcdNotAvailable", ContainSubstring("no answer")))
		w.later(10 * 24 * time.Hour)
		Consistently(w.names(ctx), 300*time.Millisecond).Should(Equal([]string{"c-20261129-0200", "c-20261130-0200"}), "one waits, and no other is asked for")
		Expect(w.stored()).To(HaveLen(1))
	})
})

var _ = Describe("An operation that takes a snapshot", func() {
	It("gets one, however often it asks, and hears what keeps it", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.talos.FailNext("EtcdSnapshot", "10.0.0.2", errors.New("etcd is busy"))
		w.startHub()
		o := snapshot.ForOperations{Client: admin, Clock: clock.RealClock{}, Reason: v1alpha1.SnapshotUpgrade, Interval: 20 * time.Millisecond}
		heard := make(chan string, 1000)
		listening := progress.With(ctx, func(words string) { heard <- words })
		t := target.Target{NamespacedName: types.NamespacedName{Namespace: w.namespace, Name: "c"}}
		allowed := func(context.Context) error { return nil }
		done := make(chan error, 1)
		go func() { done <- o.Take(listening, t, allowed, "up-11111111") }()
		Eventually(heard).Should(Receive(Equal("snapshot up-11111111: c-cp2: the stream broke: etcd is busy")))
		w.later(10 * time.Second)
		Eventually(done).Should(Receive(Succeed()))
		Expect(o.Take(ctx, t, allowed, "up-11111111")).To(Succeed())
		Expect(w.names(ctx)()).To(Equal([]string{"up-11111111"}))
		Expect(w.get(ctx, "up-11111111")()).To(HaveField("Spec.Reason", v1alpha1.SnapshotUpgrade))

		other := target.Target{NamespacedName: types.NamespacedName{Namespace: w.namespace, Name: "other"}}
		Expect(o.Take(ctx, other, allowed, "up-11111111")).To(MatchError(kind.ErrNotStored))
		Expect(o.Take(ctx, t, func(context.Context) error { return errors.New("another leads") }, "new")).To(MatchError(ContainSubstring("another leads")))
		Expect(w.names(ctx)()).To(HaveLen(1), "who may not, asks for nothing")
	})
})
