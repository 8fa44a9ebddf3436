// SPDX-License-Identifier: Apache-2.0

package installation_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/installation"
	"ichor.maesh.dev/hub/hub/scheme"
)

var key = client.ObjectKey{Namespace: "ichor-system", Name: v1alpha1.IchorInstallationName}

func deployment(image string, mark func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "ichor-hub"}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Image: image}}
	if mark != nil {
		mark(d)
	}
	return d
}

func TestWhatTheHubIsIsWrittenDown(t *testing.T) {
	const image = "registry.example:5000/ichor-hub:v0.1.0"
	labelled := func(labels map[string]string) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { d.Labels = labels }
	}
	for name, row := range map[string]struct {
		deployment *appsv1.Deployment
		standalone bool
		desired    string
		upToDate   types.GomegaMatcher
		upgradable types.GomegaMatcher
	}{
		"on Kubernetes, with nothing desired": {deployment: deployment(image, nil), upToDate: is("True", "NoVersionDesired", BeEmpty()), upgradable: is("True", "Upgradable", BeEmpty())},
		"what is desired":                     {deployment: deployment(image, nil), desired: "v0.1.0", upToDate: is("True", "UpToDate", BeEmpty()), upgradable: is("True", "Upgradable", BeEmpty())},
		"another version": {
			deployment: deployment(image, nil), desired: "v0.2.0",
			upToDate:   is("False", "VersionDiffers", Equal("the hub runs v0.1.0, and v0.2.0 is desired: ichor upgrade ichor v0.2.0")),
			upgradable: is("True", "Upgradable", BeEmpty()),
		},
		"standalone":              {standalone: true, upgradable: is("False", "Standalone", ContainSubstring("replace the binary"))},
		"outside of a Deployment": {upgradable: is("False", "DeploymentMissing", ContainSubstring("no Deployment ichor-hub with a container manager in namespace ichor-system"))},
		"of Flux": {
			deployment: deployment(image, labelled(map[string]string{"kustomize.toolkit.fluxcd.io/name": "hub", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"})),
			upgradable: is("False", "Tracked", ContainSubstring(`kept by Kustomization "flux-system/hub" of Flux`)),
		},
		"of Helm": {
			deployment: deployment(image, labelled(map[string]string{"app.kubernetes.io/managed-by": "Helm"})),
			upgradable: is("False", "Tracked", ContainSubstring("helm upgrade")),
		},
		"of clusterctl": {
			deployment: deployment(image, labelled(map[string]string{"cluster.x-k8s.io/provider": "addon-ichor", "clusterctl.cluster.x-k8s.io": ""})),
			upgradable: is("False", "Tracked", ContainSubstring("clusterctl upgrade apply --addon ichor-system/ichor:VERSION")),
		},
		"by the manifests of the provider, without clusterctl": {
			deployment: deployment(image, labelled(map[string]string{"cluster.x-k8s.io/provider": "addon-ichor"})), upgradable: is("True", "Upgradable", BeEmpty()),
		},
		"pinned": {
			deployment: deployment("registry.example/ichor-hub@sha256:00", nil), upgradable: is("False", "ImagePinned", ContainSubstring("by its digest")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objects := []client.Object{}
			if row.deployment != nil {
				objects = append(objects, row.deployment)
			}
			c := fake.NewClientBuilder().WithScheme(scheme.New()).WithStatusSubresource(&v1alpha1.IchorInstallation{}).WithObjects(objects...).Build()
			r := &installation.Reconciler{Client: c, Live: c, Key: key, Version: "v0.1.0", Standalone: row.standalone}
			_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			g.Expect(err).NotTo(HaveOccurred())
			made := &v1alpha1.IchorInstallation{}
			g.Expect(c.Get(t.Context(), key, made)).To(Succeed(), "there was none")
			if row.desired != "" {
				made.Spec.Version = row.desired
				g.Expect(c.Update(t.Context(), made)).To(Succeed())
			}
			_, err = r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(c.Get(t.Context(), key, made)).To(Succeed())
			g.Expect(made.Status.Version).To(Equal("v0.1.0"))
			if row.upToDate != nil {
				g.Expect(*meta.FindStatusCondition(made.Status.Conditions, v1alpha1.UpToDateCondition)).To(row.upToDate)
			}
			g.Expect(*meta.FindStatusCondition(made.Status.Conditions, v1alpha1.UpgradableCondition)).To(row.upgradable)
			written := made.ResourceVersion
			_, err = r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(c.Get(t.Context(), key, made)).To(Succeed())
			g.Expect(made.ResourceVersion).To(Equal(written), "what is known is not written again")
		})
	}
}

func is(status, reason string, message types.GomegaMatcher) types.GomegaMatcher {
	return And(HaveField("Status", metav1.ConditionStatus(status)), HaveField("Reason", reason), HaveField("Message", message))
}
