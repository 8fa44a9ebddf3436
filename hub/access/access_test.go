// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/access"
	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/hub/service"
	"ichor.maesh.dev/hub/test/framework"
)

var plane *framework.Plane

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if plane, err = framework.StartPlane(ctx); err != nil {
		return 0, err
	}
	plane.Config.QPS, plane.HubConfig.QPS = -1, -1
	return m.Run(), plane.Stop()
}

// world is an Access with the rights that the hub's role gives it and no others, on a real API server.
type world struct {
	*WithT

	t      *testing.T
	ctx    context.Context
	admin  client.Client
	access *access.Access
	reader *reader
	clock  *clock

	namespace, other string

	dials, reviews atomic.Int32
	down           atomic.Bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	w := &world{WithT: NewWithT(t), t: t, ctx: ctx, clock: &clock{now: time.Now()}}
	var err error
	w.admin, err = client.New(plane.Config, client.Options{Scheme: scheme.New()})
	w.Expect(err).NotTo(HaveOccurred())
	w.namespace, w.other = w.newNamespace(), w.newNamespace()

	informers, err := cache.New(plane.HubConfig, cache.Options{Scheme: scheme.New(), DefaultNamespaces: map[string]cache.Config{w.namespace: {}, w.other: {}}})
	w.Expect(err).NotTo(HaveOccurred())
	go informers.Start(ctx) //nolint:errcheck // It ends with the test.
	w.Expect(informers.WaitForCacheSync(ctx)).To(BeTrue())
	w.reader = &reader{Reader: informers}

	config := rest.CopyConfig(plane.HubConfig)
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		w.dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(r *http.Request) (*http.Response, error) { return w.trip(next, r) })
	})
	httpClient, err := rest.HTTPClientFor(plane.HubConfig)
	w.Expect(err).NotTo(HaveOccurred())
	mapper, err := apiutil.NewDynamicRESTMapper(plane.HubConfig, httpClient)
	w.Expect(err).NotTo(HaveOccurred())
	w.access, err = access.New(access.Options{Config: config, Reader: w.reader, Scheme: scheme.New(), Mapper: mapper, Clock: w.clock})
	w.Expect(err).NotTo(HaveOccurred())
	return w
}

func (w *world) trip(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	if w.down.Load() {
		return nil, net.ErrClosed
	}
	if strings.HasSuffix(r.URL.Path, "/subjectaccessreviews") {
		w.reviews.Add(1)
	}
	return next.RoundTrip(r)
}

type tripper func(*http.Request) (*http.Response, error)

func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func (w *world) newNamespace() string {
	w.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "access-"}}
	w.Expect(w.admin.Create(w.ctx, namespace)).To(Succeed())
	return namespace.Name
}

// grant gives a group rights in a namespace.
func (w *world) grant(group string, verbs, groups, resources []string, names ...string) *rbacv1.RoleBinding {
	w.t.Helper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "role-"},
		Rules:      []rbacv1.PolicyRule{{Verbs: verbs, APIGroups: groups, Resources: resources, ResourceNames: names}},
	}
	w.Expect(w.admin.Create(w.ctx, role)).To(Succeed())
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "binding-"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: group}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
	}
	w.Expect(w.admin.Create(w.ctx, binding)).To(Succeed())
	// The API server's own authorizer reads roles from informers.
	resource, subresource, _ := strings.Cut(resources[0], "/")
	what := authorizationv1.ResourceAttributes{Namespace: w.namespace, Verb: verbs[0], Group: groups[0], Resource: resource, Subresource: subresource}
	if len(names) > 0 {
		what.Name = names[0]
	}
	w.Eventually(w.allowed).WithArguments(group, what).WithTimeout(20 * time.Second).Should(BeTrue())
	return binding
}

// allowed asks the API server past everything that is kept.
func (w *world) allowed(group string, what authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "anyone", Groups: []string{group}, ResourceAttributes: &what}}
	err := w.admin.Create(w.ctx, review)
	return review.Status.Allowed, err
}

func (w *world) session(caller auth.Caller) *service.Session {
	w.t.Helper()
	session, err := w.access.Session(auth.With(w.ctx, caller))
	w.Expect(err).NotTo(HaveOccurred())
	return session
}

// group is one that no other test gives rights to.
func (w *world) group() string { return "group-" + w.namespace }

func (w *world) ada() auth.Caller {
	return auth.Caller{Name: "ada", Groups: []string{w.group(), "system:authenticated"}}
}

func (w *world) newCluster(namespace, name string) *v1alpha1.TalosCluster {
	w.t.Helper()
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	w.Expect(w.admin.Create(w.ctx, cluster)).To(Succeed())
	w.Eventually(w.reader.Reader.Get).WithArguments(w.ctx, client.ObjectKeyFromObject(cluster), &v1alpha1.TalosCluster{}).Should(Succeed())
	return cluster
}

