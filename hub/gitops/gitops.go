// SPDX-License-Identifier: Apache-2.0

// Package gitops writes a cluster down as files for Git: what it shall be, and nothing of what it is, of what is being done to it, or of what
// opens it.
package gitops

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
)

// Mark begins every file that an export writes. What does not begin with it belongs to somebody else.
const Mark = "# Written by: ichor gitops export."

// The files of a cluster's directory.
const (
	ClusterFile       = "cluster.yaml"
	TalosClusterFile  = "taloscluster.yaml"
	MachinesFile      = "machines.yaml"
	KustomizationFile = "kustomization.yaml"
)

// Files are all that an export may write into the directory of a cluster.
var Files = []string{ClusterFile, TalosClusterFile, MachinesFile, KustomizationFile}

// File is one file of an export.
type File struct {
	// Path is where it belongs, below the directory that is exported to: NAMESPACE/CLUSTER/taloscluster.yaml.
	Path string

	Content []byte
}

// Export is a cluster as files.
type Export struct {
	Files []File

	// Remarks say what was left out that somebody might look for.
	Remarks []string
}

// Of writes a cluster down. The same cluster gives the same files.
func Of(facts targets.Facts) (Export, error) {
	e := Export{}
	parts := []struct {
		file, says string
		objects    []client.Object
	}{
		{ClusterFile, "How Cluster API knows the cluster.", e.clusterOf(facts)},
		{TalosClusterFile, "What the cluster shall run. Change it here, and start the operation that brings it about: ichor upgrade, ichor config rollout.", []client.Object{facts.Cluster}},
		{MachinesFile, "The machines. To delete one here removes no machine from its cluster.", e.machinesOf(facts)},
	}
	dir := path.Join(facts.Cluster.Namespace, facts.Cluster.Name)
	var resources []string
	for _, part := range parts {
		if len(part.objects) == 0 {
			continue
		}
		content, err := manifests(part.says, part.objects)
		if err != nil {
			return Export{}, fmt.Errorf("writing %s of cluster %s: %w", part.file, dir, err)
		}
		e.Files = append(e.Files, File{path.Join(dir, part.file), content})
		resources = append(resources, part.file)
	}
	e.Files = append(e.Files, File{path.Join(dir, KustomizationFile), kustomization(resources)})
	return e, nil
}

// clusterOf is the Cluster, where it is the hub's to describe: one that Cluster API's providers made is in whatever made it.
func (e *Export) clusterOf(facts targets.Facts) []client.Object {
	switch {
	case facts.CAPICluster == nil:
		e.remark("there is no Cluster %s/%s: only the hub's own objects are written", facts.Cluster.Namespace, facts.Cluster.Name)
		return nil
	case facts.Adopted():
		e.remark("Cluster %s/%s is Cluster API's providers': it is left to whatever made it", facts.Cluster.Namespace, facts.Cluster.Name)
		return nil
	}
	return []client.Object{facts.CAPICluster}
}

// machinesOf are the machines that somebody has approved. Others may be anybody's: they are in Git once they belong to the cluster.
func (e *Export) machinesOf(facts targets.Facts) []client.Object {
	machines := slices.Clone(facts.Machines)
	slices.SortFunc(machines, func(a, b v1alpha1.TalosMachine) int { return strings.Compare(a.Name, b.Name) })
	var list []client.Object
	for i := range machines {
		machine := &machines[i]
		if machine.Spec.Approval != v1alpha1.Approved {
			e.remark("machine %s is left out until it is approved: ichor machine approve %[1]s", machine.Name)
			continue
		}
		list = append(list, machine)
	}
	return list
}

func (e *Export) remark(format string, args ...any) {
	e.Remarks = append(e.Remarks, fmt.Sprintf(format, args...))
}

// manifests writes objects as one file.
func manifests(says string, objects []client.Object) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s\n", Mark, says)
	for i, object := range objects {
		plain, err := declared(object)
		if err != nil {
			return nil, err
		}
		document, err := yaml.Marshal(plain)
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", object.GetName(), err)
		}
		if i > 0 {
			b.WriteString("---\n")
		}
		b.Write(document)
	}
	return b.Bytes(), nil
}

