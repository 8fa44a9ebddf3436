// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/providers/guard"
)

// Live is the installation in a namespace of the management cluster.
type Live struct {
	// Client writes, and Reader reads past every cache.
	Client client.Client
	Reader client.Reader

	// Namespace is the hub's own.
	Namespace string
}

// Look implements Provider.
func (l *Live) Look(ctx context.Context, job string) (Look, error) {
	deployment, err := l.deployment(ctx)
	if err != nil {
		return Look{}, err
	}
	found, err := l.job(ctx, job)
	if err != nil || found == nil {
		return Look{Deployment: Described(deployment)}, err
	}
	seen := Look{Deployment: Described(deployment), Job: &Job{State: stateOf(found)}}
	if seen.Job.State == JobSucceeded {
		return seen, nil
	}
	seen.Job.Message, err = l.lastWords(ctx, found)
	return seen, err
}

// Install implements Provider.
func (l *Live) Install(ctx context.Context, order Order, g guard.Func) (string, error) {
	ctx = guard.With(ctx, g)
	deployment, err := l.deployment(ctx)
	if err != nil {
		return "", err
	}
	if obstacle := InTheWay(deployment, l.Namespace); obstacle != nil {
		return "", obstacle
	}
	job := jobFor(deployment, order)
	image := job.Spec.Template.Spec.Containers[0].Image
	existing, err := l.job(ctx, order.Job)
	switch {
	case err != nil:
		return "", err
	case existing != nil && stateOf(existing) != JobFailed:
		return image, nil
	case existing != nil:
		if err := l.remove(ctx, existing); err != nil {
			return "", err
		}
	}
	if err := guard.Check(ctx, "creating Job "+order.Job); err != nil {
		return "", err
	}
	if err := l.Client.Create(ctx, job); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("creating Job %s: %w", order.Job, err)
	} else if err != nil && existing != nil {
		return "", fmt.Errorf("creating Job %s: the failed one is not gone yet", order.Job)
	}
	return image, nil
}

func (l *Live) remove(ctx context.Context, job *batchv1.Job) error {
	if err := guard.Check(ctx, "deleting Job "+job.Name); err != nil {
		return err
	}
	err := l.Client.Delete(ctx, job, client.PropagationPolicy("Background"), client.Preconditions{UID: &job.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Job %s, which has failed: %w", job.Name, err)
	}
	return nil
}

func (l *Live) deployment(ctx context.Context) (*appsv1.Deployment, error) {
	deployment := &appsv1.Deployment{}
	switch err := l.Reader.Get(ctx, client.ObjectKey{Namespace: l.Namespace, Name: DeploymentName}, deployment); {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // Nothing is what there is.
	case err != nil:
		return nil, fmt.Errorf("reading Deployment %s: %w", DeploymentName, err)
	}
	return deployment, nil
}

func (l *Live) job(ctx context.Context, name string) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	switch err := l.Reader.Get(ctx, client.ObjectKey{Namespace: l.Namespace, Name: name}, job); {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // Likewise.
	case err != nil:
		return nil, fmt.Errorf("reading Job %s: %w", name, err)
	}
	return job, nil
}

// lastWords are what the last pod of a Job said when it ended, or waits for, after what the Job says of itself.
func (l *Live) lastWords(ctx context.Context, job *batchv1.Job) (string, error) {
	pods := &corev1.PodList{}
	if err := l.Reader.List(ctx, pods, client.InNamespace(l.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
		return "", fmt.Errorf("listing the pods of Job %s: %w", job.Name, err)
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	own := ""
	for _, condition := range job.Status.Conditions {
		if condition.Type == batchv1.JobFailed && condition.Status == corev1.ConditionTrue {
			own = condition.Reason
		}
	}
	for _, pod := range pods.Items {
		if words := WordsOf(&pod); words != "" && own != "" {
			return fmt.Sprintf("%s (%s)", words, own), nil
		} else if words != "" {
			return words, nil
		}
	}
	return own, nil
}

// WordsOf are what a pod said when it ended, or what its container waits for.
func WordsOf(pod *corev1.Pod) string {
	for _, container := range pod.Status.ContainerStatuses {
		switch state := container.State; {
		case state.Terminated != nil:
			return cmp.Or(state.Terminated.Message, state.Terminated.Reason)
		case state.Waiting != nil && state.Waiting.Message != "":
			return fmt.Sprintf("%s: %s", state.Waiting.Reason, state.Waiting.Message)
		case state.Waiting != nil:
			return state.Waiting.Reason
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Message
		}
	}
	return pod.Status.Message
}

func stateOf(job *batchv1.Job) JobState {
	for _, condition := range job.Status.Conditions {
		switch {
		case condition.Status != corev1.ConditionTrue:
		case condition.Type == batchv1.JobComplete:
			return JobSucceeded
		case condition.Type == batchv1.JobFailed:
			return JobFailed
		}
	}
	return JobRunning
}
