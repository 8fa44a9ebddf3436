// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
)

// cache holds the objects of one resource. What is written goes in at once, and what is older than that stays out.
type cache struct {
	filled chan struct{} // Closed when it was filled for the first time.

	mu      sync.Mutex
	full    bool
	objects map[string]kubeapi.Object // By namespace/name.
	gone    map[types.UID]bool        // What was deleted since it was filled.
}

func newCache() *cache {
	return &cache{filled: make(chan struct{}), objects: map[string]kubeapi.Object{}, gone: map[types.UID]bool{}}
}

func keyOf(namespace, name string) string { return namespace + "/" + name }

func (c *cache) get(namespace, name string) kubeapi.Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.objects[keyOf(namespace, name)]
}

func (c *cache) list(namespace string) []kubeapi.Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]kubeapi.Object, 0, len(c.objects))
	for _, obj := range c.objects {
		if namespace == "" || namespace == obj.GetNamespace() {
			list = append(list, obj)
		}
	}
	return list
}

// fill begins anew: versions of another run of etcd say nothing about those of this one.
func (c *cache) fill(objects []kubeapi.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects, c.gone = map[string]kubeapi.Object{}, map[types.UID]bool{}
	for _, obj := range objects {
		c.objects[keyOf(obj.GetNamespace(), obj.GetName())] = obj
	}
	if !c.full {
		c.full = true
		close(c.filled)
	}
}

// put takes an object in, unless a newer state of it is known. It says whether that is news.
func (c *cache) put(obj kubeapi.Object) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := keyOf(obj.GetNamespace(), obj.GetName())
	old := c.objects[key]
	if c.gone[obj.GetUID()] || old != nil && old.GetUID() == obj.GetUID() && versionOf(old) >= versionOf(obj) {
		return false
	}
	c.objects[key] = obj
	return true
}

// removed takes an object out.
func (c *cache) removed(obj kubeapi.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone[obj.GetUID()] = true
	key := keyOf(obj.GetNamespace(), obj.GetName())
	if old := c.objects[key]; old != nil && old.GetUID() == obj.GetUID() {
		delete(c.objects, key)
	}
}

// versionOf orders the states of an object. Kubernetes lets them be compared as numbers.
func versionOf(obj kubeapi.Object) uint64 {
	version, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return version
}
