// SPDX-License-Identifier: Apache-2.0

// Package kube reaches the Kubernetes API of targets: lazily, uncached, and by way of any control plane that answers.
package kube

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/target"
)

// Provider hands out clients for targets. They are cheap: connections are kept and renewed behind them.
type Provider interface {
	// Reader reads a target. It fails when the credentials are missing or cannot be used.
	Reader(ctx context.Context, t target.Target) (Reader, error)

	// Writer changes a target; g is asked before every request that changes anything, evictions included.
	Writer(ctx context.Context, t target.Target, g guard.Func) (Writer, error)

	// Server reaches the API server of one control plane, by its own address, until it is closed. g is asked before it is told to sign or
	// to review a token, or to write; nothing else changes anything there.
	Server(ctx context.Context, t target.Target, g guard.Func, address string, port int) (server Server, closeIt func(), err error)
}

// Reader reads a target.
type Reader interface {
	// Version is the version of the API server, with its v.
	Version(ctx context.Context) (string, error)

	// Nodes lists the Nodes.
	Nodes(ctx context.Context) ([]Node, error)

	// Node reads one Node; nil means that there is none.
	Node(ctx context.Context, name string) (*Node, error)

	// ComponentPods lists the pods of the control plane's components.
	ComponentPods(ctx context.Context) ([]ComponentPod, error)

	// Workload reads a DaemonSet or a Deployment; nil means that there is none.
	Workload(ctx context.Context, kind, namespace, name string) (*Workload, error)

	// DeprecatedAPIs lists the deprecated APIs that somebody has asked the API server for since that started.
	DeprecatedAPIs(ctx context.Context) ([]DeprecatedAPI, error)

	// Stored says whether there are objects of an API.
	Stored(ctx context.Context, group, version, resource string) (bool, error)

	// DiffManifests says what ApplyManifests would do now, and changes nothing.
	DiffManifests(ctx context.Context, manifests []map[string]any, inventory bool) ([]ManifestChange, error)

	// LegacyTokens lists the Secrets that hold a token of a service account: nobody renews these.
	LegacyTokens(ctx context.Context) ([]LegacyToken, error)

	// Record reads the hub's record; the zero value means that there is none.
	Record(ctx context.Context) (Record, error)

	// Revision is the revision of etcd.
	Revision(ctx context.Context) (int64, error)
}

// Writer changes a target.
type Writer interface {
	Reader

	// Cordon makes a Node unschedulable and records owner in the same patch. A Node that is unschedulable already is left as it is.
	Cordon(ctx context.Context, node, owner string) error

	// Drain evicts the pods of a Node and waits until they are gone, for as long as ctx lives. Pods of DaemonSets, static pods and
	// pods that carry Cluster API's label to be skipped stay.
	Drain(ctx context.Context, node string) error

	// Uncordon makes a Node schedulable if owner cordoned it, and leaves it as it is otherwise.
	Uncordon(ctx context.Context, node, owner string) error

	// DeleteNode deletes the Node of a machine that has left, and says whether there was one. A Node of the same name that has another UUID is
	// another machine's, and stays.
	DeleteNode(ctx context.Context, name, uuid string) (deleted bool, err error)

	// ApplyManifests applies bootstrap manifests, but for objects that Helm, Flux, Argo CD or another inventory keeps. With an inventory
	// it is noted what was applied, and what was applied before and has no manifest any more goes. Repeating it is harmless.
	ApplyManifests(ctx context.Context, manifests []map[string]any, inventory bool) ([]ManifestChange, error)

	// WriteRecord writes the hub's record, if it is still what was read.
	WriteRecord(ctx context.Context, record Record) error

	// Rewrite has the API server write the objects of a kind again, as they are: the first ones behind the one that is named, as
	// namespace/name, at most limit. Repeating it is harmless.
	Rewrite(ctx context.Context, kind, after string, limit int) (Rewritten, error)

	// RemoveStale deletes what came back with an etcd of an earlier time and stands for nothing. Repeating it is harmless.
	RemoveStale(ctx context.Context, stale Stale) (Removed, error)

	// Annotate asks change what an annotation of a Node is to be, from what it is, and writes that if it is another. Empty means that
	// there is none.
	Annotate(ctx context.Context, node, key string, change func(now string) string) error
}

// Node are the facts of a Node that decisions depend on.
type Node struct {
	Name           string
	UUID           string
	ProviderID     string
	BootID         string
	KubeletVersion string
	OSImage        string
	Addresses      []string
	Ready          bool
	Unschedulable  bool
	ControlPlane   bool

	// CordonedBy is the operation that cordoned the Node; empty if none did.
	CordonedBy string

	// Storage are the annotations that a storage operator and the hub leave for each other, by key; nil where there are none.
	Storage map[string]string
}

// storageAnnotations are kept of a Node. All others are nobody's business here, and some of them change all the time.
var storageAnnotations = []string{v1alpha1.StorageReplicasAnnotation, v1alpha1.StorageEvacuatedByAnnotation}

// RunsTalos says whether a Node runs Talos. One that does not tell what it runs gets the benefit of the doubt: its machine must answer.
func (n Node) RunsTalos() bool { return n.OSImage == "" || strings.HasPrefix(n.OSImage, "Talos") }

// controlPlaneLabel marks the Nodes of control planes.
const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

func nodeFrom(n *corev1.Node) Node {
	node := Node{
		Name:           n.Name,
		UUID:           n.Status.NodeInfo.SystemUUID,
		ProviderID:     n.Spec.ProviderID,
		BootID:         n.Status.NodeInfo.BootID,
		KubeletVersion: n.Status.NodeInfo.KubeletVersion,
		OSImage:        n.Status.NodeInfo.OSImage,
		Unschedulable:  n.Spec.Unschedulable,
	}
	if node.Unschedulable { // Somebody else may have uncordoned it, and knows nothing of the annotation.
		node.CordonedBy = n.Annotations[v1alpha1.CordonedByAnnotation]
	}
	for _, key := range storageAnnotations {
		if value, ok := n.Annotations[key]; ok {
			if node.Storage == nil {
				node.Storage = map[string]string{}
			}
			node.Storage[key] = value
		}
	}
	_, node.ControlPlane = n.Labels[controlPlaneLabel]
	for _, address := range n.Status.Addresses {
		if address.Type == corev1.NodeInternalIP || address.Type == corev1.NodeExternalIP {
			node.Addresses = append(node.Addresses, address.Address)
		}
	}
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			node.Ready = condition.Status == corev1.ConditionTrue
		}
	}
	return node
}
