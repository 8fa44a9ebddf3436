// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/snapshot/etcdfile"
	"ichor.maesh.dev/hub/providers/blob"
	"ichor.maesh.dev/hub/providers/target"
)

// Stored gives back what is stored of snapshots, for operations that restore them. Nothing is held as a whole.
type Stored struct {
	// Client reads the objects, cached or not.
	Client client.Reader

	// APIReader reads the Secrets of storages, uncached.
	APIReader client.Reader
	Storage   Storage
	Clock     clock.WithDelayedExecution

	// StallTimeout is how long a storage may send nothing; zero takes a minute.
	StallTimeout time.Duration
}

// Find implements kind.StoredSnapshots.
func (s Stored) Find(ctx context.Context, t target.Target, name string) (*v1alpha1.EtcdSnapshot, error) {
	snapshot, key := &v1alpha1.EtcdSnapshot{}, client.ObjectKey{Namespace: t.Namespace, Name: name}
	switch err := s.Client.Get(ctx, key, snapshot); {
	case apierrors.IsNotFound(err):
		return nil, unusable("EtcdSnapshot %s is not there", name)
	case err != nil:
		return nil, fmt.Errorf("reading EtcdSnapshot %s: %w", key, err)
	case snapshot.Spec.ClusterName != t.Name:
		return nil, unusable("EtcdSnapshot %s is of cluster %s", name, snapshot.Spec.ClusterName)
	case snapshot.Spec.Contents == nil:
		return nil, unusable("EtcdSnapshot %s is not taken yet", name)
	}
	return snapshot, nil
}

// Check implements kind.StoredSnapshots: it reads what is stored to its end.
func (s Stored) Check(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot) error {
	checker := etcdfile.New()
	err := s.Read(ctx, snapshot, func(from io.Reader) error {
		_, err := io.Copy(checker, from)
		return err
	})
	if err != nil {
		return err
	}
	finish := checker.Finish
	if snapshot.Spec.Contents.RawCopy() {
		finish = checker.FinishRawCopy
	}
	facts, err := finish()
	switch want := snapshot.Spec.Contents.Revision; {
	case err != nil:
		return unusable("%w", err)
	case facts.Revision != want:
		return unusable("it holds revision %d of etcd, and spec.contents.revision of EtcdSnapshot %s is %d", facts.Revision, snapshot.Name, want)
	}
	return nil
}

// Read implements kind.StoredSnapshots: it hands the snapshot, decrypted, to take. Where what comes by is not what was stored, take reads an
// error and never the end.
func (s Stored) Read(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, take func(io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	contents, reads := snapshot.Spec.Contents, camera{secrets: s.APIReader, storage: s.Storage, clock: s.Clock}
	seal, err := s.sealFor(ctx, reads, snapshot)
	if err != nil {
		return err
	}
	bucket, err := reads.open(ctx, snapshot.Namespace, contents.Location.BucketURL, contents.Location.CredentialsSecretName)
	if err != nil {
		return err
	}
	defer bucket.Close() //nolint:errcheck // Only read from.
	stall := s.StallTimeout
	if stall == 0 {
		stall = stallTimeout
	}
	var stored *watched
	err = bucket.Read(ctx, contents.Location.Key, func(from io.Reader) error {
		stored = newWatched(from, s.Clock, stall, cancel)
		plain := io.Reader(stored)
		if seal != nil {
			if plain, err = seal.Decrypt(stored); err != nil {
				return damaged(err)
			}
			plain = opened{plain}
		}
		return take(&proved{from: plain, known: blob.NewSums(), want: blob.Object{Size: contents.SizeBytes, Hash: contents.Hash}})
	})
	switch {
	case stored != nil && stored.stalled():
		return fmt.Errorf("reading EtcdSnapshot %s: the storage sent nothing for %s", snapshot.Name, stall)
	case blob.Gone(err):
		return unusable("%s is not stored any more in %s", contents.Location.Key, contents.Location.BucketURL)
	case err != nil:
		return fmt.Errorf("reading EtcdSnapshot %s: %w", snapshot.Name, err)
	}
	return nil
}

// sealFor is what opens a snapshot; nil where it is not encrypted.
func (s Stored) sealFor(ctx context.Context, reads camera, snapshot *v1alpha1.EtcdSnapshot) (*blob.Seal, error) {
	encryption := snapshot.Spec.Contents.Encryption
	if encryption == nil {
		return nil, nil //nolint:nilnil // It is not encrypted.
	}
	name := encryption.KeySecretName
	secret, err := reads.secret(ctx, snapshot.Namespace, name, "spec.contents.encryption.keySecretName")
	if err != nil {
		return nil, err
	}
	seal, err := blob.NewSeal(secret)
	switch {
	case err != nil:
		return nil, unusable("Secret %s: %w", name, err)
	case seal.Recipient() != encryption.Recipient:
		return nil, unusable("it is encrypted for %s, and the key in Secret %s is %s", encryption.Recipient, name, seal.Recipient())
	case !seal.Opens():
		return nil, unusable("it is encrypted, and Secret %s has no private key: put it there under key %q", name, blob.IdentityKey)
	}
	return seal, nil
}

// unusable says of a snapshot what waiting does not mend.
func unusable(format string, args ...any) error {
	return fmt.Errorf("%w: %w", kind.ErrUnusable, fmt.Errorf(format, args...))
}

// opened is what an encrypted snapshot decrypts to.
type opened struct{ io.Reader }

// Read implements io.Reader.
func (o opened) Read(data []byte) (int, error) {
	n, err := o.Reader.Read(data)
	if err != nil && !errors.Is(err, io.EOF) {
		err = damaged(err)
	}
	return n, err
}

// damaged says of an error of decrypting that no storage is to blame for it, unless one is.
func damaged(err error) error {
	var storage *blob.StorageError
	if errors.As(err, &storage) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return unusable("what is stored cannot be decrypted: %w", err)
}

// proved reads what is known. Its end comes only if all of it was that.
type proved struct {
	from  io.Reader
	known *blob.Sums
	want  blob.Object
}

// Read implements io.Reader.
func (p *proved) Read(data []byte) (int, error) {
	n, err := p.from.Read(data)
	if _, failed := p.known.Write(data[:n]); failed != nil {
		return n, failed
	}
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if got := p.known.Object(); got != p.want {
		return n, unusable("what is stored is not what was stored: %d bytes with SHA-256 %s, want %d with %s", got.Size, short(got.Hash), p.want.Size, short(p.want.Hash))
	}
	return n, io.EOF
}

// short is a hash as people can compare it. Two whole ones leave no room in a condition for what is wrong.
func short(hash string) string {
	const shown = 12
	return hash[:min(shown, len(hash))]
}
