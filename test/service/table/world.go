// SPDX-License-Identifier: Apache-2.0

package table

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/fleet"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/hub/service"
	"ichor.maesh.dev/hub/hub/verify"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/providers/credentials"
)

// What the world has.
const (
	Namespace = "default"
	Cluster   = "c1"
	User      = "jane@example.org"

	running   = "v1.13.9"
	wanted    = "v1.14.1"
	schematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
)

// known are the types of the world.
var known = scheme.New()

// now is the time of the world.
var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// World is what stands behind a server: a management API that counts what is written to it, and a user with rights. One user is everybody.
type World struct {
	// Client reads and writes everything, and counts nothing.
	Client client.WithWatch

	// Denied says what the user may not, of what is asked beforehand; nil denies nothing.
	Denied func(authorizationv1.ResourceAttributes) bool

	// Fails says how a write fails, such as "create TalosOperation"; nil lets all succeed.
	Fails func(write string) error

	// Found is what a look at a cluster that is imported finds, or why it fails.
	Found   verify.Found
	Trouble error

	mu     sync.Mutex
	writes []string
	looks  int
	used   client.WithWatch
}

// NewWorld makes a management API with cluster c1, of three control planes and two workers that run v1.13.9, beside other objects. Objects
// of the same name take the place of those.
func NewWorld(objects ...client.Object) *World {
	w := &World{}
	var later []client.Object
	builder := fake.NewClientBuilder().WithScheme(known).WithReturnManagedFields().
		WithStatusSubresource(&v1alpha1.TalosCluster{}, &v1alpha1.TalosOperation{}).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(event client.Object) []string {
			return []string{string(event.(*corev1.Event).InvolvedObject.UID)}
		})
	given := map[string]bool{}
	for _, object := range objects {
		given[fmt.Sprintf("%T %s", object, object.GetName())] = true
	}
	for _, object := range clusterObjects() {
		if !given[fmt.Sprintf("%T %s", object, object.GetName())] {
			objects = append(objects, object)
		}
	}
	for _, object := range objects {
		if _, managed := object.(*v1alpha1.TalosCluster); managed {
			later = append(later, object)
		} else {
			builder.WithObjects(object)
		}
	}
	w.Client = builder.Build()
	for _, object := range later {
		w.bring(object.(*v1alpha1.TalosCluster))
	}
	w.used = interceptor.NewClient(w.Client, interceptor.Funcs{Create: w.create, Apply: w.apply, Patch: w.patch, Update: w.update, Delete: w.delete})
	return w
}

// Manager is the field manager of the TalosClusters of the world, unless they name one in annotation table/manager.
const Manager = "ichor-import"

// managerAnnotation names another field manager.
const managerAnnotation = "table/manager"

// bring makes a TalosCluster in the way in which somebody makes one: its fields belong to whoever that is.
func (w *World) bring(cluster *v1alpha1.TalosCluster) {
	manager, status := cmp.Or(cluster.Annotations[managerAnnotation], Manager), cluster.Status
	if err := w.Client.Create(context.Background(), cluster, client.FieldOwner(manager)); err != nil {
		panic(err)
	}
	cluster.Status = status
	if err := w.Client.Status().Update(context.Background(), cluster); err != nil {
		panic(err)
	}
}

// clusterObjects are those of cluster c1.
func clusterObjects() []client.Object {
	objects := []client.Object{cluster(nil), Operation("c2-talos-other", "c2")}
	for i := range 3 {
		objects = append(objects, Machine(fmt.Sprintf("c1-cp-%d", i+1), v1alpha1.ControlPlaneRole))
	}
	for i := range 2 {
		objects = append(objects, Machine(fmt.Sprintf("c1-w-%d", i+1), v1alpha1.WorkerRole))
	}
	return objects
}

func cluster(change func(*v1alpha1.TalosCluster)) *v1alpha1.TalosCluster {
	c := &v1alpha1.TalosCluster{ObjectMeta: meta(Cluster, Cluster), Spec: v1alpha1.TalosClusterSpec{TalosVersion: running}}
	c.Status.EtcdLeader = "c1-cp-1"
	if change != nil {
		change(c)
	}
	return c
}

func meta(name, cluster string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: Namespace, Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{clusterv1.ClusterNameLabel: cluster},
		CreationTimestamp: metav1.NewTime(now),
	}
}

// Machine is an approved machine of cluster c1, whose Node is named like it without the cluster.
func Machine(name string, role v1alpha1.MachineRole) *v1alpha1.TalosMachine {
	return &v1alpha1.TalosMachine{
		ObjectMeta: meta(name, Cluster),
		Spec:       v1alpha1.TalosMachineSpec{ClusterName: Cluster, Role: role, Approval: v1alpha1.Approved},
		Status:     v1alpha1.TalosMachineStatus{NodeName: strings.TrimPrefix(name, "c1-"), TalosVersion: running, SchematicID: schematic},
	}
}

