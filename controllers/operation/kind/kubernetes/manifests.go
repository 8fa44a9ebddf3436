// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/kubernetes/machineimage"
	"ichor.maesh.dev/hub/controllers/versions"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// workload names a workload.
type workload struct{ kind, namespace, name string }

// proxyWorkload is kube-proxy, whose image is the only one in the manifests that goes with the version of Kubernetes.
var proxyWorkload = workload{kube.DaemonSetKind, "kube-system", string(machineimage.Proxy)}

// syncing applies the bootstrap manifests, and waits until what they describe runs.
func syncing(_ kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	found, _ := seen.Own.(clusterLook)
	switch step := unit.Status.Step; {
	case step == "":
		if wait := unseen(unit, found.trouble); wait != nil {
			return *wait
		}
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.SyncingStep}
	case step == v1alpha1.SyncingStep && unit.Failed():
		return kind.FailStep(unit, "")
	case step == v1alpha1.SyncingStep:
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.RollingOutStep, Message: "waiting until the workloads of the manifests run"}
	case found.trouble != "":
		return *unseen(unit, found.trouble)
	case len(found.unready) > 0:
		return kind.Action{Verdict: kind.Wait, Message: "waiting for " + found.unready[0] + andMore(len(found.unready)-1)}
	}
	return kind.Action{Verdict: kind.Done}
}

// sync applies the bootstrap manifests of the cluster once its control planes render those of the target.
func (e *Executor) sync(ctx context.Context, scope kind.Scope) (kind.Outcome, error) {
	manifests, err := e.manifests(ctx, scope)
	if err != nil {
		return kind.Outcome{}, err
	}
	if image := proxyImageIn(manifests); image != "" && versionOf(image, "") != scope.Target.KubernetesVersion {
		return kind.Outcome{}, &laterError{fmt.Sprintf("Talos renders kube-proxy as %s still", image)}
	}
	writer, err := e.Kube.Writer(ctx, scope.Cluster, scope.Guard)
	if err != nil {
		return kind.Outcome{}, err
	}
	changes, err := writer.ApplyManifests(ctx, manifests, keepsInventory(scope))
	if err != nil {
		return kind.Outcome{}, err
	}
	return kind.Outcome{Message: summary(changes)}, nil
}

// Preview says what the last stage would change in a cluster now, and what it would leave to its owners.
func (e *Executor) Preview(ctx context.Context, scope kind.Scope) ([]kube.ManifestChange, error) {
	reader, err := e.Kube.Reader(ctx, scope.Cluster)
	if err != nil {
		return nil, err
	}
	changes, err := e.preview(ctx, scope, reader)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(changes, func(c kube.ManifestChange) bool { return c.Action == kube.ManifestUnchanged }), nil
}

// preview is what sync would do, if control planes rendered the manifests of the target already.
func (e *Executor) preview(ctx context.Context, scope kind.Scope, reader kube.Reader) ([]kube.ManifestChange, error) {
	manifests, err := e.manifests(ctx, scope)
	if err != nil {
		return nil, err
	}
	for i, manifest := range manifests {
		object := (&unstructured.Unstructured{Object: manifest}).DeepCopy()
		if isProxy(object) {
			if err := setImages(object, scope.Target.KubernetesVersion); err != nil {
				return nil, err
			}
			manifests[i] = object.Object
		}
	}
	return reader.DiffManifests(ctx, manifests, keepsInventory(scope))
}

// manifests are those that the first control plane renders which answers: all of them have the same config as far as these go.
func (e *Executor) manifests(ctx context.Context, scope kind.Scope) ([]map[string]any, error) {
	reader, err := e.Talos.Reader(ctx, scope.Cluster)
	if err != nil {
		return nil, err
	}
	var failed error
	for _, machine := range scope.Approved {
		if machine.Spec.Role != v1alpha1.ControlPlaneRole {
			continue
		}
		manifests, err := reader.Manifests(ctx, machine.Spec.Address)
		if err == nil {
			return manifests, nil
		}
		if failed = err; talos.Classify(err) == v1alpha1.ErrorPermanent {
			break
		}
	}
	if failed == nil {
		failed = errors.New("no control plane is known")
	}
	return nil, failed
}

// keepsInventory says whether Talos keeps an inventory of its manifests: the hub keeps none that Talos would not know of.
func keepsInventory(scope kind.Scope) bool {
	return !slices.ContainsFunc(scope.Approved, func(m *v1alpha1.TalosMachine) bool {
		running, err := versions.Parse(m.Status.TalosVersion)
		return m.Spec.Role == v1alpha1.ControlPlaneRole && (err != nil || !versions.HasLifecycleAPI(running))
	})
}

