// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	testingcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/scheme"
)

// informers are informers over sources that tests put objects into.
type informers struct {
	cache.Informers

	ctx     context.Context
	sources map[string]*testingcache.FakeControllerSource
	running map[string]toolscache.SharedIndexInformer
	fail    error
}

func newInformers(t *testing.T) *informers {
	t.Helper()
	i := &informers{ctx: t.Context(), sources: map[string]*testingcache.FakeControllerSource{}, running: map[string]toolscache.SharedIndexInformer{}}
	for _, object := range All() {
		i.sources[kind(object)] = testingcache.NewFakeControllerSource()
	}
	return i
}

func kind(object runtime.Object) string { return fmt.Sprintf("%T", object) }

func (i *informers) add(objects ...client.Object) {
	for _, object := range objects {
		i.sources[kind(object)].Add(object)
	}
}

func (i *informers) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	if i.fail != nil {
		return nil, i.fail
	}
	informer := toolscache.NewSharedIndexInformer(i.sources[kind(object)], object, 0, nil)
	i.running[kind(object)] = informer
	go informer.RunWithContext(i.ctx)
	return informer, nil
}

func TestStartFeedsUntilItEnds(t *testing.T) {
	g := NewWithT(t)
	sources := newInformers(t)
	lease := &coordinationv1.Lease{ObjectMeta: named("c1-ichor-lock"), Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("ichor-controller/op/default/up")}}
	lease.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
	sources.add(cluster("c1"), machine("c1-w-1", "c1"), operation("up", "c1"), lease)
	f := New()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Start(ctx, sources) }()
	g.Expect(f.WaitForSync(t.Context())).To(Succeed())
	g.Expect(f.Cluster(key("c1")).GetLock().GetOperation().GetName()).To(Equal("up"))
	g.Expect(f.Operation(key("up")).GetMachinesTotal()).To(BeEquivalentTo(1))

	_, more, _ := f.After(f.Last(), nil)
	sources.sources[kind(&v1alpha1.TalosOperation{})].Modify(drains(operation("up", "c1"), "c1-w-1"))
	<-more
	g.Expect(f.Machine(key("c1-w-1")).GetStep()).To(Equal("Draining"))
	_, more, _ = f.After(f.Last(), nil)
	sources.sources[kind(&v1alpha1.TalosOperation{})].Delete(operation("up", "c1"))
	<-more
	g.Expect(f.Operation(key("up"))).To(BeNil())

	stop()
	g.Expect(<-ended).To(Succeed())
	g.Expect(f.Closed()).To(BeClosed())
	g.Expect(f.Cause()).To(MatchError(ErrStopping))
}

func TestStartWithSomeObjects(t *testing.T) {
	g := NewWithT(t)
	sources := newInformers(t)
	sources.add(cluster("c1"), machine("c1-w-1", "c1"))
	f := New()
	go f.Start(t.Context(), sources, &v1alpha1.TalosCluster{}) //nolint:errcheck // It ends with the test.
	g.Expect(f.WaitForSync(t.Context())).To(Succeed())
	g.Expect(f.Cluster(key("c1"))).NotTo(BeNil())
	g.Expect(f.MachinesOf(key("c1"))).To(BeEmpty())
	g.Expect(sources.running).To(HaveLen(1))
}

func TestStartSaysWhatItCannotWatch(t *testing.T) {
	g := NewWithT(t)
	f := New()
	err := f.Start(t.Context(), &informers{fail: errors.New("no such kind")})
	g.Expect(err).To(MatchError("watching *v1alpha1.TalosCluster: no such kind"))
	g.Expect(f.Closed()).To(BeClosed())
}

// What an informer missed the end of is gone as well.
func TestMissedDeletion(t *testing.T) {
	g := NewWithT(t)
	f := newFleet()
	f.Apply(operation("up", "c1"))
	f.handler().OnDelete(toolscache.DeletedFinalStateUnknown{Key: "default/up", Obj: operation("up", "c1")})
	g.Expect(f.Operation(key("up"))).To(BeNil())
}

// reader lists objects, unless fail has an error for a kind of list and a namespace.
func reader(fail func(list client.ObjectList, namespace string) error, objects ...client.Object) client.Reader {
	return fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if err := fail(list, (&client.ListOptions{}).ApplyOptions(options).Namespace); err != nil {
				return err
			}
			return c.List(ctx, list, options...)
		},
	}).Build()
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no right"))
}

func TestLoad(t *testing.T) {
	g := NewWithT(t)
	elsewhere := operation("down", "c2")
	elsewhere.Namespace = "other"
	fails := func(list client.ObjectList, namespace string) error {
		switch list.(type) {
		case *coordinationv1.LeaseList:
			return forbidden("leases")
		case *clusterv1.ClusterList:
			return &meta.NoKindMatchError{}
		case *v1alpha1.TalosMachineList:
			if namespace == "other" {
				return forbidden("talosmachines")
			}
		}
		return nil
	}
	objects := []client.Object{cluster("c1"), machine("c1-w-1", "c1"), operation("up", "c1"), elsewhere}
	f, failures, err := Load(t.Context(), reader(fails, objects...), "default", "other")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(failures).To(HaveLen(1), "the lock is done without, and nobody needs Cluster API")
	g.Expect(failures[0].GetScope().GetNamespace()).To(Equal("other"))
	g.Expect(failures[0].GetCode()).To(Equal("permission_denied"))
	g.Expect(failures[0].GetMessage()).To(HavePrefix("listing talosmachines: "))
	g.Expect(f.Namespaces()).To(Equal([]string{"default", "other"}))
	g.Expect(f.Synced()).To(BeTrue())
	g.Expect(f.Changes()).To(BeFalse())
	g.Expect(f.Token(f.Last())).To(BeEmpty(), "nothing goes on from here")
	g.Expect(f.MachinesOf(key("c1"))).To(HaveLen(1))

	everywhere, failures, err := Load(t.Context(), reader(func(client.ObjectList, string) error { return nil }, objects...))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(failures).To(BeEmpty())
	g.Expect(everywhere.Namespaces()).To(Equal([]string{"default", "other"}))
}

func TestLoadOfNothing(t *testing.T) {
	for name, row := range map[string]struct {
		err   error
		whole bool
		code  string
	}{
		"nobody answers":       {&net.OpError{Op: "dial", Err: errors.New("connection refused")}, true, ""},
		"nobody is signed in":  {apierrors.NewUnauthorized("no"), true, ""},
		"too much is asked":    {apierrors.NewTooManyRequests("later", 1), false, "unavailable"},
		"an error of its own":  {apierrors.NewInternalError(errors.New("broken")), false, "unknown"},
		"not this namespace's": {forbidden("talosclusters"), false, "permission_denied"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, failures, err := Load(t.Context(), reader(func(list client.ObjectList, _ string) error {
				if _, ok := list.(*v1alpha1.TalosClusterList); ok {
					return row.err
				}
				return nil
			}), "default")
			if row.whole {
				g.Expect(err).To(MatchError(ContainSubstring("listing talosclusters: ")))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(failures).To(HaveLen(1))
			g.Expect(failures[0].GetCode()).To(Equal(row.code))
		})
	}
}
