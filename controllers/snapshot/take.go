// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/snapshot/etcdfile"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/blob"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/talos/fingerprint"
)

const (
	// askTimeout bounds a question to one machine.
	askTimeout = 10 * time.Second

	// stallTimeout ends a stream that brings nothing: it is not slow, it is dead.
	stallTimeout = time.Minute

	// takeTimeout bounds a whole attempt. The largest database that etcd is recommended for is 8 GiB.
	takeTimeout = time.Hour
)

// AttemptError is why an attempt failed, with the reason of condition Ready.
type AttemptError struct {
	Reason string
	cause  error
}

// Error implements error.
func (e *AttemptError) Error() string { return e.cause.Error() }

// Unwrap is the cause.
func (e *AttemptError) Unwrap() error { return e.cause }

// trouble says an error as one with a reason.
func trouble(reason, format string, args ...any) error {
	return &AttemptError{Reason: reason, cause: fmt.Errorf(format, args...)}
}

// Storage opens buckets.
type Storage interface {
	Open(ctx context.Context, at string, secret map[string][]byte) (*blob.Bucket, error)
}

// camera takes snapshots.
type camera struct {
	// secrets reads Secrets uncached: those of a storage may be those of many clusters, or of none.
	secrets client.Reader
	talos   talos.Provider
	storage Storage
	clock   clock.WithDelayedExecution
	stall   time.Duration
}

// shot is one attempt.
type shot struct {
	camera

	snapshot *v1alpha1.EtcdSnapshot
	facts    targets.Facts
	backup   v1alpha1.EtcdBackupSpec
	seal     *blob.Seal
	reader   talos.Reader
}

// take takes a snapshot, stores it under a name of its own and reads it back. What other attempts have left stays where it is: one of them may
// be what another hub has just written down. It asks etcd and Talos only what changes nothing.
func (c camera) take(ctx context.Context, facts targets.Facts, snapshot *v1alpha1.EtcdSnapshot) (*v1alpha1.SnapshotContents, error) {
	ctx, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	if facts.Cluster == nil {
		return nil, trouble(v1alpha1.SnapshotNotConfiguredReason, "there is no TalosCluster %s", snapshot.Spec.ClusterName)
	}
	if facts.Cluster.Spec.EtcdBackup == nil {
		return nil, trouble(v1alpha1.SnapshotNotConfiguredReason, "TalosCluster %s does not say where snapshots are stored: spec.etcdBackup.bucketURL is not set", facts.Cluster.Name)
	}
	s := shot{camera: c, snapshot: snapshot, facts: facts, backup: *facts.Cluster.Spec.EtcdBackup}
	bucket, err := c.open(ctx, snapshot.Namespace, s.backup.BucketURL, s.backup.CredentialsSecretName)
	if err != nil {
		return nil, err
	}
	defer bucket.Close() //nolint:errcheck // Whatever was written is closed already.
	if s.seal, err = c.sealOf(ctx, snapshot.Namespace, s.backup.EncryptionKeySecretName); err != nil {
		return nil, err
	}
	if s.reader, err = c.talos.Reader(ctx, facts.Target()); err != nil {
		return nil, trouble(v1alpha1.SnapshotEtcdReason, "%s", talos.Trouble(err))
	}
	member, err := s.choose(ctx)
	if err != nil {
		return nil, err
	}
	return s.from(ctx, member, bucket)
}

// open opens a bucket with the credentials of a Secret.
func (c camera) open(ctx context.Context, namespace, at, secretName string) (*blob.Bucket, error) {
	secret, err := c.secret(ctx, namespace, secretName, "spec.etcdBackup.credentialsSecretName")
	if err != nil {
		return nil, err
	}
	bucket, err := c.storage.Open(ctx, at, secret)
	if err != nil {
		return nil, trouble(v1alpha1.SnapshotStorageReason, "%w", err)
	}
	return bucket, nil
}

func (c camera) sealOf(ctx context.Context, namespace, secretName string) (*blob.Seal, error) {
	if secretName == "" {
		return nil, nil //nolint:nilnil // It is not encrypted.
	}
	secret, err := c.secret(ctx, namespace, secretName, "spec.etcdBackup.encryptionKeySecretName")
	if err != nil {
		return nil, err
	}
	seal, err := blob.NewSeal(secret)
	if err != nil {
		return nil, trouble(v1alpha1.SnapshotStorageReason, "spec.etcdBackup.encryptionKeySecretName %s: %w", secretName, err)
	}
	return seal, nil
}

