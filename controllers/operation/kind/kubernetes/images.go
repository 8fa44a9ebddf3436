// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/kubernetes/machineimage"
	"ichor.maesh.dev/hub/providers/talos"
)

// part is an image that a machine needs, and where it keeps that.
type part struct {
	component machineimage.Component
	current   string
	store     talos.ImageStore
}

// controlPlaneParts are the components that control planes alone know of.
var controlPlaneParts = []machineimage.Component{
	machineimage.APIServer, machineimage.ControllerManager, machineimage.Scheduler, machineimage.Proxy,
}

// images are the components of a machine that get another image, in order. Workers run kube-proxy as well, but only control planes know its
// image: that they can pull it proves that it is there.
func images(scope kind.Scope, machine *v1alpha1.TalosMachine, found look) []part {
	var parts []part
	add := func(component machineimage.Component, current string, store talos.ImageStore) {
		if current != "" && versionOf(current, "") != scope.Target.KubernetesVersion {
			parts = append(parts, part{component, current, store})
		}
	}
	if machine.Spec.Role == v1alpha1.ControlPlaneRole {
		for _, component := range controlPlaneParts {
			if !found.settings[component].Off {
				add(component, found.image(component), talos.PodImages)
			}
		}
	}
	add(machineimage.Kubelet, found.image(machineimage.Kubelet), talos.SystemImages)
	return parts
}

// image is the image of a component: what its machine's config says, or else what Talos makes of it.
func (l *look) image(component machineimage.Component) string {
	switch setting := l.settings[component]; {
	case setting.Image != "":
		return setting.Image
	case component == machineimage.Kubelet:
		return l.runs.Kubelet.Image
	}
	return l.runs.Components[string(component)].Image
}

// pull pulls every image that a machine is going to need.
func (e *Executor) pull(ctx context.Context, scope kind.Scope, unit kind.Unit) error {
	writer, _, err := e.Writer(ctx, scope, unit)
	if err != nil {
		return err
	}
	found, _, err := readMachine(ctx, writer, unit)
	if err != nil {
		return err
	}
	for _, part := range images(scope, unit.Machine, found) {
		next, _, err := wanted(part.current, scope.Target.KubernetesVersion)
		if err != nil {
			return finding("%s: %s", part.component, err)
		}
		if err := writer.PullKubernetesImage(ctx, unit.Machine.Spec.Address, next, part.store); err != nil {
			return err
		}
	}
	return nil
}

// readMachine reads what a call needs to know of a machine.
func readMachine(ctx context.Context, reader talos.Reader, unit kind.Unit) (look, talos.Config, error) {
	found := look{settings: map[machineimage.Component]machineimage.Setting{}}
	var err error
	if found.runs, err = reader.Kubernetes(ctx, unit.Machine.Spec.Address); err != nil {
		return look{}, talos.Config{}, err
	}
	config, err := reader.Config(ctx, unit.Machine.Spec.Address)
	if err != nil {
		return look{}, talos.Config{}, err
	}
	found.read(config)
	if found.configTrouble != "" {
		return look{}, talos.Config{}, finding("%s", found.configTrouble)
	}
	return found, config, nil
}

// apply puts the image of a stage's component into the config in force, and nothing else. A config that is staged or tried is left alone.
func (e *Executor) apply(ctx context.Context, scope kind.Scope, unit kind.Unit) (kind.Outcome, error) {
	writer, _, err := e.Writer(ctx, scope, unit)
	if err != nil {
		return kind.Outcome{}, err
	}
	address, component := unit.Machine.Spec.Address, components[unit.Status.Stage]
	found, config, err := readMachine(ctx, writer, unit)
	if err != nil {
		return kind.Outcome{}, err
	}
	if versionOf(found.settings[component].Image, "") == scope.Target.KubernetesVersion {
		return kind.Outcome{}, nil // An earlier call has arrived.
	}
	if found.pending {
		return kind.Outcome{}, &laterError{pendingWords(unit)}
	}
	current := found.image(component)
	if current == "" {
		current, err = e.proxyImage(ctx, scope)
	}
	if err != nil {
		return kind.Outcome{}, err
	}
	next, note, err := wanted(current, scope.Target.KubernetesVersion)
	if err != nil {
		return kind.Outcome{}, finding("%s: %s", component, err)
	}
	data, err := machineimage.Set(config.Active, component, next)
	if err != nil {
		return kind.Outcome{}, finding("%s", err)
	}
	return kind.Outcome{Message: note}, writer.ApplyConfig(ctx, address, data, talos.ApplyLive)
}

// proxyImage is the image of kube-proxy in the cluster, for a config that leaves it to Talos.
func (e *Executor) proxyImage(ctx context.Context, scope kind.Scope) (string, error) {
	reader, err := e.Kube.Reader(ctx, scope.Cluster)
	if err != nil {
		return "", err
	}
	found, err := reader.Workload(ctx, proxyWorkload.kind, proxyWorkload.namespace, proxyWorkload.name)
	if err != nil {
		return "", err
	}
	if found == nil || len(found.Images) == 0 {
		return "", finding("the machine config names no image of %s, and the cluster has no %s %s/%s", machineimage.Proxy,
			proxyWorkload.kind, proxyWorkload.namespace, proxyWorkload.name)
	}
	return found.Images[0], nil
}
