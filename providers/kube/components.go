// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// componentLabel is how Talos labels the pods of the control plane's components, and components are its values.
const (
	componentLabel = "k8s-app"
	components     = componentLabel + " in (kube-apiserver,kube-controller-manager,kube-scheduler)"
)

// ComponentPod is the pod of a component of the control plane, as the API server knows it: the mirror of a static pod.
type ComponentPod struct {
	// Component is its name, such as kube-apiserver, and Node where it runs.
	Component, Node string

	// Image is what it is told to run, and Running the image that its container has; empty while it has none.
	Image, Running string

	// ConfigVersion is the version of the config that Talos made it from.
	ConfigVersion string

	// Started is when its container was started, by the clock of its machine and in whole seconds; zero while it does not run.
	Started time.Time

	// Ready says that it is ready. Trouble says what its container suffers from, in the same words for the same fault.
	Ready   bool
	Trouble string
}

func (c *connection) ComponentPods(ctx context.Context) ([]ComponentPod, error) {
	list, err := c.clients.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: components})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of the control plane: %w", err)
	}
	var pods []ComponentPod
	for i := range list.Items {
		if pod := &list.Items[i]; pod.Annotations[corev1.MirrorPodAnnotationKey] != "" && len(pod.Spec.Containers) > 0 {
			pods = append(pods, componentPod(pod))
		}
	}
	slices.SortFunc(pods, func(a, b ComponentPod) int {
		return cmp.Or(cmp.Compare(a.Component, b.Component), cmp.Compare(a.Node, b.Node))
	})
	return pods, nil
}

func componentPod(pod *corev1.Pod) ComponentPod {
	found := ComponentPod{
		Component: pod.Labels[componentLabel], Node: pod.Spec.NodeName, Image: pod.Spec.Containers[0].Image,
		ConfigVersion: pod.Annotations[constants.AnnotationStaticPodConfigVersion],
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			found.Ready = condition.Status == corev1.ConditionTrue
		}
	}
	if len(pod.Status.ContainerStatuses) > 0 {
		if running := pod.Status.ContainerStatuses[0].State.Running; running != nil {
			found.Started = running.StartedAt.UTC()
		}
		found.Running, found.Trouble = pod.Status.ContainerStatuses[0].Image, containerTrouble(pod.Status.ContainerStatuses[0])
	}
	return found
}

// containerTrouble says why a container does not run: what the kubelet waits for, and how it ended last.
func containerTrouble(status corev1.ContainerStatus) string {
	ended := cmp.Or(status.State.Terminated, status.LastTerminationState.Terminated)
	how := ""
	if ended != nil {
		how = fmt.Sprintf("exit code %d", ended.ExitCode)
		if ended.Message != "" {
			how += ": " + ended.Message
		}
	}
	switch waiting := status.State.Waiting; {
	case waiting != nil && how != "":
		return fmt.Sprintf("%s (%s)", waiting.Reason, how)
	case waiting != nil && waiting.Message != "":
		return fmt.Sprintf("%s: %s", waiting.Reason, waiting.Message)
	case waiting != nil:
		return waiting.Reason
	case status.State.Terminated != nil:
		return how
	}
	return ""
}

// Workload is a DaemonSet or a Deployment, and how far its pods are.
type Workload struct {
	// Kind is DaemonSet or Deployment.
	Kind, Namespace, Name string

	// Images are those of its containers, in order.
	Images []string

	// Owner is who else keeps it as it is, such as a release of Helm; empty if nobody does.
	Owner string

	// Waiting says what its rollout waits for; empty once all its pods are those of now and available.
	Waiting string
}

// Kinds of workloads.
const (
	DaemonSetKind  = "DaemonSet"
	DeploymentKind = "Deployment"
)

func (c *connection) Workload(ctx context.Context, kind, namespace, name string) (*Workload, error) {
	found := &Workload{Kind: kind, Namespace: namespace, Name: name}
	switch kind {
	case DaemonSetKind:
		set, err := c.clients.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, absent(err, "DaemonSet %s/%s", namespace, name)
		}
		status := set.Status
		found.Images, found.Owner = imagesOf(set.Spec.Template.Spec), ownerOf(set, kind)
		found.Waiting = rollout(set.Generation <= status.ObservedGeneration, status.UpdatedNumberScheduled, status.NumberAvailable, status.DesiredNumberScheduled)
	case DeploymentKind:
		deployment, err := c.clients.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, absent(err, "Deployment %s/%s", namespace, name)
		}
		status, wanted := deployment.Status, int32(1)
		if deployment.Spec.Replicas != nil {
			wanted = *deployment.Spec.Replicas
		}
		found.Images, found.Owner = imagesOf(deployment.Spec.Template.Spec), ownerOf(deployment, kind)
		found.Waiting = rollout(deployment.Generation <= status.ObservedGeneration, status.UpdatedReplicas, status.AvailableReplicas, wanted)
	default:
		return nil, fmt.Errorf("kind %q is no workload: it is %s or %s", kind, DaemonSetKind, DeploymentKind)
	}
	return found, nil
}

func imagesOf(spec corev1.PodSpec) []string {
	images := make([]string, 0, len(spec.Containers))
	for _, container := range spec.Containers {
		images = append(images, container.Image)
	}
	return images
}

// rollout says what a rollout waits for.
func rollout(observed bool, updated, available, wanted int32) string {
	switch {
	case !observed:
		return "its controller has not seen it yet"
	case updated < wanted:
		return fmt.Sprintf("%d of %d pods are new", updated, wanted)
	case available < wanted:
		return fmt.Sprintf("%d of %d pods are available", available, wanted)
	}
	return ""
}
