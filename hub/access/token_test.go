// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/auth/methods"
	"ichor.maesh.dev/hub/hub/auth/session"
	"ichor.maesh.dev/hub/hub/scheme"
)

// serviceAccount makes an account and a token of it.
func (w *world) serviceAccount() (account *corev1.ServiceAccount, token string) {
	w.t.Helper()
	account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "robot"}}
	w.Expect(w.admin.Create(w.ctx, account)).To(Succeed())
	request := &authenticationv1.TokenRequest{}
	w.Expect(w.admin.SubResource("token").Create(w.ctx, account, request)).To(Succeed())
	return account, request.Status.Token
}

// guarded is what a hub answers to a token: how the management API sees whoever has it.
func (w *world) guarded() func(token string) (int, authenticationv1.UserInfo) {
	w.t.Helper()
	keys, err := session.NewKeys(bytes.Repeat([]byte{1}, 32))
	w.Expect(err).NotTo(HaveOccurred())
	ways, err := methods.New(methods.Options{Config: plane.HubConfig, Keys: keys, Now: w.clock.Now})
	w.Expect(err).NotTo(HaveOccurred())
	return func(token string) (int, authenticationv1.UserInfo) {
		review := &authenticationv1.SelfSubjectReview{}
		handler := ways.Guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			session, err := w.access.Session(r.Context())
			w.Expect(err).NotTo(HaveOccurred())
			w.Expect(session.Client.Create(r.Context(), review)).To(Succeed())
		}))
		request := httptest.NewRequestWithContext(w.ctx, http.MethodPost, "/ichor.v1alpha1.HubService/GetSession", http.NoBody)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+token)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		return recorder.Code, review.Status.UserInfo
	}
}

// Who comes with a token is the same to the management API as if they had brought it there.
func TestTokenOfAServiceAccount(t *testing.T) {
	w := newWorld(t)
	account, token := w.serviceAccount()
	ask := w.guarded()
	code, user := ask(token)
	w.Expect(code).To(Equal(http.StatusOK))
	w.Expect(user.Username).To(Equal("system:serviceaccount:" + w.namespace + ":robot"))
	w.Expect(user.UID).To(Equal(string(account.UID)))
	w.Expect(user.Groups).To(ConsistOf("system:serviceaccounts", "system:serviceaccounts:"+w.namespace, "system:authenticated"))
	w.Expect(user.Extra).To(HaveKey("authentication.kubernetes.io/credential-id"))
}

func TestBypassByTokenOfAServiceAccountThatIsGone(t *testing.T) {
	w := newWorld(t)
	account, token := w.serviceAccount()
	ask := w.guarded()
	code, _ := ask(token)
	w.Expect(code).To(Equal(http.StatusOK))
	w.Expect(w.admin.Delete(w.ctx, account)).To(Succeed())
	w.Eventually(w.knows).WithArguments(w.ctx, token).WithTimeout(20 * time.Second).Should(BeFalse())
	w.clock.advance(11 * time.Second)
	code, _ = ask(token)
	w.Expect(code).To(Equal(http.StatusUnauthorized))
}

// knows says whether the management API takes a token.
func (w *world) knows(ctx context.Context, token string) (bool, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	err := w.admin.Create(ctx, review)
	return review.Status.Authenticated, err
}

// The hub may act as others, and has no more rights of its own for that: whatever forgets to name a caller can do little.
func TestHubHasNoRightsOfItsCallers(t *testing.T) {
	w := newWorld(t)
	own, err := client.New(plane.HubConfig, client.Options{Scheme: scheme.New()})
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(apierrors.IsForbidden(own.List(w.ctx, &rbacv1.RoleList{}))).To(BeTrue())
	op := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "x"}, Spec: v1alpha1.TalosOperationSpec{
		ClusterName: "c", Kind: v1alpha1.TalosKind,
	}}
	w.Expect(apierrors.IsForbidden(own.Create(w.ctx, op))).To(BeTrue(), "people start operations, and it starts none")
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "c"}}
	w.Expect(apierrors.IsForbidden(own.Delete(w.ctx, cluster))).To(BeTrue())
	w.Expect(apierrors.IsForbidden(own.DeleteAllOf(w.ctx, &corev1.Secret{}, client.InNamespace(w.namespace)))).To(BeTrue(), "it deletes Secrets one by one")
}
