// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestImages(t *testing.T) {
	g := NewWithT(t)
	for image, want := range map[string]string{
		"ichor-hub": "ichor-hub:v0.2.0", "registry.example:5000/ichor-hub": "registry.example:5000/ichor-hub:v0.2.0",
		"registry.example:5000/ichor-hub:v0.1.0": "registry.example:5000/ichor-hub:v0.2.0",
	} {
		other, ok := ImageOf(image, "v0.2.0")
		g.Expect(ok).To(BeTrue())
		g.Expect(other).To(Equal(want))
	}
	_, ok := ImageOf("ichor-hub:v0.1.0@sha256:00", "v0.2.0")
	g.Expect(ok).To(BeFalse())
	tag, ok := VersionOf("registry.example:5000/ichor-hub:v0.1.0")
	g.Expect(tag).To(Equal("v0.1.0"))
	g.Expect(ok).To(BeTrue())
	for _, untagged := range []string{"registry.example:5000/ichor-hub", "ichor-hub@sha256:00"} {
		_, ok = VersionOf(untagged)
		g.Expect(ok).To(BeFalse(), untagged)
	}
}

func hub() *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ichor-system", Name: DeploymentName, Generation: 3}}
	d.Spec.Replicas = ptr.To[int32](2)
	d.Spec.Template.Spec = corev1.PodSpec{
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}}, NodeSelector: map[string]string{"pool": "mgmt"},
		Containers: []corev1.Container{{Name: "sidecar"}, {Name: ContainerName, Image: "registry.example/ichor-hub:v0.1.0", ImagePullPolicy: corev1.PullAlways}},
	}
	return d
}

func TestRollout(t *testing.T) {
	for name, row := range map[string]struct {
		status appsv1.DeploymentStatus
		waits  string
	}{
		"not seen":   {appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}, "the Deployment was changed just now"},
		"half":       {appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 3, UpdatedReplicas: 1, AvailableReplicas: 2}, "1 of 2 replicas are of the new version"},
		"old ones":   {appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 3, UpdatedReplicas: 2, AvailableReplicas: 3}, "replicas of the old version are left: 1"},
		"not ready":  {appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 1}, "1 of 2 replicas are ready"},
		"rolled out": {appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := hub()
			d.Status = row.status
			NewWithT(t).Expect(Described(d)).To(HaveValue(And(HaveField("Waits", row.waits), HaveField("RolledOut", row.waits == ""))))
		})
	}
}

var order = Order{Job: "ichor-upgrade-1", Operation: "team-a/up", From: "v0.1.0", To: "v0.2.0"}

func allowed(context.Context) error { return nil }

func TestTheJobRunsTheNewVersionWhereTheHubDoes(t *testing.T) {
	g := NewWithT(t)
	c := fake.NewClientBuilder().WithObjects(hub()).Build()
	l := &Live{Client: c, Reader: c, Namespace: "ichor-system"}
	for range 2 {
		image, err := l.Install(t.Context(), order, allowed)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(image).To(Equal("registry.example/ichor-hub:v0.2.0"))
	}
	jobs := &batchv1.JobList{}
	g.Expect(c.List(t.Context(), jobs)).To(Succeed())
	g.Expect(jobs.Items).To(HaveLen(1))
	pod := jobs.Items[0].Spec.Template.Spec
	g.Expect(pod).To(And(
		HaveField("ServiceAccountName", AccountName), HaveField("ImagePullSecrets", hub().Spec.Template.Spec.ImagePullSecrets),
		HaveField("NodeSelector", hub().Spec.Template.Spec.NodeSelector), HaveField("RestartPolicy", corev1.RestartPolicyNever)))
	g.Expect(pod.Containers).To(ConsistOf(And(
		HaveField("Image", "registry.example/ichor-hub:v0.2.0"), HaveField("ImagePullPolicy", corev1.PullAlways),
		HaveField("Args", Equal([]string{"install", "--from=v0.1.0", "--to=v0.2.0", "--termination-log=/dev/termination-log"})))))
}

func TestAFailedJobMakesRoomForAnother(t *testing.T) {
	g := NewWithT(t)
	failed := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ichor-system", Name: order.Job, UID: "old"}}
	failed.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ichor-system", Name: "p", Labels: map[string]string{batchv1.JobNameLabel: order.Job}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "no rights"}}}}
	c := fake.NewClientBuilder().WithObjects(hub(), failed, pod).Build()
	l := &Live{Client: c, Reader: c, Namespace: "ichor-system"}
	seen, err := l.Look(t.Context(), order.Job)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(seen.Job).To(HaveValue(Equal(Job{State: JobFailed, Message: "no rights (BackoffLimitExceeded)"})))

	_, err = l.Install(t.Context(), order, allowed)
	g.Expect(err).NotTo(HaveOccurred())
	found := &batchv1.Job{}
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(failed), found)).To(Succeed())
	g.Expect(found.UID).NotTo(Equal(failed.UID))
	g.Expect(found.Status.Conditions).To(BeEmpty())
}

func TestADeploymentThatSomebodyKeepsIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	kept := hub()
	kept.Labels = map[string]string{"app.kubernetes.io/managed-by": "Helm"}
	c := fake.NewClientBuilder().WithObjects(kept).Build()
	_, err := (&Live{Client: c, Reader: c, Namespace: "ichor-system"}).Install(t.Context(), order, allowed)
	var obstacle *Obstacle
	g.Expect(err).To(BeAssignableToTypeOf(obstacle))
	g.Expect(err).To(MatchError(ContainSubstring("helm upgrade")))
	jobs := &batchv1.JobList{}
	g.Expect(c.List(t.Context(), jobs)).To(Succeed())
	g.Expect(jobs.Items).To(BeEmpty())
}
