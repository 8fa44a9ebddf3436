// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
	"ichor.maesh.dev/hub/test/sim/workload"
)

// cached are the resources that the simulated controllers look at all the time.
var cached = []*kubeapi.Resource{
	kubeapi.Namespaces, kubeapi.ServiceAccounts, kubeapi.Nodes, kubeapi.Pods, kubeapi.Deployments, kubeapi.ReplicaSets, kubeapi.DaemonSets, kubeapi.PodDisruptionBudgets,
}

// Store is what is in the cluster, as the simulated controllers and kubelets see and change it: through the API servers.
type Store struct {
	cluster *Cluster
	caches  map[*kubeapi.Resource]*cache
	changed func()
	news    chan struct{} // Holds one element while there is something to tell.

	mu      sync.Mutex
	clients map[string]client.WithWatch // By whose name they act in.
}

// NewStore makes the store. changed runs after changes, whoever makes them, and once more a while after one has failed.
func (c *Cluster) NewStore(changed func()) *Store {
	s := &Store{
		cluster: c, caches: map[*kubeapi.Resource]*cache{}, changed: changed, news: make(chan struct{}, 1), clients: map[string]client.WithWatch{},
	}
	for _, r := range cached {
		s.caches[r] = newCache()
	}
	return s
}

// Follow keeps what is known up to date until the cluster ends, and returns when everything is known once.
func (s *Store) Follow(ctx context.Context) error {
	for _, r := range cached {
		s.cluster.group.Go(func() { s.follow(r) })
	}
	for _, r := range cached {
		select {
		case <-s.caches[r].filled:
		case <-ctx.Done():
			return fmt.Errorf("list %s: %w", r.Plural, ctx.Err())
		}
	}
	return nil
}

// Tell runs changed for every Poke, one after the other, until the cluster ends.
func (s *Store) Tell() {
	s.cluster.group.Go(func() {
		for {
			select {
			case <-s.news:
				s.changed()
			case <-s.cluster.life.Done():
				return
			}
		}
	})
}

// Poke lets changed run soon.
func (s *Store) Poke() {
	select {
	case s.news <- struct{}{}:
	default: // It has been told and not looked yet.
	}
}

// later lets changed run after a while: what could not be written is to be tried again.
func (s *Store) later() {
	s.cluster.group.Go(func() {
		if await(s.cluster.life, nil, time.Second) == nil {
			s.Poke()
		}
	})
}

// client is the one that acts in a name.
func (s *Store) client(owner string) (client.WithWatch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.clients[owner]; ok {
		return known, nil
	}
	made, err := s.cluster.client(owner)
	if err == nil {
		s.clients[owner] = made
	}
	return made, err
}

// As is the store as the kubelet of a machine changes it.
func (s *Store) As(node string) workload.Store { return &namedStore{Store: s, owner: node} }

// namedStore is a store in somebody's name.
type namedStore struct {
	*Store
	owner string
}

// Get returns an object.
func (s *Store) Get(r *kubeapi.Resource, namespace, name string) (kubeapi.Object, error) {
	if known, ok := s.caches[r]; ok {
		if obj := known.get(namespace, name); obj != nil {
			return obj, nil
		}
		return nil, apierrors.NewNotFound(r.GroupResource(), name)
	}
	return s.read(r, namespace, name)
}

// read asks the API server.
func (s *Store) read(r *kubeapi.Resource, namespace, name string) (kubeapi.Object, error) {
	c, err := s.client("")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(s.cluster.life, writeWithin)
	defer cancel()
	obj := r.New()
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, obj); err != nil {
		return nil, err
	}
	return obj, nil
}