func (c camera) secret(ctx context.Context, namespace, name, field string) (map[string][]byte, error) {
	if name == "" {
		return nil, nil
	}
	secret := &corev1.Secret{}
	if err := c.secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); err != nil {
		return nil, trouble(v1alpha1.SnapshotStorageReason, "%s: reading Secret %s: %w", field, name, err)
	}
	return secret.Data, nil
}

// directory is where all that is stored of a snapshot is, and nothing else. A name may be used again; the UID is not.
func directory(snapshot *v1alpha1.EtcdSnapshot) string {
	return path.Join(snapshot.Namespace, snapshot.Spec.ClusterName, snapshot.Name+"-"+shortUID(snapshot)) + "/"
}

func shortUID(snapshot *v1alpha1.EtcdSnapshot) string {
	return strings.ReplaceAll(string(snapshot.UID), "-", "")[:min(len(snapshot.UID), 12)]
}

// member is a control plane with what its etcd member says.
type member struct {
	machine *v1alpha1.TalosMachine
	etcd    talos.Etcd
	trouble string
}

// choose chooses the member that sends the snapshot: a voter that is well, another one after each attempt that failed, and the leader last,
// since it has most to do.
func (s shot) choose(ctx context.Context) (member, error) {
	asked := s.ask(ctx)
	well := slices.DeleteFunc(slices.Clone(asked), func(m member) bool { return m.trouble != "" })
	if len(well) == 0 {
		return member{}, trouble(v1alpha1.SnapshotEtcdReason, "%s", whyNone(asked))
	}
	slices.SortStableFunc(well, func(a, b member) int { return leads(a) - leads(b) })
	return well[int(s.snapshot.Status.Attempts)%len(well)], nil
}

func leads(m member) int {
	if m.etcd.Leader == m.etcd.MemberID {
		return 1
	}
	return 0
}

// ask asks every approved control plane, in the order of their names.
func (s shot) ask(ctx context.Context) []member {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var asked []member
	for _, machine := range s.facts.Approved() {
		if machine.Spec.Role == v1alpha1.ControlPlaneRole && machine.Spec.Address != "" {
			asked = append(asked, member{machine: machine})
		}
	}
	var group sync.WaitGroup
	for i := range asked {
		group.Go(func() {
			var err error
			if asked[i].etcd, err = s.reader.Etcd(ctx, asked[i].machine.Spec.Address); err != nil {
				asked[i].trouble = talos.Trouble(err)
				return
			}
			asked[i].trouble = unwell(asked[i].etcd)
		})
	}
	group.Wait()
	return asked
}

// unwell says why a member is not asked for a snapshot.
func unwell(etcd talos.Etcd) string {
	switch {
	case etcd.Learner:
		return "its member is a learner"
	case etcd.Leader == 0:
		return "its member knows no leader"
	case len(etcd.Errors) > 0:
		return etcd.Errors[0]
	}
	return ""
}

func whyNone(asked []member) string {
	if len(asked) == 0 {
		return "no approved control plane is known"
	}
	var words []string
	for _, m := range asked {
		words = append(words, m.machine.Name+": "+m.trouble)
	}
	return "no etcd member can send a snapshot: " + strings.Join(words, "; ")
}

// from takes the snapshot from one member.
func (s shot) from(ctx context.Context, m member, bucket *blob.Bucket) (*v1alpha1.SnapshotContents, error) {
	contents, err := s.about(ctx, m)
	if err != nil {
		return nil, err
	}
	contents.Location.Key = directory(s.snapshot) + uuid.NewString() + s.suffix()
	contents.TakenTime = metav1.NewTime(s.clock.Now().Truncate(time.Second))
	facts, object, err := s.copy(ctx, m, bucket, contents.Location.Key)
	if err != nil {
		return nil, err
	}
	if err := s.readBack(ctx, bucket, contents.Location.Key, object, facts); err != nil {
		return nil, errors.Join(err, bucket.Delete(ctx, contents.Location.Key, ""))
	}
	contents.SizeBytes, contents.Hash, contents.Revision = facts.Size, facts.Hash, facts.Revision
	contents.Location.SizeBytes, contents.Location.Hash = object.Size, object.Hash
	return contents, nil
}

func (s shot) suffix() string {
	if s.seal != nil {
		return ".db.age"
	}
	return ".db"
}

