// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// WaitFor waits until all conditions hold for an operation at once, and returns it as it was then. Its error shows the operation.
func (h *Harness) WaitFor(ctx context.Context, op *v1alpha1.TalosOperation, all ...Condition[*v1alpha1.TalosOperation]) (*v1alpha1.TalosOperation, error) {
	return await(ctx, h.Client, &v1alpha1.TalosOperationList{}, op.Name, ShowOperation, all)
}

// WaitForCluster is WaitFor for a TalosCluster.
func (h *Harness) WaitForCluster(ctx context.Context, name string, all ...Condition[*v1alpha1.TalosCluster]) (*v1alpha1.TalosCluster, error) {
	return await(ctx, h.Client, &v1alpha1.TalosClusterList{}, name, showCluster, all)
}

// WaitForGone waits until an operation is deleted.
func (h *Harness) WaitForGone(ctx context.Context, op *v1alpha1.TalosOperation) error {
	watcher, err := watchOne(ctx, h.Client, &v1alpha1.TalosOperationList{}, op.Name)
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if event.Type == watch.Deleted {
			return nil
		}
	}
	return fmt.Errorf("waiting until operation %s is deleted: %w", op.Name, ctx.Err())
}

func watchOne(ctx context.Context, c client.WithWatch, list client.ObjectList, name string) (watch.Interface, error) {
	watcher, err := c.Watch(ctx, list, client.InNamespace(Namespace), client.MatchingFields{metav1.ObjectNameField: name})
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", name, err)
	}
	return watcher, nil
}

func await[T client.Object](
	ctx context.Context, c client.WithWatch, list client.ObjectList, name string, show func(T) string, all []Condition[T],
) (T, error) {
	var last T
	watcher, err := watchOne(ctx, c, list, name)
	if err != nil {
		return last, err
	}
	defer watcher.Stop()
	missing := all
	for event := range watcher.ResultChan() {
		object, ok := event.Object.(T)
		if !ok || event.Type == watch.Deleted {
			return last, fmt.Errorf("waiting for %s: %s %v", name, event.Type, event.Object)
		}
		last = object
		if missing = lacking(object, all); len(missing) == 0 {
			return object, nil
		}
	}
	says := make([]string, 0, len(missing))
	for _, condition := range missing {
		says = append(says, condition.Says)
	}
	return last, fmt.Errorf("waiting for %s to be %s: %w; it is\n%s", name, strings.Join(says, " and "), ctx.Err(), show(last))
}

func lacking[T client.Object](object T, all []Condition[T]) (missing []Condition[T]) {
	for _, condition := range all {
		if !condition.Holds(object) {
			missing = append(missing, condition)
		}
	}
	return missing
}

// ShowOperation describes an operation for people who ask why it does not move.
func ShowOperation(op *v1alpha1.TalosOperation) string {
	if op == nil {
		return "not there"
	}
	lines := []string{"phase " + string(op.Status.Phase) + ", stage " + op.Status.Stage + ", failure " + op.Status.FailureReason}
	for _, u := range slices.Concat(op.Status.Machines, op.Status.Units) {
		line := fmt.Sprintf("%s: %s, stage %s, step %s: %s", u.Name, u.Phase, u.Stage, u.Step, u.Message)
		if u.Outcome != nil {
			line += fmt.Sprintf(" (%s %s %s)", u.Outcome.Result, u.Outcome.Class, u.Outcome.Message)
		}
		lines = append(lines, line)
	}
	return strings.Join(append(lines, showConditions(op.Status.Conditions)), "\n")
}

func showCluster(cluster *v1alpha1.TalosCluster) string {
	if cluster == nil {
		return "not there"
	}
	return showConditions(cluster.Status.Conditions)
}

func showConditions(conditions []metav1.Condition) string {
	lines := make([]string, 0, len(conditions))
	for _, c := range conditions {
		lines = append(lines, fmt.Sprintf("%s=%s %s %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(lines, "\n")
}
