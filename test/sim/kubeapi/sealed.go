// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ichor.maesh.dev/hub/test/sim/secrets"
)

// Writer writes to a store for one API server.
type Writer struct {
	*Store
	keys []secrets.EncryptionKey // With what the server reads Secrets, and encrypts them with the first; none leaves them as they are.
}

// as is the store as an API server with those keys uses it.
func (s *Store) as(keys []secrets.EncryptionKey) Writer { return Writer{Store: s, keys: keys} }

// Create stores a new object, which it takes over.
func (s *Store) Create(r *Resource, obj Object, dryRun bool) (Object, error) {
	return s.as(nil).Create(r, obj, dryRun)
}

// Update changes an object: modify gets a copy to change, and may replace it. A stale resourceVersion is a conflict, and a
// copy that comes back unchanged is not written.
func (s *Store) Update(r *Resource, namespace, name string, dryRun bool, modify func(Object) (Object, error)) (Object, error) {
	return s.as(nil).Update(r, namespace, name, dryRun, modify)
}

// Apply is server-side apply of an object by its content. It says whether the object was created.
func (s *Store) Apply(r *Resource, content map[string]any, manager string, force, dryRun bool) (obj Object, created bool, err error) {
	return s.as(nil).Apply(r, content, manager, force, dryRun)
}

// seal is the key with which an object is encrypted that is written now; nil leaves it as it is.
func (w Writer) seal(r *Resource) *secrets.EncryptionKey {
	if r != Secrets || len(w.keys) == 0 {
		return nil
	}
	return &w.keys[0]
}

// stale says whether an unchanged object is to be written anyway, since it is not encrypted as the server encrypts now. The caller
// holds the lock.
func (w Writer) stale(r *Resource, obj Object) bool {
	seal := w.seal(r)
	return seal != nil && w.sealed[keyOf(obj.GetNamespace(), obj.GetName())] != *seal
}

// readable says why the server cannot read objects: it does not have the key that they are encrypted with. The caller holds the lock.
func (w Writer) readable(r *Resource, objects ...Object) error {
	if r != Secrets || len(w.keys) == 0 {
		return nil
	}
	for _, obj := range objects {
		key := keyOf(obj.GetNamespace(), obj.GetName())
		if seal := w.sealed[key]; seal != (secrets.EncryptionKey{}) && !slices.Contains(w.keys, seal) {
			return apierrors.NewInternalError(fmt.Errorf(
				"unable to transform key %q: no matching key was found for the provided transformer", "/registry/secrets/"+key))
		}
	}
	return nil
}

// Sealed says how each Secret is encrypted, by namespace/name. Those that no API server has written are not in it.
func (s *Store) Sealed() map[string]secrets.EncryptionKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.sealed)
}

// LoadSealed is for the objects of Load.
func (s *Store) LoadSealed(sealed map[string]secrets.EncryptionKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.sealed, sealed)
}

// keysFor are the keys of the server that got a request.
func (a *API) keysFor(r *request) []secrets.EncryptionKey {
	if r.resource != Secrets {
		return nil
	}
	server, err := a.serverOf(r.Request)
	if err != nil {
		return nil // It has answered who the client is, so that it is there.
	}
	return server.Encryption
}

// readable says why the server that got the request cannot read objects.
func (a *API) readable(r *request, objects ...Object) error {
	a.store.mu.Lock()
	defer a.store.mu.Unlock()
	return a.store.as(a.keysFor(r)).readable(r.resource, objects...)
}
