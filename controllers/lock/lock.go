// SPDX-License-Identifier: Apache-2.0

// Package lock keeps disruptive work on one target apart: one Lease per target, held by name.
//
// A holder is an operation or a machine, known by namespace and name since UIDs change in moves and restores. Such a holder
// does not renew: whether its lock is free again depends on the holder object alone. Other holders renew and expire.
package lock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/guard"
)

const (
	operationPrefix = "ichor-controller/op/"
	machinePrefix   = "ichor-controller/machine/"

	// expiry is after how long a holder that is neither operation nor machine is thought to be gone, if it does not renew.
	expiry = 5 * time.Minute
)

// Holder is who holds a lock, or wants to.
type Holder struct {
	// Identity is the name by which the holder is known over restarts, moves and restores.
	Identity string

	// OperationID tells an operation from an earlier one of the same name; empty for other holders.
	OperationID string
}

// Operation is an operation as a holder.
func Operation(op *v1alpha1.TalosOperation) Holder {
	return Holder{
		Identity:    operationPrefix + op.Namespace + "/" + op.Name,
		OperationID: OperationID(op),
	}
}

// Machine is a machine as a holder, by the key of its TalosMachine.
func Machine(key types.NamespacedName) Holder {
	return Holder{Identity: machinePrefix + key.Namespace + "/" + key.Name}
}

// OperationID is the identity of an operation. Once it has begun, status keeps it: annotations get lost.
func OperationID(op *v1alpha1.TalosOperation) string {
	return cmp.Or(op.Status.OperationID, op.Annotations[v1alpha1.OperationIDAnnotation])
}

// OperationKey is the operation that the holder is; ok is false if it is something else.
func (h Holder) OperationKey() (key types.NamespacedName, ok bool) { return h.key(operationPrefix) }

// MachineKey is the machine that the holder is; ok is false if it is something else.
func (h Holder) MachineKey() (key types.NamespacedName, ok bool) { return h.key(machinePrefix) }

func (h Holder) key(prefix string) (key types.NamespacedName, ok bool) {
	rest, ok := strings.CutPrefix(h.Identity, prefix)
	if !ok {
		return types.NamespacedName{}, false
	}
	namespace, name, ok := strings.Cut(rest, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}

// String describes the holder for people.
func (h Holder) String() string {
	if key, ok := strings.CutPrefix(h.Identity, operationPrefix); ok {
		return fmt.Sprintf("TalosOperation %q", key)
	}
	if key, ok := strings.CutPrefix(h.Identity, machinePrefix); ok {
		return fmt.Sprintf("TalosMachine %q", key)
	}
	return fmt.Sprintf("%q", h.Identity)
}

// Expires says whether the holder has to renew its lock to keep it.
func (h Holder) Expires() bool {
	return !strings.HasPrefix(h.Identity, operationPrefix) && !strings.HasPrefix(h.Identity, machinePrefix)
}

// LeaseName is the name of the Lease that is the lock of a cluster.
func LeaseName(cluster string) string { return cluster + "-ichor-lock" }

// Locks takes and gives back the locks of targets.
type Locks struct {
	// Client writes Leases.
	Client client.Client

	// Reader reads Leases uncached: what a cache remembers is no fence.
	Reader client.Reader

	// Epoch is the random identity of this process. A call is refused once another process has stamped the Lease with its own.
	Epoch string

	// Clock tells the time.
	Clock clock.PassiveClock
}

// TakeOver says whether the lock may be taken from a holder that is not expected to give it back.
type TakeOver func(context.Context, Holder) (bool, error)

// Acquire takes the lock of a cluster for a holder, or says who has it: then it returns another holder than it was given.
// The holder that has it already enters again, and the Lease gets the epoch of this process. The Lease belongs to owner.
func (l *Locks) Acquire(ctx context.Context, cluster client.ObjectKey, owner metav1.OwnerReference, want Holder, mayTakeOver TakeOver) (Holder, error) {
	lease, err := l.read(ctx, cluster)
	if err != nil {
		return Holder{}, err
	}
	if lease == nil {
		return l.create(ctx, cluster, owner, want)
	}
	current := HolderOf(lease)
	free, err := l.mayEnter(ctx, lease, current, want, mayTakeOver)
	if err != nil || !free {
		return current, err
	}
	if current == want && lease.Annotations[v1alpha1.LockEpochAnnotation] == l.Epoch {
		return want, nil
	}
	l.stamp(lease, cluster.Name, want, current)
	if !slices.Contains(lease.OwnerReferences, owner) {
		lease.OwnerReferences = append(lease.OwnerReferences, owner)
	}
	if err := l.Client.Update(ctx, lease); err != nil {
		return Holder{}, fmt.Errorf("taking the lock of cluster %s: %w", cluster, err)
	}
	return want, nil
}

// Holder is who holds the lock of a cluster; its identity is empty if nobody does.
func (l *Locks) Holder(ctx context.Context, cluster client.ObjectKey) (Holder, error) {
	lease, err := l.read(ctx, cluster)
	if err != nil || lease == nil {
		return Holder{}, err
	}
	return HolderOf(lease), nil
}

func (l *Locks) mayEnter(ctx context.Context, lease *coordinationv1.Lease, current, want Holder, mayTakeOver TakeOver) (bool, error) {
	switch {
	case current.Identity == "" || current == want:
		return true, nil
	case current.Expires():
		return l.expired(lease), nil
	}
	free, err := mayTakeOver(ctx, current)
	if err != nil {
		return false, fmt.Errorf("asking whether %s still needs the lock %s/%s: %w", current, lease.Namespace, lease.Name, err)
	}
	return free, nil
}

func (l *Locks) expired(lease *coordinationv1.Lease) bool {
	renewed := ptr.Deref(lease.Spec.RenewTime, ptr.Deref(lease.Spec.AcquireTime, metav1.MicroTime{}))
	duration := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, int32(expiry/time.Second))) * time.Second
	return l.Clock.Now().After(renewed.Add(duration))
}

