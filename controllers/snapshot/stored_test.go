// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/snapshot"
	"ichor.maesh.dev/hub/providers/target"
)

// gives back what is stored, as a restore reads it.
func (w *world) gives() (snapshot.Stored, target.Target) {
	return snapshot.Stored{Client: admin, APIReader: admin, Storage: w.storage, Clock: clock.RealClock{}},
		target.Target{NamespacedName: types.NamespacedName{Namespace: w.namespace, Name: "c"}}
}

// takenNow is a snapshot that was taken and can be found.
func (w *world) takenNow(ctx context.Context, name string) *v1alpha1.EtcdSnapshot {
	GinkgoHelper()
	w.ask(ctx, name)
	Eventually(w.get(ctx, name)).Should(taken)
	stored, of := w.gives()
	found, err := stored.Find(ctx, of, name)
	Expect(err).NotTo(HaveOccurred())
	return found
}

func (w *world) fileOf(s *v1alpha1.EtcdSnapshot) string {
	return filepath.Join(w.dir, s.Spec.Contents.Location.Key)
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// read is all that a restore would send.
func (w *world) read(ctx context.Context, s *v1alpha1.EtcdSnapshot) ([]byte, error) {
	stored, _ := w.gives()
	var data []byte
	err := stored.Read(ctx, s, func(from io.Reader) (err error) {
		data, err = io.ReadAll(from)
		return err
	})
	return data, err
}

// sealed makes the snapshots of a world be encrypted.
func (w *world) sealed(ctx context.Context) *age.X25519Identity {
	GinkgoHelper()
	identity, err := age.GenerateX25519Identity()
	Expect(err).NotTo(HaveOccurred())
	Expect(admin.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "key"}, StringData: map[string]string{"identity": identity.String()},
	})).To(Succeed())
	w.configure(ctx, func(backup *v1alpha1.EtcdBackupSpec) { backup.EncryptionKeySecretName = "key" })
	return identity
}

// holds changes what the Secret with the key holds.
func (w *world) holds(ctx context.Context, data map[string]string) {
	GinkgoHelper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "key"}}
	Expect(admin.Delete(ctx, secret)).To(Succeed())
	Expect(admin.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "key"}, StringData: data})).To(Succeed())
}

// documented is the object that the docs show to bring a snapshot in with.
func documented() *v1alpha1.EtcdSnapshot {
	GinkgoHelper()
	const begin = "```yaml\napiVersion: ichor.maesh.dev/v1alpha1\nkind: EtcdSnapshot\n"
	_, text, found := strings.Cut(string(readFile("../../docs/snapshots.md")), begin)
	Expect(found).To(BeTrue())
	text, _, _ = strings.Cut(text, "```")
	made := &v1alpha1.EtcdSnapshot{}
	Expect(yaml.UnmarshalStrict([]byte(text), made)).To(Succeed())
	return made
}

// encrypted is a file that age has encrypted.
func encrypted(data []byte, recipient age.Recipient) []byte {
	GinkgoHelper()
	var file bytes.Buffer
	into, err := age.Encrypt(&file, recipient)
	Expect(err).NotTo(HaveOccurred())
	_, err = into.Write(data)
	Expect(err).NotTo(HaveOccurred())
	Expect(into.Close()).To(Succeed())
	return file.Bytes()
}