// declared is an object as somebody would write it: nothing that the API server or a controller has put there.
func declared(object client.Object) (map[string]any, error) {
	content, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", object.GetName(), err)
	}
	var fields map[string]any
	if err := json.Unmarshal(content, &fields); err != nil {
		return nil, fmt.Errorf("reading %s: %w", object.GetName(), err)
	}
	kind := kindOf(object)
	metadata := map[string]any{"name": object.GetName(), "namespace": object.GetNamespace()}
	if labels := kept(object.GetLabels(), keepLabel); len(labels) > 0 {
		metadata["labels"] = labels
	}
	if annotations := kept(object.GetAnnotations(), keepAnnotation); len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	plain := map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind, "metadata": metadata}
	if spec, ok := fields["spec"].(map[string]any); ok {
		for _, field := range actions[kind.Kind] {
			unstructured.RemoveNestedField(spec, field)
		}
		if len(spec) > 0 {
			plain["spec"] = spec
		}
	}
	return plain, nil
}

// actions are the fields of specs that ask for something to be done, or to be left, now. In Git they would be asked for again and again.
var actions = map[string][]string{"Cluster": {"paused"}, "TalosMachine": {"removal", "join"}}

func kindOf(object client.Object) schema.GroupVersionKind {
	switch object.(type) {
	case *clusterv1.Cluster:
		return clusterv1.GroupVersion.WithKind("Cluster")
	case *v1alpha1.TalosMachine:
		return v1alpha1.GroupVersion.WithKind("TalosMachine")
	}
	return v1alpha1.GroupVersion.WithKind("TalosCluster")
}

// kept are the labels or annotations that are people's.
func kept(all map[string]string, keep func(string) bool) map[string]any {
	list := map[string]any{}
	for key, value := range all {
		if keep(key) {
			list[key] = value
		}
	}
	return list
}

// tools put their marks on what they have applied, and do so again by themselves. The hub's own domain, and Cluster API's, is what
// controllers write; what people write of it is kept by name.
var tools = []string{
	"ichor.maesh.dev", "cluster.x-k8s.io", "clusterctl.cluster.x-k8s.io", "topology.cluster.x-k8s.io", "before-upgrade.hook.cluster.cluster.x-k8s.io",
	"kubectl.kubernetes.io", "applyset.kubernetes.io", "config.kubernetes.io", "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io", "argocd.argoproj.io",
	"meta.helm.sh", "velero.io",
}

func ofTool(key string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	return qualified && slices.Contains(tools, domain)
}

// keepLabel keeps what people chose machines and clusters by.
func keepLabel(key string) bool {
	switch key {
	case clusterv1.ClusterNameLabel, clusterv1.WatchLabel, v1alpha1.UpgradeOrderLabel:
		return true
	case "app.kubernetes.io/managed-by", "app.kubernetes.io/instance": // Argo CD's and Helm's.
		return false
	}
	return !ofTool(key)
}

func keepAnnotation(key string) bool {
	return key == v1alpha1.UpgradeHoldAnnotation || !ofTool(key)
}

// kustomization lists the files. The annotations keep Argo CD and Flux from deleting what is no longer in Git: to take a cluster out of the hub
// is `ichor cluster forget`, which looks first whether something is under way.
func kustomization(resources []string) []byte {
	var b strings.Builder
	b.WriteString(Mark + " Argo CD and Flux delete none of it when the directory goes: forget the cluster with ichor cluster forget.\n")
	b.WriteString("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n")
	for _, resource := range resources {
		b.WriteString("- " + resource + "\n")
	}
	b.WriteString("commonAnnotations:\n")
	b.WriteString("  argocd.argoproj.io/sync-options: Prune=false,Delete=false\n")
	b.WriteString("  kustomize.toolkit.fluxcd.io/prune: disabled\n")
	return []byte(b.String())
}

// Written says whether a file that is there was written by an export, and may be written again.
func Written(content []byte) bool { return bytes.HasPrefix(content, []byte(Mark)) }
