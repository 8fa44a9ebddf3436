// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/providers/installation"
)

// troubleWithin bounds the look at pods that do not get ready.
const troubleWithin = 5 * time.Second

// trouble says what a replica of the release waits for; nothing if none says anything.
func (o Options) trouble(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, troubleWithin)
	defer cancel()
	pods := &corev1.PodList{}
	if err := o.Client.List(ctx, pods, client.InNamespace(o.Namespace), client.MatchingLabels{"app.kubernetes.io/name": installation.DeploymentName}); err != nil {
		return ""
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if version, _ := installation.VersionOf(imageOf(pod)); version != o.To {
			continue
		}
		if words := installation.WordsOf(pod); words != "" {
			return fmt.Sprintf("; pod %s: %s", pod.Name, words)
		}
	}
	return ""
}

func imageOf(pod *corev1.Pod) string {
	for _, container := range pod.Spec.Containers {
		if container.Name == installation.ContainerName {
			return container.Image
		}
	}
	return ""
}