// reader counts what is read from the informers, by type.
type reader struct {
	client.Reader

	mu    sync.Mutex
	reads map[string]int
}

func (r *reader) note(object any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reads == nil {
		r.reads = map[string]int{}
	}
	r.reads[fmt.Sprintf("%T", object)]++
}

func (r *reader) read() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reads
}

func (r *reader) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	r.note(object)
	return r.Reader.Get(ctx, key, object, opts...)
}

func (r *reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	r.note(list)
	return r.Reader.List(ctx, list, opts...)
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(by)
}

var (
	ours  = []string{v1alpha1.GroupVersion.Group}
	reads = []string{"get", "list"}
)

func TestReadsAreWhatTheCallerMay(t *testing.T) {
	w := newWorld(t)
	w.newCluster(w.namespace, "c1")
	w.grant(w.group(), reads, ours, []string{"talosclusters"})
	c := w.session(w.ada()).Client
	w.Expect(c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "c1"}, &v1alpha1.TalosCluster{})).To(Succeed())
	list := &v1alpha1.TalosClusterList{}
	w.Expect(c.List(w.ctx, list, client.InNamespace(w.namespace))).To(Succeed())
	w.Expect(list.Items).To(HaveLen(1))
	w.Expect(w.reader.read()).To(Equal(map[string]int{"*v1alpha1.TalosCluster": 1, "*v1alpha1.TalosClusterList": 1}), "from the informers")
}

func TestBypassByAnotherNamespace(t *testing.T) {
	w := newWorld(t)
	w.newCluster(w.other, "c1")
	w.grant(w.group(), append(reads, "create", "delete", "patch"), ours, []string{"talosclusters", "talosoperations"})
	c := w.session(w.ada()).Client
	elsewhere := client.ObjectKey{Namespace: w.other, Name: "c1"}

	err := c.Get(w.ctx, elsewhere, &v1alpha1.TalosCluster{})
	w.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	w.Expect(err).To(MatchError(ContainSubstring(`user "ada" may not get talosclusters c1 in namespace ` + w.other)))
	w.Expect(apierrors.IsForbidden(c.List(w.ctx, &v1alpha1.TalosClusterList{}, client.InNamespace(w.other)))).To(BeTrue())
	err = c.List(w.ctx, &v1alpha1.TalosClusterList{})
	w.Expect(err).To(MatchError(ContainSubstring("may not list talosclusters in every namespace")))
	w.Expect(w.reader.read()).To(BeEmpty())

	w.Expect(apierrors.IsForbidden(c.Create(w.ctx, operation(w.other)))).To(BeTrue())
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.other, Name: "c1"}}
	w.Expect(apierrors.IsForbidden(c.Delete(w.ctx, cluster))).To(BeTrue())
	w.Expect(w.admin.Get(w.ctx, elsewhere, cluster)).To(Succeed())
	operations := &v1alpha1.TalosOperationList{}
	w.Expect(w.admin.List(w.ctx, operations, client.InNamespace(w.other))).To(Succeed())
	w.Expect(operations.Items).To(BeEmpty())
}

func operation(namespace string) *v1alpha1.TalosOperation {
	return &v1alpha1.TalosOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "op-"},
		Spec:       v1alpha1.TalosOperationSpec{ClusterName: "c1", Kind: v1alpha1.TalosKind},
	}
}

func TestARightToOneObject(t *testing.T) {
	w := newWorld(t)
	w.newCluster(w.namespace, "c1")
	w.newCluster(w.namespace, "c2")
	w.grant(w.group(), []string{"get"}, ours, []string{"talosclusters"}, "c1")
	c := w.session(w.ada()).Client
	w.Expect(c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "c1"}, &v1alpha1.TalosCluster{})).To(Succeed())
	w.Expect(apierrors.IsForbidden(c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "c2"}, &v1alpha1.TalosCluster{}))).To(BeTrue())
}

// The hub watches Secrets of clusters, and may read every one. Its callers may not.
func TestBypassBySecretsOfTheHub(t *testing.T) {
	w := newWorld(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "c1-kubeconfig"}, Data: map[string][]byte{"value": []byte("x")}}
	w.Expect(w.admin.Create(w.ctx, secret)).To(Succeed())
	key := client.ObjectKeyFromObject(secret)
	c := w.session(w.ada()).Client
	w.Expect(apierrors.IsForbidden(c.Get(w.ctx, key, &corev1.Secret{}))).To(BeTrue())
	w.Expect(apierrors.IsForbidden(c.List(w.ctx, &corev1.SecretList{}, client.InNamespace(w.namespace)))).To(BeTrue())
	metadata := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}}
	w.Expect(apierrors.IsForbidden(c.Get(w.ctx, key, metadata))).To(BeTrue())

	w.grant(w.group(), []string{"get"}, []string{""}, []string{"secrets"})
	w.Expect(c.Get(w.ctx, key, &corev1.Secret{})).To(Succeed())
	w.Expect(w.reader.read()).To(BeEmpty())
}

