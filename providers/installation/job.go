// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

const (
	// attempts is how often the installer is begun with before its Job gives up, beside the first time: the management API may be away.
	attempts = 2

	// JobDeadline bounds the Job as a whole, with the pull of the image.
	JobDeadline = 25 * time.Minute

	// keptFor is how long a Job that has ended is kept, with what its pods have logged.
	keptFor = 7 * 24 * time.Hour

	// terminationLog is where a pod leaves what it says in the end.
	terminationLog = "/dev/termination-log"

	// user is who the image runs as.
	user = 65532
)

// jobFor is the Job that brings the hub of a Deployment to a version: the image of that version, which has the manifests of its release in it.
// It is pulled, and placed on a node, as the hub itself is.
func jobFor(deployment *appsv1.Deployment, order Order) *batchv1.Job {
	hub, container := deployment.Spec.Template.Spec, containerOf(deployment)
	image, _ := ImageOf(container.Image, order.To)
	labels := map[string]string{"app.kubernetes.io/name": AccountName, "app.kubernetes.io/part-of": DeploymentName}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: deployment.Namespace, Name: order.Job, Labels: labels,
			Annotations: map[string]string{v1alpha1.UpgradedByAnnotation: order.Operation},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](attempts), ActiveDeadlineSeconds: ptr.To(int64(JobDeadline / time.Second)),
			TTLSecondsAfterFinished: ptr.To(int32(keptFor / time.Second)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: AccountName, EnableServiceLinks: ptr.To(false),
					ImagePullSecrets: hub.ImagePullSecrets, NodeSelector: hub.NodeSelector, Tolerations: hub.Tolerations, PriorityClassName: hub.PriorityClassName,
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](user), RunAsGroup: ptr.To[int64](user),
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{installer(image, container.ImagePullPolicy, order)},
				},
			},
		},
	}
}

func installer(image string, pull corev1.PullPolicy, order Order) corev1.Container {
	return corev1.Container{
		Name: "installer", Image: image, ImagePullPolicy: pull,
		Args: []string{"install", "--from=" + order.From, "--to=" + order.To, "--termination-log=" + terminationLog},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), RunAsNonRoot: ptr.To(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		TerminationMessagePath: terminationLog, TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}
