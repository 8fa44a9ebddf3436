// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/drain"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/progress"
)

// evictAgain is the pause between attempts to evict a pod that a disruption budget keeps.
const evictAgain = time.Second

func (c *connection) Drain(ctx context.Context, node string) error {
	ctx, stop := context.WithCancel(guard.With(ctx, c.guard))
	defer stop()
	evictor := &evictor{Interface: c.clients, stop: stop}
	trouble := &lastWords{ctx: ctx, kept: evictor.keptPods}
	helper := drainHelper(ctx, evictor, trouble)
	if found, err := c.clients.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); err == nil && unreachable(found) {
		// Nobody there confirms that a pod has ended: one that was asked to does not hold up the drain. Cluster API drains them so, too.
		helper.GracePeriodSeconds, helper.SkipWaitForDeleteTimeoutSeconds = 1, 1
	}
	err := drain.RunNodeDrain(helper, node)
	refused, kept := evictor.refusal(), evictor.keptPods()
	switch {
	case refused != nil:
		return fmt.Errorf("draining node %s: %w", node, refused)
	case err != nil && kept != "":
		return fmt.Errorf("draining node %s: %w", node, &keptError{pods: kept, cause: err})
	case err != nil:
		return fmt.Errorf("draining node %s: %w%s", node, err, trouble)
	}
	return nil
}

// keptError says which pods disruption budgets keep, and not how a drain words that it has ended.
type keptError struct {
	pods  string
	cause error
}

// Error implements error.
func (e *keptError) Error() string { return e.pods }

// Unwrap implements errors.Unwrap.
func (e *keptError) Unwrap() error { return e.cause }

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
		AdditionalFilters:    []drain.PodFilter{asLabelled},
		Out:                  io.Discard,
		ErrOut:               trouble,
	}
}

// unreachable says whether the kubelet of a Node has been silent for so long that Kubernetes does not know how the Node is.
func unreachable(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
}

// Values of Cluster API's label on pods, which says what a drain does with them.
const (
	skipPod         = "skip"
	waitForPodToEnd = "wait-completed"
)

// asLabelled heeds what Cluster API's label on a pod asks of whoever drains its Node. It is how storage keeps the pods that have to
// serve others until the machine goes down. A pod that is to complete first holds up the whole drain, within the deadline of its step.
func asLabelled(pod corev1.Pod) drain.PodDeleteStatus {
	switch ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed; {
	case pod.Labels[clusterv1.PodDrainLabel] == skipPod:
		return drain.MakePodDeleteStatusSkip()
	case pod.Labels[clusterv1.PodDrainLabel] == waitForPodToEnd && !ended:
		return drain.MakePodDeleteStatusWithError(fmt.Sprintf("waiting for it to complete (label %s)", clusterv1.PodDrainLabel))
	}
	return drain.MakePodDeleteStatusOkay()
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
	ctx  context.Context //nolint:containedctx // Of the one drain that it belongs to.
	kept func() string   // Says better what budgets keep.

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
		progress.Report(w.ctx, cmp.Or(w.kept(), last))
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