func isProxy(object *unstructured.Unstructured) bool {
	return object.GetKind() == proxyWorkload.kind && object.GetNamespace() == proxyWorkload.namespace && object.GetName() == proxyWorkload.name
}

// containersPath is where a workload has its containers.
var containersPath = []string{"spec", "template", "spec", "containers"}

// proxyImageIn is the image of kube-proxy among manifests; empty if it is not among them.
func proxyImageIn(manifests []map[string]any) string {
	for _, manifest := range manifests {
		object := &unstructured.Unstructured{Object: manifest}
		containers, _, _ := unstructured.NestedSlice(object.Object, containersPath...)
		if !isProxy(object) || len(containers) == 0 {
			continue
		}
		container, _ := containers[0].(map[string]any)
		image, _ := container["image"].(string)
		return image
	}
	return ""
}

// setImages gives the containers of a workload the version of the target.
func setImages(object *unstructured.Unstructured, version string) error {
	containers, _, err := unstructured.NestedSlice(object.Object, containersPath...)
	if err != nil {
		return finding("the manifest of kube-proxy: %s", err)
	}
	for _, item := range containers {
		container, _ := item.(map[string]any)
		current, _ := container["image"].(string)
		next, _, err := wanted(current, version)
		if err != nil {
			return finding("the manifest of kube-proxy: %s", err)
		}
		container["image"] = next
	}
	return unstructured.SetNestedSlice(object.Object, containers, containersPath...)
}

// unfinished are the workloads of the manifests that do not run yet as they were applied.
func (e *Executor) unfinished(ctx context.Context, scope kind.Scope) (unfinished []string, trouble string) {
	manifests, err := e.manifests(ctx, scope)
	if err != nil {
		return nil, "no control plane tells its manifests: " + talos.Trouble(err)
	}
	reader, err := e.Kube.Reader(ctx, scope.Cluster)
	if err != nil {
		return nil, kubeTrouble(kube.Trouble(err))
	}
	for _, manifest := range manifests {
		object := &unstructured.Unstructured{Object: manifest}
		if kind := object.GetKind(); kind != kube.DaemonSetKind && kind != kube.DeploymentKind {
			continue
		}
		live, err := reader.Workload(ctx, object.GetKind(), object.GetNamespace(), object.GetName())
		if err != nil {
			return nil, kubeTrouble(kube.Trouble(err))
		}
		if waiting := rollout(scope, object, live); waiting != "" {
			unfinished = append(unfinished, fmt.Sprintf("%s %s/%s: %s", object.GetKind(), object.GetNamespace(), object.GetName(), waiting))
		}
	}
	return unfinished, ""
}

// rollout says what a workload waits for. What somebody else keeps is theirs to wait for.
func rollout(scope kind.Scope, manifest *unstructured.Unstructured, live *kube.Workload) string {
	switch {
	case live == nil:
		return "it is not there"
	case live.Owner != "":
		return ""
	case isProxy(manifest) && len(live.Images) > 0 && versionOf(live.Images[0], "") != scope.Target.KubernetesVersion:
		return fmt.Sprintf("it is %s", live.Images[0])
	}
	return live.Waiting
}

// summary says in one line what becomes of the manifests.
func summary(changes []kube.ManifestChange) string {
	objects := map[kube.ManifestAction][]string{}
	for _, change := range changes {
		name := change.Object
		if change.Owner != "" {
			name += ", " + change.Owner
		}
		objects[change.Action] = append(objects[change.Action], name)
	}
	var parts []string
	for _, part := range []struct {
		action kube.ManifestAction
		words  string
	}{
		{kube.ManifestCreated, "created"}, {kube.ManifestConfigured, "changed"}, {kube.ManifestPruned, "deleted"}, {kube.ManifestSkipped, "left to their owners"},
	} {
		if names := objects[part.action]; len(names) > 0 {
			parts = append(parts, fmt.Sprintf("%d %s (%s%s)", len(names), part.words, names[0], ellipsis(names)))
		}
	}
	parts = append(parts, fmt.Sprintf("%d unchanged", len(objects[kube.ManifestUnchanged])))
	return "manifests: " + strings.Join(parts, ", ")
}

func ellipsis(names []string) string {
	if len(names) < 2 {
		return ""
	}
	return ", …"
}
