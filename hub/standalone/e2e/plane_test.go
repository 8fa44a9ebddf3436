// SPDX-License-Identifier: Apache-2.0

//go:build unix

package e2e

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestPlane checks what the API server does beyond storing objects. Its parts share one server.
func TestPlane(t *testing.T) {
	h := startHub(t, t.TempDir())
	t.Run("refuses the anonymous", func(t *testing.T) { testAnonymous(t, h) })
	t.Run("restricts the hub's user", func(t *testing.T) { testHubUser(t, h) })
	t.Run("authenticates service accounts", func(t *testing.T) { testServiceAccount(t, h) })
	t.Run("collects garbage", func(t *testing.T) { testGarbage(t, h) })
	t.Run("deletes namespaces", func(t *testing.T) { testNamespace(t, h) })
	t.Run("aggregates cluster roles", func(t *testing.T) { testAggregation(t, h) })
	t.Run("serves no pods", func(t *testing.T) {
		_, err := h.admin().CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		NewWithT(t).Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	})
}

func testAnonymous(t *testing.T, h *hub) {
	anonymous := client(t, rest.AnonymousClientConfig(h.config("kubeconfig")))
	_, err := anonymous.CoreV1().Secrets(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	NewWithT(t).Expect(apierrors.IsUnauthorized(err)).To(BeTrue(), "%v", err)
}

func testHubUser(t *testing.T, h *hub) {
	g := NewWithT(t)
	hub := client(t, h.config("hub.kubeconfig"))
	self, err := hub.AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(self.Status.UserInfo.Username).To(Equal("ichor-hub"))

	everything := authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"}
	g.Expect(allowed(t, hub, everything)).To(BeFalse())
	g.Expect(allowed(t, h.admin(), everything)).To(BeTrue())
	roles := authorizationv1.ResourceAttributes{Verb: "create", Group: rbacv1.GroupName, Resource: "clusterrolebindings"}
	g.Expect(allowed(t, hub, roles)).To(BeFalse(), "it could give itself any right")
	operations := authorizationv1.ResourceAttributes{Verb: "watch", Group: "ichor.maesh.dev", Resource: "talosoperations"}
	g.Expect(allowed(t, hub, operations)).To(BeTrue(), "its ClusterRole does not reach it")
}

func allowed(t *testing.T, client kubernetes.Interface, what authorizationv1.ResourceAttributes) bool {
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
		&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what}},
		metav1.CreateOptions{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return review.Status.Allowed
}

func testServiceAccount(t *testing.T, h *hub) {
	g := NewWithT(t)
	accounts := h.admin().CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	var token *authenticationv1.TokenRequest
	g.Eventually(func() (err error) { // The account appears soon after its namespace.
		token, err = accounts.CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		return err
	}, 10*time.Second, 50*time.Millisecond).Should(Succeed())

	config := rest.AnonymousClientConfig(h.config("kubeconfig"))
	config.BearerToken = token.Status.Token
	account := client(t, config)
	_, err := account.CoreV1().Secrets(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	g.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "known, but without rights: %v", err)
}

func testGarbage(t *testing.T, h *hub) {
	g := NewWithT(t)
	objects := h.admin().CoreV1().ConfigMaps(metav1.NamespaceDefault)
	owner, err := objects.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:            "owned",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}},
	}}
	_, err = objects.Create(t.Context(), owned, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects.Delete(t.Context(), owner.Name, metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(func() bool {
		_, err := objects.Get(t.Context(), owned.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, 15*time.Second, 50*time.Millisecond).Should(BeTrue())
}

func testNamespace(t *testing.T, h *hub) {
	g := NewWithT(t)
	core := h.admin().CoreV1()
	_, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = core.Secrets("gone").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "inside"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(core.Namespaces().Delete(t.Context(), "gone", metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(func() bool {
		_, err := core.Namespaces().Get(t.Context(), "gone", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, 30*time.Second, 50*time.Millisecond).Should(BeTrue())
}

func testAggregation(t *testing.T, h *hub) {
	g := NewWithT(t)
	roles := h.admin().RbacV1().ClusterRoles()
	label := map[string]string{"test.example/part": "true"}
	rule := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}
	_, err := roles.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta:      metav1.ObjectMeta{Name: "whole"},
		AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: label}}},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = roles.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "part", Labels: label},
		Rules:      []rbacv1.PolicyRule{rule},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() ([]rbacv1.PolicyRule, error) {
		whole, err := roles.Get(t.Context(), "whole", metav1.GetOptions{})
		return whole.Rules, err
	}, 10*time.Second, 50*time.Millisecond).Should(ConsistOf(rule))
}
