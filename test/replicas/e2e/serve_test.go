// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/auth/session"
	"ichor.maesh.dev/hub/hub/standalone/pki"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

// reader is somebody who may read everything.
const reader = "alice"

// prepareToServe gives all replicas a certificate and a key of sessions, and lets the reader read.
func (w *world) prepareToServe(ctx context.Context) {
	w.certificate = pki.SelfSignedIn(w.dir)
	w.g.Expect(w.certificate.Ensure([]string{"127.0.0.1"}, time.Now())).To(Succeed())
	key := []byte("only as secret as a test needs it")[:32]
	w.g.Expect(w.client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ichor-hub-session"},
		Data:       map[string][]byte{"key": []byte(base64.StdEncoding.EncodeToString(key))},
	})).To(Succeed())
	keys, err := session.NewKeys(key)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.sessions = &session.Sessions{Keys: keys, Lifetime: time.Hour, Now: time.Now}

	name := metav1.ObjectMeta{Name: reader}
	w.g.Expect(w.client.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}},
	}})).To(Succeed())
	w.g.Expect(w.client.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: reader},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: reader}},
	})).To(Succeed())
}

// http trusts the certificate of the replicas.
func (w *world) http() *http.Client {
	given, err := os.ReadFile(w.certificate.Certificate)
	w.g.Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	w.g.Expect(roots.AppendCertsFromPEM(given)).To(BeTrue())
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
}

// watch follows the operations at a replica, as the reader. Names come as they change.
func (w *world) watch(ctx context.Context, r *replica) (names <-chan string, ended <-chan error) {
	token, _, err := w.sessions.Token(auth.Caller{Name: reader, Groups: []string{"system:authenticated"}, Method: auth.LinkMethod})
	w.g.Expect(err).NotTo(HaveOccurred())
	operations := ichorv1alpha1connect.NewOperationServiceClient(w.http(), r.url)
	request := connect.NewRequest(&pb.WatchOperationsRequest{})
	request.Header().Set("Authorization", "Bearer "+token)
	stream, err := operations.WatchOperations(ctx, request)
	w.g.Expect(err).NotTo(HaveOccurred())
	seen, over := make(chan string, 100), make(chan error, 1)
	go func() {
		for stream.Receive() {
			if changed := stream.Msg().GetChanged(); changed != nil {
				seen <- changed.GetRef().GetName()
			}
		}
		over <- stream.Err()
	}()
	return seen, over
}

// ready says whether a replica would be sent requests.
func (w *world) ready(ctx context.Context, r *replica) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/readyz", http.NoBody)
	w.g.Expect(err).NotTo(HaveOccurred())
	response, err := w.http().Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func (w *world) create(ctx context.Context, name string) {
	w.g.Expect(w.client.Create(ctx, &v1alpha1.TalosOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.TalosOperationSpec{ClusterName: "nowhere", Kind: v1alpha1.TalosKind},
	})).To(Succeed())
}

// Both replicas serve while one leads. Who watches at the other one sees all that happens, and goes on when that one has to lead.
func TestEveryReplicaServes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	w := newWorld(ctx, t)
	w.keepTwo()
	leader := w.elected(ctx)
	follower := w.replicas[slices.IndexFunc(w.replicas, func(r *replica) bool { return r != leader })]
	for _, r := range w.replicas {
		w.g.Eventually(ctx, func() bool { return w.ready(ctx, r) }).WithPolling(50 * time.Millisecond).Should(BeTrue())
	}
	seen, ended := w.watch(ctx, follower)
	atLeader, broken := w.watch(ctx, leader)
	w.create(ctx, "first")
	w.g.Eventually(ctx, seen).Should(Receive(Equal("first")))
	w.g.Eventually(ctx, atLeader).Should(Receive(Equal("first")))

	_, err := leader.kill()
	w.g.Expect(err).NotTo(HaveOccurred())
	w.replicas = []*replica{follower}
	w.g.Eventually(ctx, broken).Should(Receive(HaveOccurred()), "who watches there knows that there is more to come")
	w.create(ctx, "second")
	w.g.Eventually(ctx, func() string { return <-seen }).Should(Equal("second"), "nobody needs to lead for that")
	w.g.Eventually(ctx, follower.leads).Should(BeClosed())
	w.create(ctx, "third")
	w.g.Eventually(ctx, func() string { return <-seen }).Should(Equal("third"))
	w.g.Expect(ended).NotTo(Receive(), "it was one stream all the time")
	w.g.Expect(client.IgnoreNotFound(w.client.DeleteAllOf(ctx, &v1alpha1.TalosOperation{}, client.InNamespace(namespace)))).To(Succeed())
}
