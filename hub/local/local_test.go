// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/fleet"
	"ichor.maesh.dev/hub/hub/scheme"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
	"ichor.maesh.dev/hub/test/framework"
)

// soon bounds what takes milliseconds.
const soon = 20 * time.Second

var (
	plane *framework.Plane
	admin client.Client
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if plane, err = framework.StartPlane(ctx); err != nil {
		panic(err)
	}
	defer plane.Stop() //nolint:errcheck // The tests are over.
	if admin, err = client.New(plane.Config, client.Options{Scheme: scheme.New()}); err != nil {
		panic(err)
	}
	return m.Run()
}

// cuttable is an access that can be cut off.
type cuttable struct {
	next http.RoundTripper
	cut  *atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (c cuttable) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.cut.Load() {
		return nil, errors.New("the cable is cut")
	}
	return c.next.RoundTrip(r)
}

// dial connects as a user; empty is the administrator.
func dial(t *testing.T, user string, namespaces ...string) (*Conn, *atomic.Bool) {
	t.Helper()
	config, cut := rest.CopyConfig(plane.Config), &atomic.Bool{}
	config.Impersonate.UserName = user
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return cuttable{next, cut} })
	return connected(t, config, namespaces...), cut
}

func connected(t *testing.T, config *rest.Config, namespaces ...string) *Conn {
	t.Helper()
	c, err := Dial(Options{Config: config, Namespaces: namespaces, Version: "v1.2.3", Client: "test"})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(c.Close()).To(Succeed()) })
	return c
}

func hubOf(c *Conn, options ...connect.ClientOption) ichorv1alpha1connect.HubServiceClient {
	return ichorv1alpha1connect.NewHubServiceClient(c.HTTPClient(), c.URL(), options...)
}

func session(t *testing.T, c *Conn) (*pb.GetSessionResponse, error) {
	t.Helper()
	response, err := hubOf(c).GetSession(t.Context(), connect.NewRequest(&pb.GetSessionRequest{Namespaces: []string{"default"}}))
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

func newNamespace(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "local-"}}
	NewWithT(t).Expect(admin.Create(t.Context(), namespace)).To(Succeed())
	return namespace.Name
}

// permit lets a user read some of our resources in a namespace.
func permit(t *testing.T, user, namespace string, resources ...string) {
	t.Helper()
	g := NewWithT(t)
	meta := metav1.ObjectMeta{Namespace: namespace, Name: user}
	g.Expect(admin.Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: resources, Verbs: []string{"get", "list", "watch"}},
	}})).To(Succeed())
	g.Expect(admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})).To(Succeed())
}

// The command line's service speaks what a hub speaks, and asks nobody which one it is.
func TestServiceIsThereWithoutAManagementAPI(t *testing.T) {
	c := connected(t, &rest.Config{Host: "https://127.0.0.1:1"})
	for name, options := range map[string][]connect.ClientOption{"Connect": nil, "gRPC": {connect.WithGRPC()}, "JSON": {connect.WithProtoJSON()}} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			response, err := hubOf(c, options...).GetHub(t.Context(), connect.NewRequest(&pb.GetHubRequest{}))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.Msg.GetVersion()).To(Equal("v1.2.3"))
		})
	}
}

func TestCallerIsWhoTheKubeconfigNames(t *testing.T) {
	g := NewWithT(t)
	c, cut := dial(t, "")
	cut.Store(true)
	_, err := session(t, c)
	g.Expect(connect.CodeOf(err)).To(Equal(connect.CodeUnavailable), "%v", err)
	cut.Store(false)
	who, err := session(t, c)
	g.Expect(err).NotTo(HaveOccurred(), "the next call asks again")
	g.Expect(who.GetUser()).To(Equal("ichor-admin"))
	g.Expect(who.GetGroups()).To(ContainElement("system:masters"))
	g.Expect(who.GetMethod()).To(Equal("kubeconfig"))

	nobody := rest.AnonymousClientConfig(plane.Config)
	nobody.BearerToken = "made up"
	_, err = session(t, connected(t, nobody))
	g.Expect(connect.CodeOf(err)).To(Equal(connect.CodeUnauthenticated), "%v", err)

	_, err = session(t, connected(t, &rest.Config{Host: "https://127.0.0.1:1"}))
	g.Expect(connect.CodeOf(err)).To(Equal(connect.CodeUnavailable), "%v", err)
}

