// SPDX-License-Identifier: Apache-2.0

// Package kubeapi is a small Kubernetes API server for simulated clusters: real HTTPS, JSON, YAML and protobuf, watches, patches,
// tables and evictions, over a store in memory. It serves the resources in its table and answers NotFound for all others.
package kubeapi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"ichor.maesh.dev/hub/test/sim/secrets"
)

// historyKept is how many changes a watch may be behind before it gets 410 Gone.
const historyKept = 1024

// Object is what the store holds. Stored objects are never changed: readers share them.
type Object interface {
	metav1.Object
	runtime.Object
}

// change is one write.
type change struct {
	version  uint64
	kind     watch.EventType
	resource *Resource
	old, now Object // old is nil for ADDED; for DELETED now is the last state with the version of the deletion.
	seal     *secrets.EncryptionKey
}

// Store holds the objects of one cluster.
type Store struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	version uint64
	objects map[*Resource]map[string]Object  // By namespace/name.
	sealed  map[string]secrets.EncryptionKey // How Secrets are encrypted, by namespace/name.
	history []change
	wake    chan struct{} // Closed and replaced at each write.
}

// firstVersion is the version of an empty store: an etcd that serves Kubernetes has written some of its own by then.
const firstVersion = 1000

// NewStore makes an empty store.
func NewStore(clk clock.PassiveClock) *Store {
	return &Store{
		clock: clk, version: firstVersion, objects: map[*Resource]map[string]Object{}, sealed: map[string]secrets.EncryptionKey{}, wake: make(chan struct{}),
	}
}

func keyOf(namespace, name string) string { return namespace + "/" + name }

// Get returns an object.
func (s *Store) Get(r *Resource, namespace, name string) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(r, namespace, name)
}

func (s *Store) get(r *Resource, namespace, name string) (Object, error) {
	if obj, ok := s.objects[r][keyOf(namespace, name)]; ok {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(r.GroupResource(), name)
}

// List returns the objects of a namespace, or of all when it is empty, in order of their names, and the version of the list.
func (s *Store) List(r *Resource, namespace string) ([]Object, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Object{}
	for _, obj := range s.objects[r] {
		if namespace == "" || namespace == obj.GetNamespace() {
			list = append(list, obj)
		}
	}
	slices.SortFunc(list, func(a, b Object) int {
		return cmp.Compare(keyOf(a.GetNamespace(), a.GetName()), keyOf(b.GetNamespace(), b.GetName()))
	})
	return list, s.version
}

// Create is that of the store.
func (w Writer) Create(r *Resource, obj Object, dryRun bool) (Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj.SetName(obj.GetGenerateName() + uuid.NewString()[:5])
	}
	if _, err := w.get(r, obj.GetNamespace(), obj.GetName()); err == nil {
		return nil, apierrors.NewAlreadyExists(r.GroupResource(), obj.GetName())
	}
	obj.SetUID(newUID())
	obj.SetCreationTimestamp(metav1.NewTime(w.clock.Now().Truncate(time.Second)))
	countGeneration(r, nil, obj)
	return w.write(change{kind: watch.Added, resource: r, now: obj, seal: w.seal(r)}, dryRun), nil
}

// Update is that of the store.
func (w Writer) Update(r *Resource, namespace, name string, dryRun bool, modify func(Object) (Object, error)) (Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old, err := w.get(r, namespace, name)
	if err != nil {
		return nil, err
	}
	if err := w.readable(r, old); err != nil {
		return nil, err
	}
	now, err := modify(old.DeepCopyObject().(Object)) //nolint:forcetypeassert // A copy is of the same type.
	if err != nil {
		return nil, err
	}
	if v := now.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(r.GroupResource(), name, errors.New(
			"the object has been modified; please apply your changes to the latest version and try again"))
	}
	keepIdentity(old, now)
	countGeneration(r, old, now)
	if equality.Semantic.DeepEqual(old, now) && !w.stale(r, old) {
		return old, nil
	}
	return w.write(change{kind: watch.Modified, resource: r, old: old, now: now, seal: w.seal(r)}, dryRun), nil
}

