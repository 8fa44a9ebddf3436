// SPDX-License-Identifier: Apache-2.0

// Package installation is the hub's own installation on its management cluster: the Deployment that it runs in, and the Jobs that upgrade it.
package installation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/tracked"
)

const (
	// DeploymentName is the hub's Deployment, and ContainerName its container in there: all ways to install the hub have the same names.
	DeploymentName = "ichor-hub"
	ContainerName  = "manager"

	// AccountName is the ServiceAccount of the Jobs that upgrade the hub.
	AccountName = "ichor-installer"
)

// Provider reaches the installation.
type Provider interface {
	// Look looks at the Deployment, and at the Job of a name.
	Look(ctx context.Context, job string) (Look, error)

	// Install has a Job bring the hub to a version. A Job of that name that runs or has succeeded is left as it is, and one that has failed is
	// replaced: repeating the call is harmless. g is asked before every change. It returns the image that the Job runs.
	Install(ctx context.Context, order Order, g guard.Func) (image string, err error)
}

// Order is an upgrade of the hub.
type Order struct {
	// Job is the name of the Job.
	Job string

	// Operation is the operation that orders it, as namespace/name.
	Operation string

	// From and To are the versions. From is what the hub that orders it is.
	From, To string
}

// Look is what was seen of the installation.
type Look struct {
	// Deployment is nil if there is none, or none with the hub's container.
	Deployment *Deployment

	// Job is nil if there is none.
	Job *Job
}

// Deployment is what the hub runs in.
type Deployment struct {
	// Image is the image of the hub's container.
	Image string

	// RolledOut says that all replicas are ready and of the present template, and no others are left. Otherwise Waits says how far it is.
	RolledOut bool
	Waits     string
}

// JobState is how far a Job is.
type JobState string

const (
	// JobRunning has not ended.
	JobRunning JobState = "Running"

	// JobSucceeded has done what it is for.
	JobSucceeded JobState = "Succeeded"

	// JobFailed has given up.
	JobFailed JobState = "Failed"
)

// Job is what upgrades the hub.
type Job struct {
	State JobState

	// Message is what its last pod said, or waits for.
	Message string
}

// Obstacle is why an operation cannot upgrade the hub.
type Obstacle struct {
	// Reason is that of condition Upgradable.
	Reason string

	// Message says why, and who can upgrade the hub instead.
	Message string
}

// Error makes an obstacle that is met in the middle of an upgrade an error.
func (o *Obstacle) Error() string { return o.Message }

// Described is what a Deployment says of itself; nil if it has no container of the hub.
func Described(deployment *appsv1.Deployment) *Deployment {
	container := containerOf(deployment)
	if container == nil {
		return nil
	}
	d := &Deployment{Image: container.Image}
	wanted, status := ptr.Deref(deployment.Spec.Replicas, 1), deployment.Status
	switch {
	case status.ObservedGeneration < deployment.Generation:
		d.Waits = "the Deployment was changed just now"
	case status.UpdatedReplicas < wanted:
		d.Waits = fmt.Sprintf("%d of %d replicas are of the new version", status.UpdatedReplicas, wanted)
	case status.Replicas > status.UpdatedReplicas:
		d.Waits = fmt.Sprintf("replicas of the old version are left: %d", status.Replicas-status.UpdatedReplicas)
	case status.AvailableReplicas < wanted:
		d.Waits = fmt.Sprintf("%d of %d replicas are ready", status.AvailableReplicas, wanted)
	default:
		d.RolledOut = true
	}
	return d
}

func containerOf(deployment *appsv1.Deployment) *corev1.Container {
	if deployment == nil {
		return nil
	}
	containers := deployment.Spec.Template.Spec.Containers
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == ContainerName })
	if i < 0 {
		return nil
	}
	return &containers[i]
}

// InTheWay says why an operation cannot upgrade a Deployment; nil means that it can. Whoever keeps it as it was described elsewhere would undo
// the upgrade at once, or at the next change there.
func InTheWay(deployment *appsv1.Deployment, namespace string) *Obstacle {
	container := containerOf(deployment)
	if container == nil {
		return &Obstacle{v1alpha1.HubDeploymentMissingReason, fmt.Sprintf(
			"there is no Deployment %s with a container %s in namespace %s: upgrade the hub in the way in which it was installed", DeploymentName, ContainerName, namespace)}
	}
	if who := tracked.ByGit(deployment, "Deployment"); who != "" {
		return &Obstacle{v1alpha1.HubTrackedReason, fmt.Sprintf("Deployment %s is kept by %s, which would undo an upgrade: upgrade the hub there", DeploymentName, who)}
	}
	if who := tracked.ByHelm(deployment); who != "" {
		return &Obstacle{v1alpha1.HubTrackedReason, fmt.Sprintf("Deployment %s is of %s, which would undo an upgrade: upgrade the hub with: helm upgrade", DeploymentName, who)}
	}
	if who := tracked.ByClusterctl(deployment); who != "" {
		return &Obstacle{v1alpha1.HubTrackedReason, fmt.Sprintf(
			"Deployment %s is of %s, which would not know of an upgrade: upgrade the hub with: clusterctl upgrade apply --addon %s/ichor:VERSION", DeploymentName, who, namespace)}
	}
	if _, ok := ImageOf(container.Image, "v0.0.0"); !ok {
		return &Obstacle{v1alpha1.HubImagePinnedReason, fmt.Sprintf(
			"Deployment %s names image %.128s by its digest: upgrade the hub by the manifests, with the digest of the new version", DeploymentName, container.Image)}
	}
	return nil
}

// VersionOf is the version that an image is tagged with. One that is named by a digest has none.
func VersionOf(image string) (string, bool) {
	plain, ok := ImageOf(image, "")
	tag := strings.TrimPrefix(image, plain)
	return tag, ok && tag != "" && plain+tag == image
}

// ImageOf is an image in another version. One that is named by a digest has none.
func ImageOf(image, version string) (string, bool) {
	if strings.Contains(image, "@") {
		return "", false
	}
	if slash, colon := strings.LastIndex(image, "/"), strings.LastIndex(image, ":"); colon > slash {
		image = image[:colon] // Otherwise it is the port of a registry.
	}
	return image + ":" + version, true
}
