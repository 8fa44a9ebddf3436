// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"maps"
	"slices"

	"ichor.maesh.dev/hub/providers/talos"
)

// SetKubernetes makes a machine run components of Kubernetes.
func (t *Talos) SetKubernetes(address string, runs talos.Kubernetes) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machines[address].runs = runs
}

// RunsKubernetes is what a machine runs of Kubernetes.
func (t *Talos) RunsKubernetes(address string) talos.Kubernetes {
	t.mu.Lock()
	defer t.mu.Unlock()
	runs := t.machines[address].runs
	runs.Components = maps.Clone(runs.Components)
	return runs
}

// Render makes every control plane render bootstrap manifests.
func (t *Talos) Render(manifests ...map[string]any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.manifests = manifests
}

// Configured is the config of a machine.
func (t *Talos) Configured(address string) talos.Config {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.machines[address].config
}

func (c *client) Kubernetes(_ context.Context, address string) (talos.Kubernetes, error) {
	c.mu.Lock()
	_, err := c.find(address)
	c.mu.Unlock()
	if err != nil {
		return talos.Kubernetes{}, err
	}
	return c.RunsKubernetes(address), nil
}

func (c *client) Manifests(_ context.Context, address string) ([]map[string]any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.find(address); err != nil {
		return nil, err
	}
	return slices.Clone(c.manifests), nil
}

func (c *client) PullKubernetesImage(ctx context.Context, address, _ string, _ talos.ImageStore) error {
	return c.change(ctx, "PullImage", address, func(*machine) error { return nil })
}
