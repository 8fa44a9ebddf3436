// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"slices"
	"strconv"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"ichor.maesh.dev/hub/test/sim/component"
	sim "ichor.maesh.dev/hub/test/sim/machine"
)

// kubernetes describes what Talos runs of Kubernetes, as the config in force says it.
func (n *node) kubernetes(state sim.State) []resource.Resource {
	parts := n.Components()
	list := n.configured(state, parts)
	if state.KubeletReady && state.Running.AtLeast(14) {
		r := k8s.NewKubeletStatus(k8s.NamespaceName, k8s.KubeletID)
		r.TypedSpec().Image = parts.Kubelet.Image
		list = append(list, r)
	}
	for _, pod := range parts.Pods {
		if state.EtcdUp && state.KubeletReady {
			r := k8s.NewStaticPodStatus(k8s.NamespaceName, systemNamespace+"/"+pod.Name+"-"+n.Name)
			r.TypedSpec().PodStatus = podStatus(pod)
			list = append(list, r)
		}
	}
	return list
}

// configuration is what the resources that come from a config depend on.
type configuration struct {
	set      *component.Set
	versions [3]int
	secrets  int
	etcdUp   bool
	bootID   string
}

// configured are the resources that come from the config. They are made anew when something has changed; the caller is alone.
func (n *node) configured(state sim.State, parts sim.Components) []resource.Resource {
	now := configuration{set: parts.Set, secrets: n.SecretsVersion(), etcdUp: state.EtcdUp, bootID: state.BootID}
	for i, name := range component.StaticPods {
		now.versions[i] = parts.Versions[name]
	}
	if n.configuration != now {
		n.configuration, n.configuredNow = now, n.fromConfig(state, parts, now.secrets)
	}
	return slices.Clone(n.configuredNow)
}

func (n *node) fromConfig(state sim.State, parts sim.Components, secrets int) []resource.Resource {
	list := []resource.Resource{n.kubeletSpec(parts.Set)}
	if !n.ControlPlane {
		return list
	}
	list = append(list, configs(parts, state.Running.AtLeast(14))...)
	list = append(list, manifests(parts.Set)...)
	for _, name := range component.StaticPods {
		if part, ok := parts.Set.Part(name); ok && state.EtcdUp {
			r := k8s.NewStaticPod(k8s.NamespaceName, name)
			r.TypedSpec().Pod = staticPod(part, parts.Versions[name], secrets)
			list = append(list, r)
		}
	}
	return list
}

const systemNamespace = "kube-system"

func (n *node) kubeletSpec(set *component.Set) resource.Resource {
	r := k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID)
	*r.TypedSpec() = set.Kubelet
	r.TypedSpec().ExpectedNodename = n.Name
	r.TypedSpec().Args = append([]string{"--hostname-override=" + n.Name, "--node-ip=" + n.Address}, set.Kubelet.Args...)
	return r
}

// configs are the resources that static pods are made from. From 1.14 on there is a second one of each, from which the pods are made.
func configs(parts sim.Components, final bool) []resource.Resource {
	prefixes := []string{""}
	if final {
		prefixes = append(prefixes, k8s.FinalPrefix)
	}
	var list []resource.Resource
	for _, prefix := range prefixes {
		if spec := parts.Set.APIServer; spec != nil {
			r := k8s.NewAPIServerConfig(prefix + component.APIServer)
			*r.TypedSpec() = *spec
			r.TypedSpec().Args = command(parts.Set, component.APIServer, prefix)
			list = append(list, versioned(r, parts.Versions[component.APIServer]))
		}
		if spec := parts.Set.ControllerManager; spec != nil {
			r := k8s.NewControllerManagerConfig(prefix + component.ControllerManager)
			*r.TypedSpec() = *spec
			r.TypedSpec().Args = command(parts.Set, component.ControllerManager, prefix)
			list = append(list, versioned(r, parts.Versions[component.ControllerManager]))
		}
		if spec := parts.Set.Scheduler; spec != nil {
			r := k8s.NewSchedulerConfig(prefix + component.Scheduler)
			*r.TypedSpec() = *spec
			r.TypedSpec().Args = command(parts.Set, component.Scheduler, prefix)
			list = append(list, versioned(r, parts.Versions[component.Scheduler]))
		}
	}
	return list
}

// command is in the final resources only.
func command(set *component.Set, name, prefix string) []string {
	part, ok := set.Part(name)
	if !ok || prefix == "" {
		return nil
	}
	return part.Command()
}

func manifests(set *component.Set) []resource.Resource {
	if set.Bootstrap == nil {
		return nil
	}
	config := k8s.NewBootstrapManifestsConfig()
	*config.TypedSpec() = *set.Bootstrap
	list := []resource.Resource{config}
	for _, m := range set.Manifests() {
		r := k8s.NewManifest(k8s.ControlPlaneNamespaceName, m.ID)
		for _, obj := range m.Objects {
			r.TypedSpec().Items = append(r.TypedSpec().Items, k8s.SingleManifest{Object: obj})
		}
		list = append(list, r)
	}
	return list
}

// staticPod is the pod that Talos shows to the kubelet.
func staticPod(part component.Part, version, secrets int) map[string]any {
	command := make([]any, 0, len(part.Args)+1)
	for _, word := range part.Command() {
		command = append(command, word)
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"name": part.Name, "namespace": systemNamespace,
			"annotations": map[string]any{
				constants.AnnotationStaticPodConfigVersion:  strconv.Itoa(version),
				constants.AnnotationStaticPodSecretsVersion: strconv.Itoa(secrets),
			},
			"labels": map[string]any{"tier": "control-plane", "k8s-app": part.Name, "component": part.Name},
		},
		"spec": map[string]any{
			"hostNetwork": true, "priorityClassName": "system-cluster-critical",
			"containers": []any{map[string]any{"name": part.Name, "image": part.Image, "command": command}},
		},
	}
}

func podStatus(pod sim.Pod) map[string]any {
	ready := "False"
	state := map[string]any{"waiting": map[string]any{"reason": pod.Reason}}
	if pod.Ready {
		ready, state = "True", map[string]any{"running": map[string]any{}}
	}
	return map[string]any{
		"phase":      "Running",
		"conditions": []any{map[string]any{"type": "Ready", "status": ready}},
		"containerStatuses": []any{map[string]any{
			"name": pod.Name, "image": pod.Image, "ready": pod.Ready, "restartCount": int64(pod.Restarts), "state": state,
		}},
	}
}