// Operation is an upgrade of a cluster that nobody has looked at yet.
func Operation(name, cluster string) *v1alpha1.TalosOperation {
	return &v1alpha1.TalosOperation{ObjectMeta: meta(name, cluster), Spec: v1alpha1.TalosOperationSpec{ClusterName: cluster, Kind: v1alpha1.TalosKind}}
}

// Server is a server on the world.
func (w *World) Server() *service.Server {
	return &service.Server{
		Backend: w, Now: func() time.Time { return now }, Verifier: w.look, Hub: &pb.GetHubResponse{Version: "v0.4.0", Name: "hub-1"},
	}
}

// Session implements service.Backend.
func (w *World) Session(context.Context) (*service.Session, error) {
	return &service.Session{Caller: auth.Caller{Name: User, Method: auth.TokenMethod}, Client: w.used, Live: w.used, Rights: w}, nil
}

// Fleet implements service.Backend.
func (w *World) Fleet(ctx context.Context, namespaces ...string) (*fleet.Fleet, []*pb.Failure, error) {
	return fleet.Load(ctx, w.Client, namespaces...)
}

// May implements service.Rights.
func (w *World) May(_ context.Context, what authorizationv1.ResourceAttributes) error {
	if w.Denied == nil || !w.Denied(what) {
		return nil
	}
	resource := what.Resource
	if what.Subresource != "" {
		resource += "/" + what.Subresource
	}
	return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("%s may not %s %s in namespace %s", User, what.Verb, resource, what.Namespace))
}

// Readable implements service.Rights.
func (w *World) Readable(ctx context.Context, resource string, namespaces []string) (readable map[string]bool, failures []*pb.Failure) {
	readable = map[string]bool{}
	for _, namespace := range namespaces {
		what := authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Group: v1alpha1.GroupVersion.Group, Resource: resource}
		readable[namespace] = w.May(ctx, what) == nil
	}
	return readable, nil
}

// Writes are the writes that were tried, in order.
func (w *World) Writes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.writes)
}

// Looks is how often somebody's cluster was opened.
func (w *World) Looks() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.looks
}

// Forbid makes the management API refuse every write, as it does for who may only read.
func (w *World) Forbid() {
	w.Fails = func(write string) error {
		kind := write[strings.LastIndex(write, " ")+1:]
		resource := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: strings.ToLower(kind) + "s"}
		return apierrors.NewForbidden(resource, "", fmt.Errorf("user %q may only read", User))
	}
}

func (w *World) look(context.Context, *credentials.Kubeconfig, *credentials.Talosconfig) (verify.Found, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	return w.Found, w.Trouble
}

// note writes down a write, and says how it fails.
func (w *World) note(verb, kind string, dry []string) error {
	if len(dry) > 0 {
		verb = "dry-run " + verb
	}
	w.mu.Lock()
	w.writes = append(w.writes, verb+" "+kind)
	w.mu.Unlock()
	if w.Fails == nil {
		return nil
	}
	return w.Fails(verb + " " + kind)
}

func kindOf(object client.Object) string {
	kind, err := apiutil.GVKForObject(object, known)
	if err != nil {
		return fmt.Sprintf("%T", object)
	}
	return kind.Kind
}

func (w *World) create(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
	if err := w.note("create", kindOf(object), (&client.CreateOptions{}).ApplyOptions(options).DryRun); err != nil {
		return err
	}
	return c.Create(ctx, object, options...)
}

func (w *World) apply(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	dry := (&client.ApplyOptions{}).ApplyOptions(options).DryRun
	if err := w.note("apply", "TalosCluster", dry); err != nil || len(dry) > 0 { // Nothing else is applied, and the fake knows no trial of it.
		return err
	}
	return c.Apply(ctx, object, options...)
}

func (w *World) patch(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	if err := w.note("patch", kindOf(object), (&client.PatchOptions{}).ApplyOptions(options).DryRun); err != nil {
		return err
	}
	return c.Patch(ctx, object, patch, options...)
}

func (w *World) update(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
	if err := w.note("update", kindOf(object), (&client.UpdateOptions{}).ApplyOptions(options).DryRun); err != nil {
		return err
	}
	return c.Update(ctx, object, options...)
}

func (w *World) delete(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
	if err := w.note("delete", kindOf(object), (&client.DeleteOptions{}).ApplyOptions(options).DryRun); err != nil {
		return err
	}
	return c.Delete(ctx, object, options...)
}
