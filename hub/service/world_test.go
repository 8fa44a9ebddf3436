// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/fleet"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/hub/verify"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/providers/credentials"
)

var (
	now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c1  = client.ObjectKey{Namespace: "default", Name: "c1"}
)

// world is a Service on a fake API, and a Server in front of it. Writes are noted, and fail if fail says so.
type world struct {
	*Service

	server *Server

	g      *WithT
	ctx    context.Context
	writes []string
	fail   func(write string) error

	// verified are the servers of the kubeconfigs that were looked at; refusal is what the look says.
	verified []string
	refusal  error
	found    verify.Found
}

func (w *world) verify(_ context.Context, kubeconfig *credentials.Kubeconfig, _ *credentials.Talosconfig) (verify.Found, error) {
	w.verified = append(w.verified, kubeconfig.Config.Host)
	return w.found, w.refusal
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{g: NewWithT(t), ctx: t.Context(), fail: func(string) error { return nil }}
	s := scheme.New()
	w.server = &Server{Now: func() time.Time { return now }, Verifier: w.verify, Backend: w}
	w.Service = &Service{Now: w.server.Now, Verifier: w.verify, Client: fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.TalosCluster{}, &v1alpha1.TalosOperation{}).WithReturnManagedFields().
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				verb := "create"
				if len((&client.CreateOptions{}).ApplyOptions(options).DryRun) > 0 {
					verb = "dry-run"
				}
				if err := w.note(s, verb, object); err != nil {
					return err
				}
				if err := ctx.Err(); err != nil { // The fake asks nobody whether they still wait.
					return err
				}
				return c.Create(ctx, object, options...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
				if err := w.note(s, "patch", object); err != nil {
					return err
				}
				return c.Patch(ctx, object, patch, options...)
			},
			Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
				verb := "apply"
				if len((&client.ApplyOptions{}).ApplyOptions(options).DryRun) > 0 {
					verb = "dry-run apply"
				}
				write := verb
				if applied, ok := object.(interface{ GetKind() string }); ok {
					write += " " + applied.GetKind()
				}
				w.writes = append(w.writes, write)
				if err := w.fail(write); err != nil {
					return err
				}
				return c.Apply(ctx, object, options...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				if err := w.note(s, "delete", object); err != nil {
					return err
				}
				return c.Delete(ctx, object, options...)
			},
		}).Build()}
	return w
}

// Session implements Backend: everybody is the same user.
func (w *world) Session(context.Context) (*Session, error) {
	return &Session{Caller: auth.Caller{Name: "jane"}, Client: w.Client}, nil
}

// Fleet implements Backend.
func (w *world) Fleet(context.Context, ...string) (*fleet.Fleet, []*pb.Failure, error) {
	return nil, nil, errors.New("nothing here reads")
}

func (w *world) note(s *runtime.Scheme, verb string, object client.Object) error {
	kind, err := apiutil.GVKForObject(object, s)
	if err != nil {
		return err
	}
	write := verb + " " + kind.Kind
	w.writes = append(w.writes, write)
	return w.fail(write)
}

func (w *world) get(object client.Object, name string) {
	w.g.ExpectWithOffset(1, w.Client.Get(w.ctx, client.ObjectKey{Namespace: "default", Name: name}, object)).To(Succeed())
}

func named(name, cluster string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"cluster.x-k8s.io/cluster-name": cluster}}
}

func machine(name, cluster, node string, role v1alpha1.MachineRole) *v1alpha1.TalosMachine {
	return &v1alpha1.TalosMachine{
		ObjectMeta: named(name, cluster),
		Spec:       v1alpha1.TalosMachineSpec{ClusterName: cluster, Role: role, Approval: "Approved"},
		Status:     v1alpha1.TalosMachineStatus{NodeName: node, TalosVersion: "v1.13.9", SchematicID: "s1"},
	}
}

// cluster is a target of three control planes and a worker.
func cluster(more ...client.Object) []client.Object {
	objects := []client.Object{
		&v1alpha1.TalosCluster{ObjectMeta: named("c1", "c1"), Spec: v1alpha1.TalosClusterSpec{TalosVersion: "v1.13.9"}},
		machine("c1-w-1", "c1", "w-1", "Worker"),
	}
	for i := range 3 {
		objects = append(objects, machine(fmt.Sprintf("c1-cp-%d", i+1), "c1", fmt.Sprintf("cp-%d", i+1), "ControlPlane"))
	}
	return append(objects, more...)
}

// files are a kubeconfig and a talosconfig whose certificates end at a time.
func files(t *testing.T, server string, ends time.Time) (kubeconfig, talosconfig []byte) {
	t.Helper()
	g := NewWithT(t)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: ends, Subject: pkix.Name{Organization: []string{"os:admin"}}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	g.Expect(err).NotTo(HaveOccurred())
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	g.Expect(err).NotTo(HaveOccurred())
	crt := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	key := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	kubeconfig = fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}],
clusters: [{name: x, cluster: {server: "%s", certificate-authority-data: %[2]s}}],
users: [{name: x, user: {client-certificate-data: %[2]s, client-key-data: %[3]s}}]}`, server, crt, key)
	talosconfig = fmt.Appendf(nil, "context: x\ncontexts: {x: {endpoints: [10.0.0.1], ca: %[1]s, crt: %[1]s, key: %[2]s}}\n", crt, key)
	return kubeconfig, talosconfig
}
