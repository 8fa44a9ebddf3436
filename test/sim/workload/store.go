// SPDX-License-Identifier: Apache-2.0

package workload

import "ichor.maesh.dev/hub/test/sim/kubeapi"

// Store holds the objects of a cluster: in memory, or behind real API servers. What it returns is shared, and nobody changes it.
type Store interface {
	Get(r *kubeapi.Resource, namespace, name string) (kubeapi.Object, error)
	List(r *kubeapi.Resource, namespace string) ([]kubeapi.Object, uint64)
	Create(r *kubeapi.Resource, obj kubeapi.Object, dryRun bool) (kubeapi.Object, error)
	CreateAs(r *kubeapi.Resource, content map[string]any, manager string) (kubeapi.Object, error)
	Apply(r *kubeapi.Resource, content map[string]any, manager string, force, dryRun bool) (obj kubeapi.Object, created bool, err error)
	Update(r *kubeapi.Resource, namespace, name string, dryRun bool, modify func(kubeapi.Object) (kubeapi.Object, error)) (kubeapi.Object, error)
	Delete(r *kubeapi.Resource, namespace, name string, dryRun bool) (kubeapi.Object, error)
}

// asKubelet is the store as the kubelet of a node changes it.
func (c *Controller) asKubelet(node string) Store {
	if c.Kubelet == nil {
		return c.Store
	}
	return c.Kubelet(node)
}
