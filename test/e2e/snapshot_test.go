// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/snapshot/etcdfile"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
)

const snapshotMethod = "MachineService/EtcdSnapshot"

// backUp says where the snapshots of a cluster are stored.
func (w *world) backUp(ctx context.Context, cluster string, backup v1alpha1.EtcdBackupSpec) {
	GinkgoHelper()
	object := &v1alpha1.TalosCluster{}
	Expect(w.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: cluster}, object)).To(Succeed())
	before := object.DeepCopy()
	object.Spec.EtcdBackup = &backup
	Expect(w.client.Patch(ctx, object, client.MergeFrom(before))).To(Succeed())
}

func (w *world) snapshot(ctx context.Context, name string) *v1alpha1.EtcdSnapshot {
	GinkgoHelper()
	snapshot := &v1alpha1.EtcdSnapshot{}
	Expect(w.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, snapshot)).To(Succeed())
	return snapshot
}

// snapshotDir is where a standalone hub lets snapshots be stored.
func (w *world) snapshotDir() string { return filepath.Join(w.HubDir(), "snapshots") }

// files are the files below a directory.
func files(dir string) []string {
	GinkgoHelper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // It went meanwhile, or has never been.
		}
		if err == nil && !entry.IsDir() {
			found = append(found, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	Expect(err).NotTo(HaveOccurred())
	return found
}

// sumOf checks a snapshot as a restore does, and returns its hash.
func sumOf(from io.Reader) (etcdfile.Facts, string) {
	GinkgoHelper()
	data, err := io.ReadAll(from)
	Expect(err).NotTo(HaveOccurred())
	checker := etcdfile.New()
	_, err = checker.Write(data)
	Expect(err).NotTo(HaveOccurred())
	facts, err := checker.Finish()
	Expect(err).NotTo(HaveOccurred())
	sum := sha256.Sum256(data)
	return facts, hex.EncodeToString(sum[:])
}

func condition(snapshot *v1alpha1.EtcdSnapshot) metav1.Condition {
	if found := meta.FindStatusCondition(snapshot.Status.Conditions, v1alpha1.SnapshotReadyCondition); found != nil {
		return *found
	}
	return metav1.Condition{}
}

var _ = Describe("Snapshots of etcd", func() {
	It("are taken to a directory, shown, and deleted with what is stored", func(ctx SpecContext) {
		w := install(ctx, three)
		result := w.ichor(ctx, 1, "snapshot", "take", "--cluster", "three")
		Expect(result.Err).To(And(ContainSubstring("SnapshotStorage: spec.etcdBackup.bucketURL of TalosCluster three is not set"), ContainSubstring("kubectl -n default patch taloscluster three")))
		w.backUp(ctx, "three", v1alpha1.EtcdBackupSpec{BucketURL: "file://" + w.snapshotDir()})
		result = w.ichor(ctx, 0, "snapshot", "take", "--cluster", "three", "--name", "first", "--follow")
		Expect(result.Out).To(MatchRegexp(`Snapshot first is stored: [0-9.]+ KiB, revision 1[0-9]{3} of etcd\.`))
		Expect(w.ichor(ctx, 0, "snapshot", "take", "--cluster", "three", "--name", "first").Out).To(ContainSubstring("was asked for before"))

		snapshot := w.snapshot(ctx, "first")
		contents := snapshot.Spec.Contents
		stored := files(w.snapshotDir())
		Expect(stored).To(Equal([]string{contents.Location.Key}))
		file, err := os.Open(filepath.Join(w.snapshotDir(), stored[0]))
		Expect(err).NotTo(HaveOccurred())
		defer file.Close() //nolint:errcheck // Only read from.
		facts, sum := sumOf(file)
		Expect(contents.Hash).To(Equal(sum))
		Expect(contents.SizeBytes).To(Equal(facts.Size))
		Expect(contents.Revision).To(Equal(facts.Revision))
		Expect(contents.Members).To(BeEquivalentTo(3))
		Expect(contents.TalosVersion).To(Equal("v1.13.6"))
		Expect(contents.EtcdVersion).To(Equal("3.6.4"))
		Expect(contents.Keys).To(And(HaveField("KubernetesCA", HaveLen(64)), HaveField("ServiceAccount", HaveLen(64)), HaveField("Encryption", HaveLen(1))))
		Expect(contents.Machine).NotTo(Equal("three-"+w.leaders()["three"]), "the leader has most to do")
		Expect(w.Fleet.Journal().Entries(journal.Filter{Method: snapshotMethod})).To(HaveLen(1))

		Expect(w.ichor(ctx, 0, "snapshot", "list").Out).To(MatchRegexp(`first +three +Manual +True +[0-9]+s ago`))
		Expect(w.ichor(ctx, 0, "snapshot", "get", "first").Out).To(And(ContainSubstring(contents.Hash), ContainSubstring("secretbox key")))
		Expect(w.ichor(ctx, 0, "snapshot", "delete", "first", "--yes").Out).To(ContainSubstring("Snapshot first"))
		Eventually(func() []string { return files(w.snapshotDir()) }).WithContext(ctx).Should(BeEmpty())
		Eventually(func() string { return w.ichor(ctx, 0, "snapshot", "list", "-o", "name").Out }).WithContext(ctx).Should(BeEmpty())

		w.ichor(ctx, 0, "snapshot", "take", "--cluster", "three", "--name", "kept", "--follow")
		w.ichor(ctx, 0, "cluster", "forget", "three", "--yes")
		Eventually(func() error {
			return w.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "kept"}, &v1alpha1.EtcdSnapshot{})
		}).WithContext(ctx).ShouldNot(Succeed())
		Expect(files(w.snapshotDir())).To(HaveLen(1), "to forget a cluster deletes no backup of it")
	}, SpecTimeout(2*time.Minute))

	It("leave nothing half after kill -9 in the middle, and are taken again", func(ctx SpecContext) {
		w := install(ctx, one)
		w.backUp(ctx, "one", v1alpha1.EtcdBackupSpec{BucketURL: "file://" + w.snapshotDir()})
		id, err := w.Fleet.Inject(fault.Fault{Name: fault.EtcdSnapshot, Cluster: "one", Times: 1, Params: map[string]string{fault.ParamMode: "hang"}})
		Expect(err).NotTo(HaveOccurred())
		w.ichor(ctx, 0, "snapshot", "take", "--cluster", "one", "--name", "cut")
		Eventually(func() []string { return files(w.snapshotDir()) }).WithContext(ctx).Should(HaveLen(1), "something is under way")
		Expect(files(w.snapshotDir())).NotTo(ContainElement(HaveSuffix(".db")), "and is not there under its name")
		Expect(w.KillHub()).To(Succeed())
		w.Fleet.Clear(id)
		Expect(files(w.snapshotDir())).NotTo(ContainElement(HaveSuffix(".db")))

		Expect(w.StartHub(ctx)).To(Succeed())
		Eventually(func() *v1alpha1.SnapshotContents { return w.snapshot(ctx, "cut").Spec.Contents }).WithContext(ctx).ShouldNot(BeNil())
		snapshot := w.snapshot(ctx, "cut")
		Eventually(func() []string { return files(w.snapshotDir()) }).WithContext(ctx).Should(Equal([]string{snapshot.Spec.Contents.Location.Key}), "what the dead hub left is gone")
		Eventually(func() metav1.Condition { return condition(w.snapshot(ctx, "cut")) }).WithContext(ctx).Should(HaveField("Status", metav1.ConditionTrue))
	}, SpecTimeout(2*time.Minute))

	It("that arrive damaged are not stored, and are taken again (I3)", func(ctx SpecContext) {
		w := install(ctx, one)
		w.backUp(ctx, "one", v1alpha1.EtcdBackupSpec{BucketURL: "file://" + w.snapshotDir()})
		id, err := w.Fleet.Inject(fault.Fault{Name: fault.EtcdSnapshot, Cluster: "one", Params: map[string]string{fault.ParamMode: "corrupt"}})
		Expect(err).NotTo(HaveOccurred())
		w.ichor(ctx, 0, "snapshot", "take", "--cluster", "one", "--name", "bad")
		Eventually(func() metav1.Condition { return condition(w.snapshot(ctx, "bad")) }).WithContext(ctx).Should(And(
			HaveField("Status", metav1.ConditionFalse), HaveField("Reason", "Damaged"),
			HaveField("Message", ContainSubstring("its data is not what the SHA-256 at its end was made of"))))
		Expect(files(w.snapshotDir())).To(BeEmpty())
		Expect(w.ichor(ctx, 0, "snapshot", "list").Out).To(ContainSubstring("the snapshot is damaged"))
		w.Fleet.Clear(id)
		Eventually(func() *v1alpha1.SnapshotContents { return w.snapshot(ctx, "bad").Spec.Contents }).WithContext(ctx).ShouldNot(BeNil())
	}, SpecTimeout(2*time.Minute))

	It("are encrypted, and stored on a server that speaks S3; no secret is told", func(ctx SpecContext) {
		w := install(ctx, one)
		store := s3mem.New()
		Expect(store.CreateBucket("backups")).To(Succeed())
		server := httptest.NewServer(gofakes3.New(store).Server())
		DeferCleanup(server.Close)
		identity, err := age.GenerateX25519Identity()
		Expect(err).NotTo(HaveOccurred())
		const secret = "very-secret-access-key"
		for name, data := range map[string]map[string]string{
			"s3":  {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": secret},
			"age": {"identity": identity.String()},
		} {
			Expect(w.client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, StringData: data})).To(Succeed())
		}
		backup := v1alpha1.EtcdBackupSpec{
			BucketURL:             "s3://backups/fleet?region=eu-1&use_path_style=true&endpoint=" + server.URL,
			CredentialsSecretName: "missing", EncryptionKeySecretName: "age",
		}
		w.backUp(ctx, "one", backup)
		w.ichor(ctx, 0, "snapshot", "take", "--cluster", "one", "--name", "sealed")
		Eventually(func() metav1.Condition { return condition(w.snapshot(ctx, "sealed")) }).WithContext(ctx).Should(And(
			HaveField("Reason", "StorageNotAvailable"), HaveField("Message", ContainSubstring(`spec.etcdBackup.credentialsSecretName: reading Secret missing: secrets "missing" not found`))))
		backup.CredentialsSecretName = "s3"
		w.backUp(ctx, "one", backup)
		Eventually(func() *v1alpha1.SnapshotContents { return w.snapshot(ctx, "sealed").Spec.Contents }).WithContext(ctx).ShouldNot(BeNil())

		contents := w.snapshot(ctx, "sealed").Spec.Contents
		Expect(contents.Encryption).To(Equal(&v1alpha1.SnapshotEncryption{Recipient: identity.Recipient().String(), KeySecretName: "age"}))
		object, err := store.GetObject("backups", "fleet/"+contents.Location.Key, nil)
		Expect(err).NotTo(HaveOccurred())
		defer object.Contents.Close() //nolint:errcheck // Only read from.
		Expect(object.Size).To(Equal(contents.Location.SizeBytes))
		opened, err := age.Decrypt(object.Contents, identity)
		Expect(err).NotTo(HaveOccurred())
		facts, sum := sumOf(opened)
		Expect([]any{contents.Hash, contents.SizeBytes, contents.Revision}).To(Equal([]any{sum, facts.Size, facts.Revision}))

		log, err := os.ReadFile(w.HubLog())
		Expect(err).NotTo(HaveOccurred())
		told := string(log) + w.ichor(ctx, 0, "snapshot", "get", "sealed", "-o", "yaml").Out + w.ichor(ctx, 0, "audit", "-o", "yaml").Out
		Expect(told).NotTo(Or(ContainSubstring(secret), ContainSubstring(identity.String())))
		Expect(told).To(ContainSubstring("etcd snapshot is stored"))

		w.ichor(ctx, 0, "snapshot", "delete", "sealed", "--yes")
		Eventually(func() ([]*gofakes3.Content, error) {
			list, err := store.ListBucket("backups", nil, gofakes3.ListBucketPage{})
			if err != nil {
				return nil, err
			}
			return list.Contents, nil
		}).WithContext(ctx).Should(BeEmpty())
	}, SpecTimeout(2*time.Minute))

	It("are taken before an upgrade goes on", func(ctx SpecContext) {
		w := install(ctx, one)
		w.backUp(ctx, "one", v1alpha1.EtcdBackupSpec{BucketURL: "file://" + w.snapshotDir()})
		Eventually(func() string { return w.ichor(ctx, 0, "operation", "plan", "talos", "v1.14.1", "--cluster", "one").Out }).WithContext(ctx).Should(ContainSubstring("Snapshot"))
		w.ichor(ctx, 0, "upgrade", "talos", "v1.14.1", "--cluster", "one", "--follow", "--yes")
		op, err := w.operation(ctx, "one")
		Expect(err).NotTo(HaveOccurred())
		Expect(op.Status.CompletedStages).To(Equal([]string{"Pull", "Snapshot", "Upgrade"}))
		snapshot := w.snapshot(ctx, op.Name+"-"+op.Annotations[v1alpha1.OperationIDAnnotation][:8])
		Expect(snapshot.Spec.Reason).To(Equal(v1alpha1.SnapshotUpgrade))
		Expect(snapshot.Spec.Contents.TalosVersion).To(Equal("v1.13.6"))
		taken := w.Fleet.Journal().Entries(journal.Filter{Method: snapshotMethod})
		installed := w.Fleet.Journal().Entries(journal.Filter{Method: invariant.InstallMethod})
		Expect(taken).To(HaveLen(1))
		Expect(taken[0].Sequence).To(BeNumerically("<", installed[0].Sequence), "before anything is installed")
	}, SpecTimeout(2*time.Minute))

	It("are taken by the schedule, and only so many are kept", func(ctx SpecContext) {
		w := install(ctx, one)
		w.backUp(ctx, "one", v1alpha1.EtcdBackupSpec{BucketURL: "file://" + w.snapshotDir(), Schedule: "0 0 1 1 *", TimeZone: "Asia/Tokyo", Keep: 1})
		var scheduled string
		Eventually(func() string {
			list := &v1alpha1.EtcdSnapshotList{}
			Expect(w.client.List(ctx, list)).To(Succeed())
			if len(list.Items) == 1 && list.Items[0].Spec.Contents != nil {
				scheduled = list.Items[0].Name
			}
			return scheduled
		}).WithContext(ctx).Should(MatchRegexp(`^one-[0-9]{4}1231-1500$`), "the last run before now was missed")
		Eventually(func() string { return w.ichor(ctx, 0, "cluster", "get", "one").Out }).WithContext(ctx).Should(MatchRegexp(`EtcdBackedUp +True`))
		Expect(files(w.snapshotDir())).To(HaveLen(1))
	}, SpecTimeout(2*time.Minute))
})
