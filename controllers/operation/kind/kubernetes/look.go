// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	"slices"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/kubernetes/machineimage"
	"ichor.maesh.dev/hub/controllers/versions"
	"ichor.maesh.dev/hub/controllers/versions/image"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// look is what the kind looks at on a machine, beyond what all kinds do.
type look struct {
	// runs is what Talos was told to run.
	runs talos.Kubernetes

	// settings is what the config in force says of each component.
	settings map[machineimage.Component]machineimage.Setting

	// pending says that another config waits for the next boot, or for the end of a trial.
	pending bool

	// configTrouble says why the config cannot be read; whoever wrote it is meant.
	configTrouble string

	// pods are the pods of the control plane's components on all machines; podsTrouble says why they are not known.
	pods        []kube.ComponentPod
	podsTrouble string
}

// lookOf is the look at a machine that answers.
func lookOf(seen kind.Observation) look {
	found, _ := seen.Own.(look)
	return found
}

// observeMachine looks at what a machine runs, and is told to run.
func (e *Executor) observeMachine(ctx context.Context, scope kind.Scope, unit kind.Unit, seen *kind.Observation) {
	if seen.TalosTrouble != "" {
		return
	}
	found := look{settings: map[machineimage.Component]machineimage.Setting{}}
	reader, err := e.Talos.Reader(ctx, scope.Cluster)
	if err == nil {
		found.runs, err = reader.Kubernetes(ctx, unit.Machine.Spec.Address)
	}
	var config talos.Config
	if err == nil {
		config, err = reader.Config(ctx, unit.Machine.Spec.Address)
	}
	if err != nil {
		seen.TalosTrouble = talos.Trouble(err)
		return
	}
	found.read(config)
	found.pods, found.podsTrouble = e.pods(ctx, scope)
	seen.Own = found
}

// read takes from a config what matters, and none of its secrets.
func (l *look) read(config talos.Config) {
	l.pending = pending(config)
	for _, component := range components {
		setting, err := machineimage.Read(config.Active, component)
		if err != nil {
			l.configTrouble = err.Error()
			return
		}
		l.settings[component] = setting
	}
}

// pending says whether another config than that in force is on disk. A machine that does not tell has none.
func pending(config talos.Config) bool {
	return len(config.Persistent) > 0 && !bytes.Equal(config.Active, config.Persistent)
}

func (e *Executor) pods(ctx context.Context, scope kind.Scope) ([]kube.ComponentPod, string) {
	reader, err := e.Kube.Reader(ctx, scope.Cluster)
	if err != nil {
		return nil, kubeTrouble(kube.Trouble(err))
	}
	pods, err := reader.ComponentPods(ctx)
	if err != nil {
		return nil, kubeTrouble(kube.Trouble(err))
	}
	return pods, ""
}

// pod is the pod of a component on a Node; nil if there is none.
func (l *look) pod(component machineimage.Component, node string) *kube.ComponentPod {
	return podOf(l.pods, component, node)
}

func podOf(pods []kube.ComponentPod, component machineimage.Component, node string) *kube.ComponentPod {
	i := slices.IndexFunc(pods, func(p kube.ComponentPod) bool { return p.Component == string(component) && p.Node == node })
	if i < 0 {
		return nil
	}
	return &pods[i]
}

// versionOf is the version that an image tells; where it is pinned by a digest alone, that of what runs of it.
func versionOf(reference, running string) string {
	for _, text := range []string{reference, running} {
		if parsed, err := image.Parse(text); err == nil && parsed.Version != "" {
			return parsed.Version
		}
	}
	return ""
}

// podVersion is the version of a pod.
func podVersion(pod kube.ComponentPod) string { return versionOf(pod.Image, pod.Running) }

// wanted is an image in the version of the target.
func wanted(current, version string) (changed, note string, err error) {
	parsed, err := image.Parse(current)
	if err != nil {
		return "", "", err
	}
	next, note, err := parsed.WithVersion(version)
	return next.String(), note, err
}

// behind names an API server that is older than the target, or not known; nothing if there is none. Whatever asks an API server may ask any
// of them.
func behind(scope kind.Scope, pods []kube.ComponentPod) string {
	for _, machine := range scope.Approved {
		if machine.Spec.Role != v1alpha1.ControlPlaneRole {
			continue
		}
		pod := podOf(pods, machineimage.APIServer, machine.Status.NodeName)
		switch {
		case pod == nil:
			return "no API server is known on " + machine.Name
		case podVersion(*pod) == "" || versions.Compare(podVersion(*pod), scope.Target.KubernetesVersion) < 0:
			return "the API server of " + machine.Name + " runs " + orUnknown(podVersion(*pod))
		}
	}
	return ""
}

func orUnknown(version string) string {
	if version == "" {
		return "an unknown version"
	}
	return version
}