var _ = Describe("What is stored of a snapshot", func() {
	It("is given back as it was sent, and checked", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.startHub()
		s := w.takenNow(ctx, "one")
		stored, of := w.gives()
		Expect(stored.Check(ctx, s)).To(Succeed())
		Expect(w.read(ctx, s)).To(Equal(w.data))

		_, err := stored.Find(ctx, of, "two")
		Expect(err).To(And(MatchError(kind.ErrUnusable), MatchError(ContainSubstring("EtcdSnapshot two is not there"))))
		of.Name = "d"
		_, err = stored.Find(ctx, of, "one")
		Expect(err).To(And(MatchError(kind.ErrUnusable), MatchError(ContainSubstring("is of cluster c"))))
	})

	It("is decrypted with the key that it is encrypted for, and with no other", func(ctx SpecContext) {
		w := newWorld(ctx)
		identity := w.sealed(ctx)
		w.startHub()
		s := w.takenNow(ctx, "one")
		Expect(readFile(w.fileOf(s))).NotTo(Equal(w.data))
		stored, _ := w.gives()
		Expect(stored.Check(ctx, s)).To(Succeed())
		Expect(w.read(ctx, s)).To(Equal(w.data))

		w.holds(ctx, map[string]string{"recipient": identity.Recipient().String()})
		Expect(stored.Check(ctx, s)).To(And(MatchError(kind.ErrUnusable), MatchError(ContainSubstring("has no private key"))))
		other, err := age.GenerateX25519Identity()
		Expect(err).NotTo(HaveOccurred())
		w.holds(ctx, map[string]string{"identity": other.String()})
		Expect(stored.Check(ctx, s)).To(And(MatchError(kind.ErrUnusable), MatchError(ContainSubstring("it is encrypted for "+identity.Recipient().String()))))
	})

	DescribeTable("is not given back to its end where it is not what was stored (I3)", func(ctx SpecContext, sealed bool, change func([]byte) []byte, says string) {
		w := newWorld(ctx)
		if sealed {
			w.sealed(ctx)
		}
		w.startHub()
		s := w.takenNow(ctx, "one")
		before := readFile(w.fileOf(s))
		Expect(os.WriteFile(w.fileOf(s), change(bytes.Clone(before)), 0o600)).To(Succeed())
		stored, _ := w.gives()
		Expect(stored.Check(ctx, s)).To(And(MatchError(kind.ErrUnusable), MatchError(ContainSubstring(says))))
		_, err := w.read(ctx, s)
		Expect(err).To(MatchError(kind.ErrUnusable))
		Expect(len(err.Error())).To(BeNumerically("<", 200), "there is room in a condition for all of it: %v", err)
	},
		Entry("a byte is another", false, func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, "is not what was stored"),
		Entry("cut", false, func(b []byte) []byte { return b[:len(b)/2] }, "is not what was stored"),
		Entry("without its hash", false, func(b []byte) []byte { return b[:len(b)-32] }, "is not what was stored"),
		Entry("empty", false, func([]byte) []byte { return nil }, "is not what was stored"),
		Entry("encrypted, a byte is another", true, func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, "cannot be decrypted"),
		Entry("encrypted, cut", true, func(b []byte) []byte { return b[:len(b)/2] }, "cannot be decrypted"),
		Entry("encrypted, another file", true, func([]byte) []byte { return []byte(strings.Repeat("x", 1000)) }, "cannot be decrypted"),
	)

	It("is missed where it is gone", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.startHub()
		s := w.takenNow(ctx, "one")
		Expect(os.Remove(w.fileOf(s))).To(Succeed())
		stored, _ := w.gives()
		Expect(stored.Check(ctx, s)).To(And(MatchError(kind.ErrUnusable), MatchError(ContainSubstring("is not stored any more"))))
	})

	It("is read by its structure alone where it is a raw copy", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.startHub()
		s := w.takenNow(ctx, "one")
		plain := w.data[:len(w.data)-32]
		Expect(os.WriteFile(w.fileOf(s), plain, 0o600)).To(Succeed())
		s.Spec.Contents.SizeBytes, s.Spec.Contents.Hash = int64(len(plain)), sumOf(plain)
		Expect(s.Spec.Contents.RawCopy()).To(BeTrue())
		stored, _ := w.gives()
		Expect(stored.Check(ctx, s)).To(Succeed())
		s.Spec.Contents.Revision++
		Expect(stored.Check(ctx, s)).To(And(MatchError(kind.ErrUnusable), MatchError(ContainSubstring("it holds revision"))))
	})

	DescribeTable("is restored from where it was brought in as the docs say", func(ctx SpecContext, sealed, raw bool) {
		w := newWorld(ctx)
		if raw {
			w.data = w.data[:len(w.data)-sha256.Size]
		}
		made, file := documented(), w.data
		contents := made.Spec.Contents
		if sealed {
			identity := w.sealed(ctx)
			file = encrypted(w.data, identity.Recipient())
			contents.Encryption = &v1alpha1.SnapshotEncryption{Recipient: identity.Recipient().String(), KeySecretName: "key"}
		}
		made.Namespace, made.Spec.ClusterName = w.namespace, "c"
		contents.Location.BucketURL, contents.Location.CredentialsSecretName = "file://"+w.dir, ""
		contents.Location.SizeBytes, contents.Location.Hash = int64(len(file)), sumOf(file)
		contents.SizeBytes, contents.Hash, contents.Revision = int64(len(w.data)), sumOf(w.data), w.revision
		Expect(contents.RawCopy()).To(Equal(raw))
		Expect(os.MkdirAll(filepath.Dir(w.fileOf(made)), 0o700)).To(Succeed())
		Expect(os.WriteFile(w.fileOf(made), file, 0o600)).To(Succeed())

		w.startHub()
		Expect(admin.Create(ctx, made)).To(Succeed())
		Eventually(w.get(ctx, made.Name)).Should(taken)
		stored, of := w.gives()
		found, err := stored.Find(ctx, of, made.Name)
		Expect(err).NotTo(HaveOccurred())
		Expect(stored.Check(ctx, found)).To(Succeed())
		Expect(w.read(ctx, found)).To(Equal(w.data))

		Expect(admin.Delete(ctx, found)).To(Succeed())
		Eventually(gone(w.get(ctx, made.Name))).Should(BeTrue())
		Expect(w.stored()).To(Equal([]string{contents.Location.Key}), "it was not the hub's")
	},
		Entry("from talosctl", false, false),
		Entry("encrypted", true, false),
		Entry("a raw copy", false, true),
	)

	DescribeTable("stays with its object as long as an operation restores it", func(ctx SpecContext, policy v1alpha1.SnapshotDeletionPolicy, says string, left int) {
		w := newWorld(ctx)
		w.startHub()
		s := w.takenNow(ctx, "one")
		op := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "r"}, Spec: v1alpha1.TalosOperationSpec{
			ClusterName: "c", Kind: v1alpha1.EtcdRestoreKind, EtcdRestore: &v1alpha1.EtcdRestoreParameters{SnapshotName: "one", SafetySnapshot: "None"},
		}}
		Expect(admin.Create(ctx, op)).To(Succeed())
		before := s.DeepCopy()
		s.Spec.DeletionPolicy = policy
		Expect(admin.Patch(ctx, s, client.MergeFrom(before))).To(Succeed())
		Expect(admin.Delete(ctx, s)).To(Succeed())
		Eventually(w.get(ctx, "one")).Should(is(metav1.ConditionFalse, "Deleting", says))
		Expect(w.stored()).To(HaveLen(1))
		stored, of := w.gives()
		Expect(stored.Find(ctx, of, "one")).NotTo(BeNil(), "a restore goes on with it")
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(gone(w.get(ctx, "one")), "30s").Should(BeTrue())
		Expect(w.stored()).To(HaveLen(left))
	},
		Entry("and both go then", v1alpha1.SnapshotDelete, "TalosOperation r restores it: what is stored is deleted when that is over", 0),
		Entry("and the object goes then, where what is stored is retained", v1alpha1.SnapshotRetain,
			"TalosOperation r restores it: it goes when that is over, and what is stored stays", 1),
	)
})
