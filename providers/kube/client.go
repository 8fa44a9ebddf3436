// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/kubectl/pkg/drain"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/progress"
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

// setUnschedulable changes spec.unschedulable and the record of who did it in one patch, and only if the Node is still as it was
// read: a cordon that somebody else makes in between stays theirs. decide says whether to change anything, and the new owner;
// no owner means schedulable.
func (c *connection) setUnschedulable(ctx context.Context, name string, decide func(*corev1.Node) (change bool, owner any)) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := c.clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change, owner := decide(node)
		if !change {
			return nil
		}
		var unschedulable any
		if owner != nil {
			unschedulable = true
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{
				"resourceVersion": node.ResourceVersion,
				"annotations":     map[string]any{v1alpha1.CordonedByAnnotation: owner},
			},
			"spec": map[string]any{"unschedulable": unschedulable},
		})
		if err != nil {
			return err
		}
		_, err = c.clients.CoreV1().Nodes().Patch(guard.With(ctx, c.guard), name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("changing whether node %s is schedulable: %w", name, err)
	}
	return nil
}

// evictAgain is the pause between attempts to evict a pod that a disruption budget keeps.
const evictAgain = time.Second

func (c *connection) Drain(ctx context.Context, node string) error {
	ctx, stop := context.WithCancel(guard.With(ctx, c.guard))
	defer stop()
	evictor := &evictor{Interface: c.clients, stop: stop}
	trouble := &lastWords{ctx: ctx}
	err := drain.RunNodeDrain(drainHelper(ctx, evictor, trouble), node)
	if refused := evictor.refusal(); refused != nil {
		return fmt.Errorf("draining node %s: %w", node, refused)
	}
	if err != nil {
		return fmt.Errorf("draining node %s: %w%s", node, err, trouble)
	}
	return nil
}

func drainHelper(ctx context.Context, clients kubernetes.Interface, trouble io.Writer) *drain.Helper {
	return &drain.Helper{
		Ctx:                  ctx,
		Client:               clients,
		Force:                true, // A pod without a controller dies in the reboot in any case; evicted, it ends in good order.
		DeleteEmptyDirData:   true,
		IgnoreAllDaemonSets:  true,
		GracePeriodSeconds:   -1,
		Timeout:              drainTimeout(ctx),
		EvictErrorRetryDelay: evictAgain,
		Out:                  io.Discard,
		ErrOut:               trouble,
	}
}

// drainTimeout ends the drain a little before its context does, so that the error says which pods stayed.
func drainTimeout(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	left := time.Until(deadline)
	return left - left/20
}

// lastWords keeps the last thing that a drain said, for the error, and reports it while the drain goes on.
type lastWords struct {
	ctx context.Context //nolint:containedctx // Of the one drain that it belongs to.

	mu   sync.Mutex
	line string
}

// Write implements io.Writer.
func (w *lastWords) Write(p []byte) (int, error) {
	lines := strings.Split(strings.TrimSpace(string(p)), "\n")
	if last := lines[len(lines)-1]; last != "" && !strings.HasPrefix(last, "WARNING: ") { // What it leaves alone is no trouble.
		w.mu.Lock()
		w.line = last
		w.mu.Unlock()
		progress.Report(w.ctx, last)
	}
	return len(p), nil
}

// String is the last thing in parentheses, or nothing.
func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.line == "" {
		return ""
	}
	return " (" + w.line + ")"
}