func TestRightsAreThoseOfTheCaller(t *testing.T) {
	g := NewWithT(t)
	namespace := newNamespace(t)
	permit(t, "viewer", namespace, "talosclusters")
	c, _ := dial(t, "viewer")
	response, err := hubOf(c).GetSession(t.Context(), connect.NewRequest(&pb.GetSessionRequest{Namespaces: []string{namespace, "default"}}))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.Msg.GetUser()).To(Equal("viewer"))
	g.Expect(response.Msg.GetRights()[0].GetRead()).To(BeTrue())
	g.Expect(response.Msg.GetRights()[0].GetOperate()).To(BeFalse())
	g.Expect(response.Msg.GetRights()[1].GetRead()).To(BeFalse())

	rights := c.backend.rights.of(auth.Caller{Name: "viewer"})
	readable, failures := rights.Readable(t.Context(), "talosclusters", []string{namespace, "default"})
	g.Expect(readable).To(Equal(map[string]bool{namespace: true, "default": false}))
	g.Expect(failures).To(BeEmpty())
}

// live is the fleet that watches of a connection read.
func liveFleet(t *testing.T, c *Conn, namespaces ...string) (*fleet.Fleet, []*pb.Failure, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	ctx, err := c.backend.identify(ctx, connect.Spec{})
	if err != nil {
		return nil, nil, err
	}
	return c.backend.Live(ctx, namespaces...)
}

func newOperation(t *testing.T, namespace, name string) types.NamespacedName {
	t.Helper()
	op := &v1alpha1.TalosOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.TalosOperationSpec{ClusterName: "c1", Kind: v1alpha1.TalosKind},
	}
	NewWithT(t).Expect(admin.Create(t.Context(), op)).To(Succeed())
	return client.ObjectKeyFromObject(op)
}

func TestWatchedFleetGoesOnAfterAnOutage(t *testing.T) {
	g := NewWithT(t)
	namespace, elsewhere := newNamespace(t), newNamespace(t)
	c, cut := dial(t, "", namespace)
	before := newOperation(t, namespace, "before")
	other := newOperation(t, elsewhere, "other")

	watched, failures, err := liveFleet(t, c)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(failures).To(BeEmpty())
	g.Expect(watched.Operation(before)).NotTo(BeNil())
	g.Expect(watched.Operation(other)).To(BeNil(), "of the namespaces that were asked for, and no others")
	during := newOperation(t, namespace, "during")
	g.Eventually(func() *pb.Operation { return watched.Operation(during) }).WithTimeout(soon).ShouldNot(BeNil())
	again, _, err := liveFleet(t, c)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).To(BeIdenticalTo(watched), "tokens stay good while it lasts")

	cut.Store(true)
	g.Eventually(watched.Closed()).WithTimeout(pulse + soon).Should(BeClosed())
	g.Expect(watched.Cause()).To(MatchError(ContainSubstring("does not answer")))
	_, _, err = liveFleet(t, c)
	g.Expect(err).To(HaveOccurred())
	meanwhile := newOperation(t, namespace, "meanwhile")
	cut.Store(false)
	again, _, err = liveFleet(t, c)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.Operation(meanwhile)).NotTo(BeNil())

	g.Expect(c.Close()).To(Succeed())
	g.Expect(again.Closed()).To(BeClosed())
	_, _, err = c.backend.Live(t.Context())
	g.Expect(connect.CodeOf(err)).To(Equal(connect.CodeUnavailable))
}

// An informer of what may not be read would wait for ever.
func TestWatchedFleetLeavesOutWhatMayNotBeRead(t *testing.T) {
	g := NewWithT(t)
	namespace, closed := newNamespace(t), newNamespace(t)
	permit(t, "some", namespace, "talosclusters", "talosoperations", "clusters")
	op := newOperation(t, namespace, "op")
	hidden := newOperation(t, closed, "op")
	c, _ := dial(t, "some", namespace, closed)
	watched, failures, err := liveFleet(t, c)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(watched.Operation(op)).NotTo(BeNil())
	g.Expect(watched.Operation(hidden)).To(BeNil())
	var missing []string
	for _, f := range failures {
		g.Expect(f.GetCode()).To(Equal("permission_denied"))
		missing = append(missing, f.GetScope().GetNamespace()+": "+f.GetMessage())
	}
	says := func(in, resource string) string {
		return fmt.Sprintf(`%s: permission_denied: user "some" may not list %s in namespace %s`, in, resource, in)
	}
	g.Expect(missing).To(ConsistOf(
		says(namespace, "talosmachines"),
		says(closed, "talosclusters"), says(closed, "clusters"), says(closed, "talosmachines"), says(closed, "talosoperations"),
	), "who holds a lock is known without its Lease")

	c, _ = dial(t, "nobody", namespace)
	_, _, err = liveFleet(t, c)
	g.Expect(connect.CodeOf(err)).To(Equal(connect.CodePermissionDenied), "%v", err)
}
