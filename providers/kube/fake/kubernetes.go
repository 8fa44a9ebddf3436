// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"errors"
	"slices"

	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
)

// SetPod adds or replaces the pod of a component.
func (k *Kube) SetPod(pod kube.ComponentPod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods = slices.DeleteFunc(k.pods, func(p kube.ComponentPod) bool { return p.Component == pod.Component && p.Node == pod.Node })
	k.pods = append(k.pods, pod)
}

// Pods are the pods of the components now.
func (k *Kube) Pods() []kube.ComponentPod {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.pods)
}

// SetWorkload adds or replaces a DaemonSet or a Deployment.
func (k *Kube) SetWorkload(workload kube.Workload) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.workloads[workload.Kind+" "+workload.Namespace+"/"+workload.Name] = workload
}

// SetDeprecated says what deprecated APIs the API server has been asked for.
func (k *Kube) SetDeprecated(apis ...kube.DeprecatedAPI) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.deprecated = apis
}

// SetChanges says what a sync of manifests would do.
func (k *Kube) SetChanges(changes ...kube.ManifestChange) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.changes = changes
}

func (c *client) ComponentPods(context.Context) ([]kube.ComponentPod, error) {
	return c.Pods(), c.answer()
}

func (c *client) Workload(_ context.Context, kind, namespace, name string) (*kube.Workload, error) {
	if err := c.answer(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.workloads[kind+" "+namespace+"/"+name]
	if !ok {
		return nil, nil
	}
	return &found, nil
}

func (c *client) DeprecatedAPIs(context.Context) ([]kube.DeprecatedAPI, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.deprecated), nil
}

func (c *client) Stored(context.Context, string, string, string) (bool, error) {
	return false, c.answer()
}

// DiffManifests is in the minutes as well, although it changes nothing: it is a call of a step.
func (c *client) DiffManifests(ctx context.Context, _ []map[string]any, _ bool) (changes []kube.ManifestChange, err error) {
	if err := c.answer(); err != nil {
		return nil, err
	}
	err = c.Run(ctx, "DiffManifests", "", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		changes = slices.Clone(c.changes)
		return nil
	})
	return changes, err
}

func (c *client) ApplyManifests(ctx context.Context, manifests []map[string]any, _ bool) (changes []kube.ManifestChange, err error) {
	if err := errors.Join(guard.Check(guard.With(ctx, c.guard), "ApplyManifests"), c.answer()); err != nil {
		return nil, err
	}
	err = c.Run(ctx, "ApplyManifests", "", func() error {
		if c.Synced != nil {
			c.Synced(manifests)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		changes = slices.Clone(c.changes)
		return nil
	})
	return changes, err
}
