// SPDX-License-Identifier: Apache-2.0

package bases

import (
	"context"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/providers/talos"
)

// Comparer holds what machines have against what they shall have. A machine on which nothing has changed costs it next to nothing: it
// remembers the last answer for each, which holds no secret.
type Comparer struct {
	Store *Store

	mu   sync.Mutex
	last map[types.NamespacedName]map[string]entry
}

// entry is the last answer for a machine, and what it was an answer to.
type entry struct {
	question question
	answer   machineconfig.Comparison
}

// question is all that an answer depends on.
type question struct {
	base                            version
	spec, active, persistent, talos string
	role                            v1alpha1.MachineRole
}

// Compare holds what a machine has against what it shall have.
func (c *Comparer) Compare(
	ctx context.Context, cluster *v1alpha1.TalosCluster, machine *v1alpha1.TalosMachine, own talos.Config, running string,
) (machineconfig.Comparison, error) {
	asked := question{
		spec: cluster.MachineConfigHash(), active: machineconfig.HashOfText(own.Active), persistent: machineconfig.HashOfText(own.Persistent), talos: running, role: machine.Spec.Role,
	}
	var err error
	if asked.base, err = c.Store.version(ctx, machine); err != nil && !errors.Is(err, ErrNone) {
		return machineconfig.Comparison{}, err
	}
	of := types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name}
	if known, ok := c.known(of, machine.Name); ok && known.question == asked {
		return known.answer, nil
	}
	base, version, err := c.Store.read(ctx, machine)
	if err != nil {
		return machineconfig.Comparison{}, err
	}
	asked.base = version
	made := entry{asked, machineconfig.Compare(inputOf(cluster, machine, base, own, running))}
	c.remember(of, machine.Name, made)
	return made.answer, nil
}

// Render renders the whole config that a machine shall have.
func (c *Comparer) Render(
	ctx context.Context, cluster *v1alpha1.TalosCluster, machine *v1alpha1.TalosMachine, own talos.Config, running string,
) ([]byte, error) {
	base, _, err := c.Store.read(ctx, machine)
	if err != nil {
		return nil, err
	}
	return machineconfig.Render(inputOf(cluster, machine, base, own, running))
}

func inputOf(cluster *v1alpha1.TalosCluster, machine *v1alpha1.TalosMachine, base []byte, own talos.Config, running string) machineconfig.Input {
	return machineconfig.Input{
		Base: base, Patches: machineconfig.Patches(cluster, machine), Active: own.Active, Persistent: own.Persistent, Version: running,
	}
}

func (c *Comparer) known(cluster types.NamespacedName, machine string) (entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.last[cluster][machine]
	return known, ok
}

func (c *Comparer) remember(cluster types.NamespacedName, machine string, made entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		c.last = map[types.NamespacedName]map[string]entry{}
	}
	if c.last[cluster] == nil {
		c.last[cluster] = map[string]entry{}
	}
	c.last[cluster][machine] = made
}

// Forget lets go of what is remembered of a cluster.
func (c *Comparer) Forget(cluster types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.last, cluster)
}
