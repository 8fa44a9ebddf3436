// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/cluster/identity"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	nodeplan "ichor.maesh.dev/hub/controllers/operation/kind/node/plan"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// render makes the machine config of a machine that joins, unless the machine would be called like one that is there. Talos removes the
// member of etcd that has the name of one that joins, whoever that is, and a kubelet takes the Node of its name over.
func (e *Executor) render(
	ctx context.Context, reader talos.Reader, scope kind.Scope, machine *v1alpha1.TalosMachine, found talos.Unconfigured,
) (made, error) {
	made, err := e.Configs.render(ctx, reader, scope, machine, found)
	if err != nil {
		return made, err
	}
	names, err := machineconfig.NamesIn(made.whole)
	if err != nil {
		return made, err
	}
	if len(names) == 0 && found.Hostname != "" {
		names = []string{found.Hostname} // It comes from where Talos will have it from again.
	}
	for _, name := range names {
		if err := e.free(ctx, reader, scope, machine, name); err != nil {
			return made, err
		}
	}
	return made, nil
}

// free refuses a name that another machine, a Node or a member of etcd has.
func (e *Executor) free(ctx context.Context, reader talos.Reader, scope kind.Scope, machine *v1alpha1.TalosMachine, name string) error {
	for _, other := range scope.Known {
		if other.Name != machine.Name && nodeplan.Called(other, name) {
			return taken(name, "TalosMachine "+other.Name)
		}
	}
	if err := e.freeNode(ctx, scope, machine, name); err != nil {
		return err
	}
	if machine.Spec.Role != v1alpha1.ControlPlaneRole {
		return nil
	}
	for _, other := range scope.Approved {
		if other.Spec.Role != v1alpha1.ControlPlaneRole || other.Name == machine.Name {
			continue
		}
		etcd, err := reader.Etcd(ctx, other.Spec.Address)
		if err != nil {
			return fmt.Errorf("the names of etcd's members are not known: %s: %s", other.Name, talos.Trouble(err))
		}
		for _, member := range etcd.Members {
			if identity.SameHost(member.Hostname, name) {
				return taken(name, fmt.Sprintf("etcd member %x", member.ID))
			}
		}
	}
	return nil
}

// freeNode refuses the name of a Node that another machine has, or had.
func (e *Executor) freeNode(ctx context.Context, scope kind.Scope, machine *v1alpha1.TalosMachine, name string) error {
	reader, err := e.Kube.Reader(ctx, scope.Cluster)
	if err != nil {
		return fmt.Errorf("the names of Nodes are not known: %s", kube.Trouble(err))
	}
	nodes, err := reader.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("the names of Nodes are not known: %s", kube.Trouble(err))
	}
	for _, node := range nodes {
		if identity.SameHost(node.Name, name) && !strings.EqualFold(node.UUID, machine.Spec.UUID) {
			return taken(name, "Node "+node.Name)
		}
	}
	return nil
}

func taken(name, by string) error {
	return &unfitError{fmt.Sprintf("the machine would be called %q, which %s is: Talos would put it in the place of that one. Give it another name (spec.join.hostname)", name, by)}
}
