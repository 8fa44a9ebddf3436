// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/guard"
)

// connection implements Reader and Writer with one clientset.
type connection struct {
	clients kubernetes.Interface
	guard   guard.Func
}

// version asks the API server who it is. The discovery client would not heed ctx.
func (c *connection) version(ctx context.Context) ([]byte, error) {
	result := c.clients.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err // In the server's own words, which Raw has not.
	}
	return result.Raw()
}

func (c *connection) Version(ctx context.Context) (string, error) {
	data, err := c.version(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the version of the API server: %w", err)
	}
	var info version.Info
	if err := json.Unmarshal(data, &info); err != nil {
		return "", fmt.Errorf("reading the version of the API server: %w", err)
	}
	return info.GitVersion, nil
}

func (c *connection) Nodes(ctx context.Context) ([]Node, error) {
	list, err := c.clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	nodes := make([]Node, 0, len(list.Items))
	for i := range list.Items {
		nodes = append(nodes, nodeFrom(&list.Items[i]))
	}
	return nodes, nil
}

func (c *connection) Node(ctx context.Context, name string) (*Node, error) {
	found, err := c.clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	node := nodeFrom(found)
	return &node, nil
}

func (c *connection) Cordon(ctx context.Context, node, owner string) error {
	return c.setUnschedulable(ctx, node, func(n *corev1.Node) (bool, any) {
		return !n.Spec.Unschedulable, owner
	})
}

func (c *connection) Uncordon(ctx context.Context, node, owner string) error {
	return c.setUnschedulable(ctx, node, func(n *corev1.Node) (bool, any) {
		return n.Annotations[v1alpha1.CordonedByAnnotation] == owner, nil
	})
}

// setUnschedulable changes spec.unschedulable and the record of who did it in one patch: a cordon that somebody else makes in between
// stays theirs. decide says whether to change anything, and the new owner; no owner means schedulable.
func (c *connection) setUnschedulable(ctx context.Context, name string, decide func(*corev1.Node) (change bool, owner any)) error {
	err := c.patchNode(ctx, name, func(node *corev1.Node) map[string]any {
		change, owner := decide(node)
		if !change {
			return nil
		}
		var unschedulable any
		if owner != nil {
			unschedulable = true
		}
		return map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{v1alpha1.CordonedByAnnotation: owner}},
			"spec":     map[string]any{"unschedulable": unschedulable},
		}
	})
	if err != nil {
		return fmt.Errorf("changing whether node %s is schedulable: %w", name, err)
	}
	return nil
}

func (c *connection) Annotate(ctx context.Context, node, key string, change func(now string) string) error {
	err := c.patchNode(ctx, node, func(n *corev1.Node) map[string]any {
		now := n.Annotations[key]
		next := change(now)
		if next == now {
			return nil
		}
		var value any
		if next != "" {
			value = next
		}
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}}
	})
	if err != nil {
		return fmt.Errorf("annotating node %s with %s: %w", node, key, err)
	}
	return nil
}

// patchNode changes a Node only if it is still as it was read. decide returns a merge patch with metadata, or nothing.
func (c *connection) patchNode(ctx context.Context, name string, decide func(*corev1.Node) map[string]any) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := c.clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		patch := decide(node)
		if patch == nil {
			return nil
		}
		patch["metadata"].(map[string]any)["resourceVersion"] = node.ResourceVersion //nolint:forcetypeassert // See decide.
		data, err := json.Marshal(patch)
		if err != nil {
			return err
		}
		_, err = c.clients.CoreV1().Nodes().Patch(guard.With(ctx, c.guard), name, types.MergePatchType, data, metav1.PatchOptions{})
		return err
	})
}
