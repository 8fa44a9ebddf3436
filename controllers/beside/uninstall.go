// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/operation"
	"ichor.maesh.dev/hub/providers/capi"
)

// LetGo takes back all that hubs have left on the objects of Cluster API in a namespace, or in all of them: for a management cluster to which
// none comes back. A hub that runs would put it there again. What others put there stays, and so do conditions by which owners are at work.
func LetGo(ctx context.Context, c client.Client, namespace string) error {
	in := client.InNamespace(namespace)
	clusters, machines, talos := &clusterv1.ClusterList{}, &clusterv1.MachineList{}, &v1alpha1.TalosClusterList{}
	for _, list := range []client.ObjectList{clusters, machines, talos} {
		if err := c.List(ctx, list, in); err != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("listing what hubs may have left something on: %w", err)
		}
	}
	var errs []error
	for i := range machines.Items {
		errs = append(errs, letMachineGo(ctx, capi.Machines{Client: c, Live: c}, &machines.Items[i]))
	}
	for i := range clusters.Items {
		errs = append(errs, letClusterGo(ctx, capi.Clusters{Client: c, Live: c}, &clusters.Items[i]))
	}
	for i := range talos.Items {
		if _, shielded := operation.ShieldedBy(&talos.Items[i]); shielded {
			errs = append(errs, client.IgnoreNotFound(unblockMove(ctx, c, &talos.Items[i])))
		}
	}
	return errors.Join(errs...)
}

func letMachineGo(ctx context.Context, machines capi.Machines, machine *clusterv1.Machine) error {
	err := machines.ReleaseDeletion(ctx, machine)
	if owner, skipped := capi.SkippedFor(machine); skipped && isOperation(owner) {
		newer := &clusterv1.Machine{} // The first write has made it another one.
		if err := machines.Live.Get(ctx, client.ObjectKeyFromObject(machine), newer); err != nil {
			return client.IgnoreNotFound(err)
		}
		err = errors.Join(err, machines.AllowRemediation(ctx, newer))
	}
	return err
}

func letClusterGo(ctx context.Context, clusters capi.Clusters, cluster *clusterv1.Cluster) error {
	var err error
	if owner, held := capi.UpgradeHeldFor(cluster); held && isOperation(owner) {
		err = clusters.ReleaseUpgrade(ctx, client.ObjectKeyFromObject(cluster), owner)
	}
	return errors.Join(err, clusters.Withdraw(ctx, cluster, v1alpha1.TalosAvailableCondition))
}

func isOperation(owner string) bool {
	_, is := lock.Holder{Identity: owner}.OperationKey()
	return is
}