// Everything that the management API decides on, and writes into its audit, is the caller's.
func TestWritesAreTheCallers(t *testing.T) {
	w := newWorld(t)
	caller := auth.Caller{
		Name: "system:serviceaccount:" + w.namespace + ":robot", UID: "uid-1", Groups: []string{"system:serviceaccounts", "system:authenticated", "日本"},
		Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=1"}, "example.com/Scopes%2F": {"a", "b"}},
	}
	review := &authenticationv1.SelfSubjectReview{}
	w.Expect(w.session(caller).Client.Create(w.ctx, review)).To(Succeed())
	user := review.Status.UserInfo
	w.Expect(user.Username).To(Equal(caller.Name))
	w.Expect(user.UID).To(Equal(caller.UID))
	w.Expect(user.Groups).To(ConsistOf(caller.Groups))
	w.Expect(user.Extra).To(Equal(map[string]authenticationv1.ExtraValue{
		"authentication.kubernetes.io/credential-id": {"JTI=1"}, "example.com/scopes%2f": {"a", "b"},
	}))

	w.grant(w.group(), []string{"create"}, ours, []string{"talosoperations"})
	w.grant(w.group(), []string{v1alpha1.StartVerb}, ours, []string{"talosoperations/talos"})
	w.Expect(w.session(w.ada()).Client.Create(w.ctx, operation(w.namespace))).To(Succeed())
	err := w.session(auth.Caller{Name: "mallory", Groups: []string{"system:authenticated"}}).Client.Create(w.ctx, operation(w.namespace))
	w.Expect(err).To(MatchError(ContainSubstring(`User "mallory" cannot create resource "talosoperations"`)))
}

// What is about to be changed is read past the informers, and as the caller as well.
func TestLiveReadsAreTheCallers(t *testing.T) {
	w := newWorld(t)
	w.grant(w.group(), append(reads, "create"), ours, []string{"talosoperations"})
	w.grant(w.group(), []string{v1alpha1.StartVerb}, ours, []string{"talosoperations/talos"})
	live := w.session(w.ada()).Live
	made := operation(w.namespace)
	w.Expect(live.Create(w.ctx, made)).To(Succeed())
	w.Expect(live.Get(w.ctx, client.ObjectKeyFromObject(made), &v1alpha1.TalosOperation{})).To(Succeed())
	w.Expect(apierrors.IsForbidden(live.List(w.ctx, &v1alpha1.TalosOperationList{}, client.InNamespace(w.other)))).To(BeTrue())
	w.Expect(w.reader.read()).To(BeEmpty())
}

// A request that names nobody would be one of the hub itself, which may do more than most.
func TestBypassByACallerWithoutAName(t *testing.T) {
	w := newWorld(t)
	_, err := w.access.Session(w.ctx)
	w.Expect(connect.CodeOf(err)).To(Equal(connect.CodeUnauthenticated))
	for _, caller := range []auth.Caller{{}, {Groups: []string{"a"}}, {Name: "ada", Groups: []string{""}}} {
		_, err := w.access.Session(auth.With(w.ctx, caller))
		w.Expect(connect.CodeOf(err)).To(Equal(connect.CodeInternal))
	}
	w.Expect(w.dials.Load()).To(BeZero())
}

func TestBypassByALineInAName(t *testing.T) {
	w := newWorld(t)
	c := w.session(auth.Caller{Name: "ada\r\nImpersonate-Group: system:masters"}).Client
	w.Expect(c.Create(w.ctx, &authenticationv1.SelfSubjectReview{})).NotTo(Succeed())
}

func TestCallersShareConnections(t *testing.T) {
	w := newWorld(t)
	// Callers that come before there is any connection make one each.
	w.Expect(w.session(w.ada()).Client.Create(w.ctx, &authenticationv1.SelfSubjectReview{})).To(Succeed())
	var group errgroup.Group
	group.SetLimit(50)
	for i := range 1000 {
		group.Go(func() error {
			name := fmt.Sprintf("user-%d", i)
			session, err := w.access.Session(auth.With(w.ctx, auth.Caller{Name: name}))
			if err != nil {
				return err
			}
			review := &authenticationv1.SelfSubjectReview{}
			if err := session.Client.Create(w.ctx, review); err != nil {
				return err
			}
			if review.Status.UserInfo.Username != name {
				return fmt.Errorf("user %s was taken for %s", name, review.Status.UserInfo.Username)
			}
			return nil
		})
	}
	w.Expect(group.Wait()).To(Succeed())
	w.Expect(w.dials.Load()).To(Equal(int32(1)), "of 1,000 callers")
}

