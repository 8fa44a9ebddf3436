// SPDX-License-Identifier: Apache-2.0

// Package fault is the register of the faults that a test has ordered. The simulated machines ask it at their fault points.
package fault

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Fault is an order: what shall go wrong, where, and how often.
type Fault struct {
	// Name is the fault point, one of Definitions.
	Name string `json:"name"`
	// Cluster limits the fault to one cluster; empty means all.
	Cluster string `json:"cluster,omitempty"`
	// Node limits the fault to the nodes of that name; empty means all.
	Node string `json:"node,omitempty"`
	// Times is how often it fires; zero means until it is cleared.
	Times int `json:"times,omitempty"`
	// Params are the parameters that the definition names.
	Params map[string]string `json:"params,omitempty"`
}

// Site is the place where a fault point is asked.
type Site struct{ Cluster, Node string }

// Active is a fault in force.
type Active struct {
	// ID is what Clear takes.
	ID string `json:"id"`
	Fault
	// Fired counts how often it has fired.
	Fired int `json:"fired"`
}

// Registry holds the active faults. The zero value is ready to use.
type Registry struct {
	mu       sync.Mutex
	next     int
	active   []*Active
	watchers []func(cluster string)
	wake     chan struct{} // Closed and replaced at each change.
}

// Add puts a fault in force and returns its ID.
func (r *Registry) Add(f Fault) (string, error) {
	def, ok := Lookup(f.Name)
	if !ok {
		return "", fmt.Errorf("unknown fault %q", f.Name)
	}
	if f.Times < 0 {
		return "", fmt.Errorf("fault %s: times must not be negative", f.Name)
	}
	f, err := def.complete(f)
	if err != nil {
		return "", err
	}
	id := r.insert(f)
	r.changed(f.Cluster)
	return id, nil
}

func (r *Registry) insert(f Fault) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	id := "f" + strconv.Itoa(r.next)
	r.active = append(r.active, &Active{ID: id, Fault: f})
	return id
}

// Clear ends a fault, or all of them when id is empty. It reports whether there was one.
func (r *Registry) Clear(id string) bool {
	r.mu.Lock()
	concerned := map[string]bool{}
	r.active = slices.DeleteFunc(r.active, func(a *Active) bool {
		if id != "" && a.ID != id {
			return false
		}
		concerned[a.Cluster] = true
		return true
	})
	r.mu.Unlock()
	for cluster := range concerned {
		r.changed(cluster)
	}
	return len(concerned) > 0
}

// List returns the active faults, oldest first.
func (r *Registry) List() []Active {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Active, 0, len(r.active))
	for _, a := range r.active {
		list = append(list, *a)
	}
	return list
}

// Fire asks whether the fault happens now, and counts it. A fault that has fired its number of times is over.
func (r *Registry) Fire(name string, at Site) (Fault, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fire(r.find(name, at))
}

func (r *Registry) fire(i int) (Fault, bool) {
	if i < 0 {
		return Fault{}, false
	}
	a := r.active[i]
	a.Fired++
	if a.Times > 0 && a.Fired >= a.Times {
		r.active = slices.Delete(r.active, i, i+1)
	}
	return a.Fault, true
}

// Standing asks for all standing faults of that name at the site, without counting them.
func (r *Registry) Standing(name string, at Site) []Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []Fault
	for _, a := range r.active {
		if a.Name == name && a.concerns(at) {
			found = append(found, a.Fault)
		}
	}
	return found
}

// WaitGone waits until no standing fault of that name is in force at the site.
func (r *Registry) WaitGone(ctx context.Context, name string, at Site) error {
	for {
		r.mu.Lock()
		there, wake := r.find(name, at) >= 0, r.waker()
		r.mu.Unlock()
		if !there {
			return nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// waker returns the channel that the next change closes; the caller holds the lock.
func (r *Registry) waker() chan struct{} {
	if r.wake == nil {
		r.wake = make(chan struct{})
	}
	return r.wake
}

// Stands asks for the first standing fault of that name at the site, for places that need but one.
func (r *Registry) Stands(name string, at Site) (Fault, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.find(name, at)
	if i < 0 {
		return Fault{}, false
	}
	return r.active[i].Fault, true
}

// FireIf is Fire for the first fault at the site that concerns what is about to happen.
func (r *Registry) FireIf(name string, at Site, concerns func(Fault) bool) (Fault, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fire(slices.IndexFunc(r.active, func(a *Active) bool { return a.Name == name && a.concerns(at) && concerns(a.Fault) }))
}

// OnChange registers a function that runs after every Add and Clear, for what standing faults change at once. It is told the cluster
// that the fault is limited to.
func (r *Registry) OnChange(fn func(cluster string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers = append(r.watchers, fn)
}

func (r *Registry) changed(cluster string) {
	r.mu.Lock()
	watchers := slices.Clone(r.watchers)
	close(r.waker())
	r.wake = nil
	r.mu.Unlock()
	for _, fn := range watchers {
		fn(cluster)
	}
}

func (r *Registry) find(name string, at Site) int {
	return slices.IndexFunc(r.active, func(a *Active) bool { return a.Name == name && a.concerns(at) })
}

func (f Fault) concerns(at Site) bool {
	return (f.Cluster == "" || f.Cluster == at.Cluster) && (f.Node == "" || f.Node == at.Node)
}

// Matches says whether a text is what a pattern says, in which * stands for anything.
func Matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return true
}
