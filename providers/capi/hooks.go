// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// PreDrainHook on a Machine makes Cluster API wait with its deletion before it drains the Node. Hooks of others have other names.
	PreDrainHook = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/ichor"

	// BeforeUpgradeHook on a Cluster makes its topology wait with a new version. Its value is who works on the cluster.
	BeforeUpgradeHook = clusterv1.BeforeClusterUpgradeHookAnnotationPrefix + "/ichor"

	// preDrainNote is what people read at the hook.
	preDrainNote = "the deletion waits for the lock of the cluster"
)

// ControlPlane says whether a Machine is a control plane.
func ControlPlane(machine *clusterv1.Machine) bool {
	_, is := machine.Labels[clusterv1.MachineControlPlaneLabel]
	return is
}

// DeletionHeld says whether the hub keeps Cluster API waiting with the deletion of a Machine.
func DeletionHeld(machine *clusterv1.Machine) bool {
	_, held := machine.Annotations[PreDrainHook]
	return held
}

// DeletedControlPlanes are the control planes that are being deleted, in the order in which that was asked for.
func DeletedControlPlanes(machines []clusterv1.Machine) []*clusterv1.Machine {
	var deleted []*clusterv1.Machine
	for i := range machines {
		if ControlPlane(&machines[i]) && !machines[i].DeletionTimestamp.IsZero() {
			deleted = append(deleted, &machines[i])
		}
	}
	slices.SortFunc(deleted, func(a, b *clusterv1.Machine) int {
		return cmp.Or(a.DeletionTimestamp.Compare(b.DeletionTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return deleted
}

// HoldDeletion makes Cluster API wait with the deletion of a Machine, if the Machine is still as it was read.
func (m Machines) HoldDeletion(ctx context.Context, machine *clusterv1.Machine) error {
	if DeletionHeld(machine) {
		return nil
	}
	err := m.annotate(ctx, machine, func(annotated *clusterv1.Machine) {
		metav1.SetMetaDataAnnotation(&annotated.ObjectMeta, PreDrainHook, preDrainNote)
	})
	return client.IgnoreNotFound(err)
}

// ReleaseDeletion takes back what HoldDeletion did, if the Machine is still as it was read.
func (m Machines) ReleaseDeletion(ctx context.Context, machine *clusterv1.Machine) error {
	if !DeletionHeld(machine) {
		return nil
	}
	err := m.annotate(ctx, machine, func(annotated *clusterv1.Machine) { delete(annotated.Annotations, PreDrainHook) })
	return client.IgnoreNotFound(err)
}

// Clusters are the Clusters of Cluster API.
type Clusters struct {
	// Client writes them.
	Client client.Client

	// Live reads uncached.
	Live client.Reader
}

// UpgradeHeldFor is who works on a cluster, and keeps its topology waiting with a new version.
func UpgradeHeldFor(cluster *clusterv1.Cluster) (owner string, held bool) {
	owner, held = cluster.Annotations[BeforeUpgradeHook]
	return owner, held
}

// HoldUpgrade makes the topology of a Cluster wait with a new version, in the name of owner.
func (c Clusters) HoldUpgrade(ctx context.Context, key client.ObjectKey, owner string) error {
	return c.annotate(ctx, key, func(cluster *clusterv1.Cluster) bool {
		if held, is := UpgradeHeldFor(cluster); is && held == owner {
			return false
		}
		metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, BeforeUpgradeHook, owner)
		return true
	})
}

// ReleaseUpgrade takes back what HoldUpgrade did in the name of owner.
func (c Clusters) ReleaseUpgrade(ctx context.Context, key client.ObjectKey, owner string) error {
	return c.annotate(ctx, key, func(cluster *clusterv1.Cluster) bool {
		if held, is := UpgradeHeldFor(cluster); !is || held != owner {
			return false
		}
		delete(cluster.Annotations, BeforeUpgradeHook)
		return true
	})
}

// annotate changes a Cluster as it is now, if there is one. Whoever writes it in between keeps what is theirs.
func (c Clusters) annotate(ctx context.Context, key client.ObjectKey, change func(*clusterv1.Cluster) bool) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		cluster := &clusterv1.Cluster{}
		if err := c.Live.Get(ctx, key, cluster); err != nil {
			return err
		}
		before := cluster.DeepCopy()
		if !change(cluster) {
			return nil
		}
		return c.Client.Patch(ctx, cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	if client.IgnoreNotFound(err) == nil || meta.IsNoMatchError(err) {
		return nil
	}
	return fmt.Errorf("annotating Cluster %s: %w", key, err)
}