// List returns the objects of a namespace, or of all when it is empty, in order of their names. The version is of no use here.
func (s *Store) List(r *kubeapi.Resource, namespace string) ([]kubeapi.Object, uint64) {
	known, ok := s.caches[r]
	if !ok {
		return s.readList(r, namespace), 0
	}
	list := known.list(namespace)
	slices.SortFunc(list, func(a, b kubeapi.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return list, 0
}

func (s *Store) readList(r *kubeapi.Resource, namespace string) []kubeapi.Object {
	list, err := s.listFrom(s.cluster.life, r, namespace)
	if err != nil {
		s.cluster.Logger.V(1).Info("A list failed", "cluster", s.cluster.Name, "resource", r.Plural, "reason", err.Error())
		return nil
	}
	return objectsOf(list)
}

func (s *Store) listFrom(ctx context.Context, r *kubeapi.Resource, namespace string) (client.ObjectList, error) {
	c, err := s.client("")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	list := r.NewList().(client.ObjectList) //nolint:forcetypeassert // Lists of Kubernetes are.
	return list, c.List(ctx, list, client.InNamespace(namespace))
}

func objectsOf(list runtime.Object) []kubeapi.Object {
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil
	}
	objects := make([]kubeapi.Object, 0, len(items))
	for _, item := range items {
		objects = append(objects, item.(kubeapi.Object)) //nolint:forcetypeassert // The items of lists are objects.
	}
	return objects
}

// Create makes an object as an administrator.
func (s *Store) Create(r *kubeapi.Resource, obj kubeapi.Object, dryRun bool) (kubeapi.Object, error) {
	return s.create("", r, obj, dryRun)
}

// CreateAs makes an object from its content, for a client of that name.
func (s *Store) CreateAs(r *kubeapi.Resource, content map[string]any, manager string) (kubeapi.Object, error) {
	obj := r.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj); err != nil {
		return nil, err
	}
	return s.create("", r, obj, false, client.FieldOwner(manager))
}

// Apply is server-side apply of an object by its content.
func (s *Store) Apply(r *kubeapi.Resource, content map[string]any, manager string, force, dryRun bool) (kubeapi.Object, bool, error) {
	options := []client.ApplyOption{client.FieldOwner(manager)}
	if force {
		options = append(options, client.ForceOwnership)
	}
	if dryRun {
		options = append(options, client.DryRunAll)
	}
	applied := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
	err := s.write("", func(ctx context.Context, c client.Client) error {
		return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), options...)
	})
	if err != nil {
		return nil, false, err
	}
	obj, err := s.read(r, applied.GetNamespace(), applied.GetName())
	if err != nil {
		return nil, false, err
	}
	s.keep(r, obj)
	return obj, false, nil
}

func (s *Store) create(owner string, r *kubeapi.Resource, obj kubeapi.Object, dryRun bool, options ...client.CreateOption) (kubeapi.Object, error) {
	if known, ok := s.caches[r]; ok && known.get(obj.GetNamespace(), obj.GetName()) != nil {
		return nil, apierrors.NewAlreadyExists(r.GroupResource(), obj.GetName()) // It saves the way.
	}
	if dryRun {
		options = append(options, client.DryRunAll)
	}
	wanted := obj.DeepCopyObject().(kubeapi.Object) //nolint:forcetypeassert // A copy is of the same type.
	err := s.write(owner, func(ctx context.Context, c client.Client) error { return c.Create(ctx, obj, options...) })
	if err != nil {
		return nil, err
	}
	if r.CopyStatus != nil && !dryRun {
		if obj, err = s.writeStatus(owner, r, obj, wanted); err != nil {
			return nil, err
		}
	}
	s.keep(r, obj)
	return obj, nil
}

// writeStatus brings the status of an object that was written in line, if it is not.
func (s *Store) writeStatus(owner string, r *kubeapi.Resource, written, wanted kubeapi.Object) (kubeapi.Object, error) {
	obj := written.DeepCopyObject().(kubeapi.Object) //nolint:forcetypeassert // A copy is of the same type.
	r.CopyStatus(wanted, obj)
	if equality.Semantic.DeepEqual(obj, written) {
		return written, nil
	}
	err := s.write(owner, func(ctx context.Context, c client.Client) error { return c.Status().Update(ctx, obj) })
	return obj, err
}

