// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/progress"
	"ichor.maesh.dev/hub/providers/target"
)

// ForOperations takes the snapshots that operations ask for, by the same objects as everybody.
type ForOperations struct {
	// Client creates the objects, and reads them, uncached or not.
	Client client.Client
	Clock  clock.WithTicker

	// Reason is the reason of the snapshots.
	Reason v1alpha1.SnapshotReason

	// Interval is the pause between two looks at an object; zero takes half a second.
	Interval time.Duration
}

// lookInterval is the pause between two looks at an object that is waited for.
const lookInterval = 500 * time.Millisecond

// Take implements kind.Snapshots: it asks for the snapshot, unless that has been done, and returns when it is stored and read back. Meanwhile
// attempts that fail are made again, until ctx ends.
func (o ForOperations) Take(ctx context.Context, t target.Target, g guard.Func, name string) error {
	interval := o.Interval
	if interval == 0 {
		interval = lookInterval
	}
	ticker := o.Clock.NewTicker(interval)
	defer ticker.Stop()
	for {
		ready, err := o.look(ctx, t, g, name)
		if ready || err != nil {
			return err
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look says whether the snapshot is stored, and asks for it where it is not there.
func (o ForOperations) look(ctx context.Context, t target.Target, g guard.Func, name string) (ready bool, err error) {
	snapshot := &v1alpha1.EtcdSnapshot{}
	key := client.ObjectKey{Namespace: t.Namespace, Name: name}
	switch err := o.Client.Get(ctx, key, snapshot); {
	case apierrors.IsNotFound(err):
		return false, o.ask(ctx, t, g, name)
	case err != nil:
		return false, fmt.Errorf("reading EtcdSnapshot %s: %w", key, err)
	case snapshot.Spec.ClusterName != t.Name:
		return false, fmt.Errorf("%w: EtcdSnapshot %s is of cluster %s", kind.ErrNotStored, name, snapshot.Spec.ClusterName)
	case snapshot.Good():
		return true, nil
	}
	return false, o.tell(ctx, snapshot)
}

func (o ForOperations) ask(ctx context.Context, t target.Target, g guard.Func, name string) error {
	if err := guard.Check(guard.With(ctx, g), "creating EtcdSnapshot "+name); err != nil {
		return err
	}
	err := o.Client.Create(ctx, request(t.NamespacedName, name, o.Reason))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("asking for EtcdSnapshot %s: %w", name, err)
	}
	return nil
}

// tell says what is waited for, and ends where waiting does not help.
func (o ForOperations) tell(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot) error {
	ready := meta.FindStatusCondition(snapshot.Status.Conditions, v1alpha1.SnapshotReadyCondition)
	switch {
	case ready == nil:
		return nil
	case ready.Reason == v1alpha1.SnapshotNotConfiguredReason:
		return fmt.Errorf("%w: %s", kind.ErrNotStored, ready.Message)
	}
	progress.Report(ctx, fmt.Sprintf("snapshot %s: %s", snapshot.Name, ready.Message))
	return nil
}
