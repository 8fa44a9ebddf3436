// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// machinesField indexes machines by the cluster that they are labelled with.
const machinesField = "metadata.labels." + clusterv1.ClusterNameLabel

// indexMachines makes the index that machinesByCluster needs.
func indexMachines(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.TalosMachine{}, machinesField, clusterLabel); err != nil {
		return fmt.Errorf("indexing machines by cluster: %w", err)
	}
	return nil
}

func clusterLabel(object client.Object) []string {
	return []string{object.GetLabels()[clusterv1.ClusterNameLabel]}
}

// machinesByCluster lists the machines of one cluster by an index. Every reconcile does that, and asked by label the cache looks at all
// machines of the namespace: with a thousand clusters that takes longer than the rest of a reconcile.
type machinesByCluster struct{ client.Client }

func newClient(config *rest.Config, options client.Options) (client.Client, error) {
	c, err := client.New(config, options)
	return machinesByCluster{c}, err
}

// List implements client.Reader.
func (c machinesByCluster) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, machines := list.(*v1alpha1.TalosMachineList); machines {
		asked := (&client.ListOptions{}).ApplyOptions(opts)
		if cluster, ok := onlyCluster(asked.LabelSelector); ok && asked.FieldSelector == nil {
			asked.LabelSelector = nil
			return c.Client.List(ctx, list, asked, client.MatchingFields{machinesField: cluster})
		}
	}
	return c.Client.List(ctx, list, opts...)
}

// onlyCluster is the cluster that a selector asks for, if it asks for nothing else.
func onlyCluster(selector labels.Selector) (cluster string, ok bool) {
	if selector == nil {
		return "", false
	}
	requirements, selectable := selector.Requirements()
	if !selectable || len(requirements) != 1 {
		return "", false
	}
	return selector.RequiresExactMatch(clusterv1.ClusterNameLabel)
}