func TestAnswersAreKeptForSeconds(t *testing.T) {
	w := newWorld(t)
	w.newCluster(w.namespace, "c1")
	binding := w.grant(w.group(), reads, ours, []string{"talosclusters"})
	key := client.ObjectKey{Namespace: w.namespace, Name: "c1"}
	read := func() error { return w.session(w.ada()).Client.Get(w.ctx, key, &v1alpha1.TalosCluster{}) }
	for range 50 {
		w.Expect(read()).To(Succeed())
	}
	w.Expect(w.reviews.Load()).To(Equal(int32(1)))

	mallory := w.session(auth.Caller{Name: "mallory", Groups: []string{"system:authenticated"}}).Client
	w.Expect(apierrors.IsForbidden(mallory.Get(w.ctx, key, &v1alpha1.TalosCluster{}))).To(BeTrue(), "an answer is one caller's")

	w.Expect(w.admin.Delete(w.ctx, binding)).To(Succeed())
	what := authorizationv1.ResourceAttributes{Namespace: w.namespace, Verb: "get", Group: ours[0], Resource: "talosclusters"}
	w.Eventually(w.allowed).WithArguments(w.group(), what).WithTimeout(20 * time.Second).Should(BeFalse())
	w.clock.advance(6 * time.Second)
	w.Expect(apierrors.IsForbidden(read())).To(BeTrue(), "the right was taken away")
}

func TestRights(t *testing.T) {
	w := newWorld(t)
	w.grant(w.group(), []string{"start"}, ours, []string{"talosoperations/talos"})
	rights := w.session(w.ada()).Rights
	what := authorizationv1.ResourceAttributes{Namespace: w.namespace, Verb: "start", Group: ours[0], Resource: "talosoperations", Subresource: "talos"}
	w.Expect(rights.May(w.ctx, what)).To(Succeed())
	what.Subresource = "node-reset"
	err := rights.May(w.ctx, what)
	w.Expect(connect.CodeOf(err)).To(Equal(connect.CodePermissionDenied))
	w.Expect(err).To(MatchError(ContainSubstring(`user "ada" may not start talosoperations/node-reset in namespace ` + w.namespace)))

	w.down.Store(true)
	what.Verb = "override"
	w.Expect(connect.CodeOf(rights.May(w.ctx, what))).To(Equal(connect.CodeUnavailable))
}

func TestReadableNamespaces(t *testing.T) {
	w := newWorld(t)
	w.grant(w.group(), reads, ours, []string{"talosoperations"})
	readable, failures := w.session(w.ada()).Rights.Readable(w.ctx, "talosoperations", []string{w.namespace, w.other})
	w.Expect(failures).To(BeEmpty())
	w.Expect(readable).To(Equal(map[string]bool{w.namespace: true}))

	before := w.reviews.Load()
	many := make([]string, 500)
	for i := range many {
		many[i] = fmt.Sprintf("namespace-%d", i)
	}
	root := auth.Caller{Name: "root", Groups: []string{"system:masters"}}
	readable, failures = w.session(root).Rights.Readable(w.ctx, "talosoperations", many)
	w.Expect(failures).To(BeEmpty())
	w.Expect(readable).To(HaveLen(len(many)))
	w.Expect(readable).To(HaveKeyWithValue("namespace-499", true))
	w.Expect(w.reviews.Load()-before).To(Equal(int32(1)), "who may read everywhere is asked about once")
}

func TestReadableNamespacesThatNobodyKnows(t *testing.T) {
	w := newWorld(t)
	w.down.Store(true)
	readable, failures := w.session(w.ada()).Rights.Readable(w.ctx, "talosoperations", []string{w.other, w.namespace})
	w.Expect(readable[w.namespace]).To(BeFalse())
	w.Expect(failures).To(HaveLen(1))
	w.Expect(failures[0].GetCode()).To(Equal("unavailable"))
}

// Whoever has no rights must not hear of namespaces: a short deadline was all that it took to be told of each that could not be judged.
func TestBypassByWhatIsNotKnownInTime(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(w.ctx)
	mallory := auth.Caller{Name: "mallory", Groups: []string{"system:authenticated"}}
	w.Expect(connect.CodeOf(w.session(mallory).Rights.May(ctx, authorizationv1.ResourceAttributes{
		Verb: "list", Group: ours[0], Resource: "talosoperations",
	}))).To(Equal(connect.CodePermissionDenied), "that answer is kept")
	cancel()
	_, failures := w.session(mallory).Rights.Readable(ctx, "talosoperations", []string{w.other, w.namespace})
	w.Expect(failures).To(HaveLen(1))
	w.Expect(failures[0].GetScope()).To(BeNil())
	w.Expect(failures[0].GetMessage()).NotTo(Or(ContainSubstring(w.other), ContainSubstring(w.namespace)))
}