// keepIdentity restores what no client may change.
func keepIdentity(old, now Object) {
	now.SetUID(old.GetUID())
	now.SetName(old.GetName())
	now.SetNamespace(old.GetNamespace())
	now.SetCreationTimestamp(old.GetCreationTimestamp())
	now.SetGeneration(old.GetGeneration())
	now.SetResourceVersion(old.GetResourceVersion())
}

// countGeneration counts the changes of an object's spec, where that is done.
func countGeneration(r *Resource, old, now Object) {
	if !r.Counted {
		return
	}
	if old == nil {
		now.SetGeneration(1)
		return
	}
	if spec := func(o Object) any { return reflect.ValueOf(o).Elem().FieldByName("Spec").Interface() }; !equality.Semantic.DeepEqual(spec(old), spec(now)) {
		now.SetGeneration(old.GetGeneration() + 1)
	}
}

// Delete removes an object.
func (s *Store) Delete(r *Resource, namespace, name string, dryRun bool) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.get(r, namespace, name)
	if err != nil {
		return nil, err
	}
	now := old.DeepCopyObject().(Object) //nolint:forcetypeassert // A copy is of the same type.
	return s.write(change{kind: watch.Deleted, resource: r, old: old, now: now}, dryRun), nil
}

// write gives a change its version and keeps it. Objects carry their type, since every encoding wants it.
func (s *Store) write(c change, dryRun bool) Object {
	c.now.GetObjectKind().SetGroupVersionKind(c.resource.GroupVersionKind())
	if dryRun {
		return c.now
	}
	s.version++
	c.version = s.version
	c.now.SetResourceVersion(strconv.FormatUint(c.version, 10))
	s.keep(c)
	if s.history = append(s.history, c); len(s.history) > historyKept {
		s.history = slices.Clone(s.history[len(s.history)-historyKept/2:])
	}
	close(s.wake)
	s.wake = make(chan struct{})
	return c.now
}

func (s *Store) keep(c change) {
	key := keyOf(c.now.GetNamespace(), c.now.GetName())
	if c.seal != nil {
		s.sealed[key] = *c.seal
	}
	if c.kind == watch.Deleted {
		delete(s.objects[c.resource], key)
		if c.resource == Secrets {
			delete(s.sealed, key)
		}
		return
	}
	if s.objects[c.resource] == nil {
		s.objects[c.resource] = map[string]Object{}
	}
	s.objects[c.resource][key] = c.now
}

// since returns the changes of a resource after a version, the version they lead to, and a channel that closes at the next
// change. It fails with 410 Gone when the history does not reach back that far.
func (s *Store) since(r *Resource, version uint64) ([]change, uint64, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.inHistory(version); err != nil {
		return nil, 0, nil, err
	}
	start, _ := slices.BinarySearchFunc(s.history, version+1, func(c change, v uint64) int { return cmp.Compare(c.version, v) })
	var list []change
	for _, c := range s.history[start:] {
		if c.resource == r {
			list = append(list, c)
		}
	}
	return list, s.version, s.wake, nil
}

// reaches fails if since would.
func (s *Store) reaches(version uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inHistory(version)
}

func (s *Store) inHistory(version uint64) error {
	if len(s.history) > 0 && version < s.history[0].version-1 || version > s.version {
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", version, s.version))
	}
	return nil
}

// Everything returns all objects, for keeping them over a restart.
func (s *Store) Everything() []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Object
	for _, objects := range s.objects {
		all = slices.AppendSeq(all, maps.Values(objects))
	}
	return all
}

// Version is the version of the last write.
func (s *Store) Version() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Rewind makes the store what it was at an earlier version. Watches that have seen later ones are Gone.
func (s *Store) Rewind(version uint64, objects []Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.history, s.objects = version, nil, map[*Resource]map[string]Object{}
	for _, obj := range objects {
		if r := resourceOfKind(obj.GetObjectKind().GroupVersionKind()); r != nil {
			s.keep(change{kind: watch.Added, resource: r, now: obj})
		}
	}
	close(s.wake)
	s.wake = make(chan struct{})
}

// Load puts objects of an earlier run back. Their versions start anew, so that watches of that run are Gone.
func (s *Store) Load(objects []Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, obj := range objects {
		if r := resourceOfKind(obj.GetObjectKind().GroupVersionKind()); r != nil {
			s.write(change{kind: watch.Added, resource: r, now: obj}, false)
		}
	}
}