// Update changes an object as an administrator: modify gets a copy to change, and may replace it.
func (s *Store) Update(
	r *kubeapi.Resource, namespace, name string, _ bool, modify func(kubeapi.Object) (kubeapi.Object, error),
) (kubeapi.Object, error) {
	return s.update("", r, namespace, name, modify)
}

// update tries again with what the API server has when something else has changed meanwhile.
func (s *Store) update(
	owner string, r *kubeapi.Resource, namespace, name string, modify func(kubeapi.Object) (kubeapi.Object, error),
) (kubeapi.Object, error) {
	old, err := s.Get(r, namespace, name)
	for attempt := 0; err == nil; attempt++ {
		var now kubeapi.Object
		if now, err = modify(old.DeepCopyObject().(kubeapi.Object)); err != nil { //nolint:forcetypeassert // A copy is of the same type.
			return nil, err
		}
		var written kubeapi.Object
		written, err = s.replace(owner, r, old, now)
		if err == nil {
			s.keep(r, written)
			return written, nil
		}
		if !apierrors.IsConflict(err) || attempt == attempts {
			return nil, err
		}
		old, err = s.read(r, namespace, name)
	}
	return nil, err
}

// attempts is how often an update is tried again after a conflict.
const attempts = 3

// replace writes what differs between two states of an object.
func (s *Store) replace(owner string, r *kubeapi.Resource, old, now kubeapi.Object) (kubeapi.Object, error) {
	if equality.Semantic.DeepEqual(old, now) {
		return old, nil
	}
	if done, written, err := s.replacePod(r, old, now); done {
		return written, err
	}
	main := now.DeepCopyObject().(kubeapi.Object) //nolint:forcetypeassert // A copy is of the same type.
	if r.CopyStatus != nil {
		r.CopyStatus(old, main)
	}
	if !equality.Semantic.DeepEqual(old, main) {
		if err := s.write(owner, func(ctx context.Context, c client.Client) error { return c.Update(ctx, main) }); err != nil {
			return nil, err
		}
	}
	if r.CopyStatus == nil {
		return main, nil
	}
	return s.writeStatus(owner, r, main, now)
}

// Delete removes an object at once.
func (s *Store) Delete(r *kubeapi.Resource, namespace, name string, dryRun bool) (kubeapi.Object, error) {
	return s.remove("", r, namespace, name, dryRun)
}

func (s *Store) remove(owner string, r *kubeapi.Resource, namespace, name string, dryRun bool) (kubeapi.Object, error) {
	old, err := s.Get(r, namespace, name)
	if err != nil {
		return nil, err
	}
	options := []client.DeleteOption{client.GracePeriodSeconds(0), client.PropagationPolicy(metav1.DeletePropagationBackground)}
	if dryRun {
		options = append(options, client.DryRunAll)
	}
	obj := r.New()
	obj.SetNamespace(namespace)
	obj.SetName(name)
	uid := old.GetUID()
	options = append(options, client.Preconditions{UID: &uid})
	err = s.write(owner, func(ctx context.Context, c client.Client) error { return c.Delete(ctx, obj, options...) })
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if known, ok := s.caches[r]; ok && !dryRun {
		known.removed(old)
	}
	return old, nil
}

// write does one request. What fails is tried again later, unless the API server has understood it and says no.
func (s *Store) write(owner string, do func(context.Context, client.Client) error) error {
	c, err := s.client(owner)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.cluster.life, writeWithin)
	defer cancel()
	err = do(ctx, c)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
		s.cluster.Logger.V(1).Info("A write failed", "cluster", s.cluster.Name, "as", owner, "reason", err.Error())
		s.later()
	}
	return err
}

// keep notes what was written: the next look is not to miss it.
func (s *Store) keep(r *kubeapi.Resource, obj kubeapi.Object) {
	if known, ok := s.caches[r]; ok {
		obj.GetObjectKind().SetGroupVersionKind(r.GroupVersionKind())
		known.put(obj)
	}
}