func (l *Locks) create(ctx context.Context, cluster client.ObjectKey, owner metav1.OwnerReference, want Holder) (Holder, error) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace:       cluster.Namespace,
		Name:            LeaseName(cluster.Name),
		OwnerReferences: []metav1.OwnerReference{owner},
	}}
	l.stamp(lease, cluster.Name, want, Holder{})
	if err := l.Client.Create(ctx, lease); err != nil {
		return Holder{}, fmt.Errorf("creating the lock of cluster %s: %w", cluster, err)
	}
	return want, nil
}

// stamp makes want the holder, and this process the one that acts for it.
func (l *Locks) stamp(lease *coordinationv1.Lease, cluster string, want, current Holder) {
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	if lease.Labels == nil {
		lease.Labels = map[string]string{}
	}
	lease.Labels[clusterv1.ClusterNameLabel] = cluster // Who waits is found by it.
	lease.Annotations[v1alpha1.LockEpochAnnotation] = l.Epoch
	lease.Annotations[v1alpha1.OperationIDAnnotation] = want.OperationID
	now := metav1.NewMicroTime(l.Clock.Now())
	lease.Spec.HolderIdentity = ptr.To(want.Identity)
	lease.Spec.RenewTime = &now
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(expiry / time.Second))
	if current != want {
		lease.Spec.AcquireTime = &now
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
	}
}

// Release gives the lock back. A lock that is gone, or that somebody else holds by now, is left alone. Whoever writes the Lease in
// between is no reason to fail: nothing would tell the holder to try again. An operation leaves its sequence behind.
func (l *Locks) Release(ctx context.Context, cluster client.ObjectKey, held Holder, sequence int64) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { return l.release(ctx, cluster, held, sequence) })
}

func (l *Locks) release(ctx context.Context, cluster client.ObjectKey, held Holder, sequence int64) error {
	lease, err := l.read(ctx, cluster)
	if err != nil || lease == nil || HolderOf(lease) != held {
		return err
	}
	lease.Spec.HolderIdentity = nil
	lease.Spec.RenewTime = nil
	lease.Spec.AcquireTime = nil
	delete(lease.Annotations, v1alpha1.LockEpochAnnotation)
	delete(lease.Annotations, v1alpha1.OperationIDAnnotation)
	if held.OperationID != "" && sequence > 0 {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.LockLastAnnotation, last(held.OperationID, sequence))
	}
	if err := l.Client.Update(ctx, lease); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("releasing the lock of cluster %s: %w", cluster, err)
	}
	return nil
}

// GaveBackLast says whether an operation gave the lock back last, having come as far as a sequence.
func (l *Locks) GaveBackLast(ctx context.Context, cluster client.ObjectKey, operationID string, sequence int64) (bool, error) {
	lease, err := l.read(ctx, cluster)
	if err != nil || lease == nil {
		return false, err
	}
	return lease.Annotations[v1alpha1.LockLastAnnotation] == last(operationID, sequence), nil
}

func last(operationID string, sequence int64) string {
	return operationID + "/" + strconv.FormatInt(sequence, 10)
}

// Guard returns the fence for calls that change the cluster: the Lease, read uncached, still names the holder and this process.
func (l *Locks) Guard(cluster client.ObjectKey, held Holder) guard.Func {
	return func(ctx context.Context) error {
		lease, err := l.read(ctx, cluster)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", guard.ErrUndecided, err)
		case lease == nil:
			return fmt.Errorf("the lock of cluster %s is gone", cluster)
		case HolderOf(lease) != held:
			return fmt.Errorf("the lock of cluster %s is held by %s", cluster, HolderOf(lease))
		case lease.Annotations[v1alpha1.LockEpochAnnotation] != l.Epoch:
			return fmt.Errorf("another hub process acts for %s", held)
		}
		return nil
	}
}

func (l *Locks) read(ctx context.Context, cluster client.ObjectKey) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := l.Reader.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: LeaseName(cluster.Name)}, lease)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the lock of cluster %s: %w", cluster, err)
	}
	return lease, nil
}

// HolderOf is who holds the lock that a Lease is; its identity is empty if nobody does.
func HolderOf(lease *coordinationv1.Lease) Holder {
	return Holder{
		Identity:    ptr.Deref(lease.Spec.HolderIdentity, ""),
		OperationID: lease.Annotations[v1alpha1.OperationIDAnnotation],
	}
}