// about is what a restore is judged by beyond the snapshot itself.
func (s shot) about(ctx context.Context, m member) (*v1alpha1.SnapshotContents, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	machine, err := s.reader.Machine(ctx, m.machine.Spec.Address)
	if err != nil {
		return nil, trouble(v1alpha1.SnapshotEtcdReason, "%s: %s", m.machine.Name, talos.Trouble(err))
	}
	config, err := s.reader.Config(ctx, m.machine.Spec.Address)
	if err != nil {
		return nil, trouble(v1alpha1.SnapshotEtcdReason, "%s: reading the keys that a restore needs: %s", m.machine.Name, talos.Trouble(err))
	}
	keys, err := fingerprint.Keys(config.Active)
	if err != nil {
		return nil, trouble(v1alpha1.SnapshotEtcdReason, "%s: %w", m.machine.Name, err)
	}
	contents := &v1alpha1.SnapshotContents{
		Machine: m.machine.Name, Members: int32(min(len(m.etcd.Members), maxMembers)), EtcdVersion: m.etcd.Version,
		TalosVersion: machine.Version, KubernetesVersion: s.facts.Cluster.Status.KubernetesVersion, Keys: keys,
		Location: v1alpha1.SnapshotLocation{BucketURL: s.backup.BucketURL, CredentialsSecretName: s.backup.CredentialsSecretName},
	}
	if s.seal != nil {
		contents.Encryption = &v1alpha1.SnapshotEncryption{Recipient: s.seal.Recipient(), KeySecretName: s.backup.EncryptionKeySecretName}
	}
	return contents, nil
}

// maxMembers is what the API takes.
const maxMembers = 64

// copy streams the snapshot to the storage, and checks it on its way. What is no whole snapshot is never there.
func (s shot) copy(ctx context.Context, m member, bucket *blob.Bucket, key string) (etcdfile.Facts, blob.Object, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.reader.EtcdSnapshot(ctx, m.machine.Spec.Address)
	if err != nil {
		return etcdfile.Facts{}, blob.Object{}, trouble(v1alpha1.SnapshotEtcdReason, "%s: %s", m.machine.Name, talos.Trouble(err))
	}
	defer stream.Close() //nolint:errcheck // Only read from.
	watched := newWatched(stream, s.clock, s.stall, cancel)
	checker := etcdfile.New()
	var facts etcdfile.Facts
	object, err := bucket.Put(ctx, key, func(to io.Writer) error {
		if err := s.write(to, watched, checker); err != nil {
			return err
		}
		facts, err = checker.Finish()
		return err
	})
	switch {
	case err == nil:
		return facts, object, nil
	case watched.stalled():
		return facts, object, trouble(v1alpha1.SnapshotEtcdReason, "%s: nothing came for %s", m.machine.Name, s.stall)
	}
	return facts, object, copyTrouble(m.machine.Name, err)
}

// write copies the snapshot to where it is stored, through the encryption if there is one.
func (s shot) write(to io.Writer, from io.Reader, checker io.Writer) error {
	if s.seal == nil {
		_, err := io.Copy(io.MultiWriter(to, checker), from)
		return err
	}
	sealed, err := s.seal.Encrypt(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.MultiWriter(sealed, checker), from); err != nil {
		return err
	}
	return sealed.Close()
}

// copyTrouble tells who is to blame for a copy that failed.
func copyTrouble(machine string, err error) error {
	var storage *blob.StorageError
	switch {
	case errors.As(err, &storage):
		return storageTrouble(err)
	case errors.Is(err, etcdfile.ErrDamaged):
		return trouble(v1alpha1.SnapshotDamagedReason, "%s: %w", machine, err)
	}
	return trouble(v1alpha1.SnapshotEtcdReason, "%s: the stream broke: %s", machine, talos.Trouble(err))
}

func storageTrouble(err error) error {
	return trouble(v1alpha1.SnapshotStorageReason, "%w", err)
}

// readBack reads what was stored, and holds it against what was sent. With the private key it is decrypted, too.
func (s shot) readBack(ctx context.Context, bucket *blob.Bucket, key string, object blob.Object, facts etcdfile.Facts) error {
	found, plain, err := bucket.LookInto(ctx, key, s.seal)
	var storage *blob.StorageError
	switch {
	case errors.As(err, &storage):
		return storageTrouble(err)
	case found != object:
		return trouble(v1alpha1.SnapshotDamagedReason, "what the storage gives back is not what was stored: %d bytes, want %d", found.Size, object.Size)
	case err != nil:
		return trouble(v1alpha1.SnapshotDamagedReason, "what is stored cannot be decrypted: %w", err)
	case plain != blob.Object{} && plain != blob.Object{Size: facts.Size, Hash: facts.Hash}:
		return trouble(v1alpha1.SnapshotDamagedReason, "what is decrypted is not what was encrypted")
	}
	return nil
}
