// SPDX-License-Identifier: Apache-2.0

// Package fleet is what a hub knows of its clusters, machines and operations, rendered as messages.
//
// A message is rendered once for every change of an object, and shared by all who read it: nobody may change one. Every change of a message
// is kept for a while, in order, so that those who watch go on where they left off. They read at their own pace, and nothing waits for them.
package fleet

import (
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Fleet holds messages of clusters, machines and operations, and the order in which they changed.
type Fleet struct {
	// epoch tells this fleet from that of another process; empty if it does not change, and no place in it is worth remembering.
	epoch string

	mu      sync.RWMutex
	targets map[types.NamespacedName]*target
	// homes are the clusters that machines and operations belong to.
	machineHomes, operationHomes map[types.NamespacedName]types.NamespacedName

	clusters   map[types.NamespacedName]*pb.Cluster
	machines   map[types.NamespacedName]*pb.Machine
	operations map[types.NamespacedName]*pb.Operation
	// counts are how many messages there are of each namespace, and namespaces are their names, made anew when one comes or goes.
	counts     map[string]int
	namespaces []string
	history    history

	// complete says that everything that there was has been read.
	complete bool

	synced, closed chan struct{}
	sync, close    sync.Once
	cause          error
}

// New returns an empty fleet.
func New() *Fleet {
	return &Fleet{
		epoch:          uuid.NewString()[:8],
		targets:        map[types.NamespacedName]*target{},
		machineHomes:   map[types.NamespacedName]types.NamespacedName{},
		operationHomes: map[types.NamespacedName]types.NamespacedName{},
		clusters:       map[types.NamespacedName]*pb.Cluster{},
		machines:       map[types.NamespacedName]*pb.Machine{},
		operations:     map[types.NamespacedName]*pb.Operation{},
		counts:         map[string]int{},
		history:        newHistory(),
		synced:         make(chan struct{}),
		closed:         make(chan struct{}),
	}
}

// Synced says whether everything that there was has been read.
func (f *Fleet) Synced() bool {
	select {
	case <-f.synced:
		return true
	default:
		return false
	}
}

// MarkSynced says that everything that there was has been read. Clusters and machines are rendered from then on: before, each object that is
// read would change them.
func (f *Fleet) MarkSynced() {
	f.sync.Do(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.complete = true
		for _, t := range f.targets {
			f.renderOperations(t)
			f.renderWorks(t)
			for name := range t.machines {
				f.renderMachine(t, name)
			}
		}
		f.history.tell()
		close(f.synced)
	})
}

// Close ends every watch. The cause is what they end with.
func (f *Fleet) Close(cause error) {
	f.close.Do(func() {
		f.cause = cause
		close(f.closed)
	})
}

// Closed is closed once nothing changes any more. Cause says why then.
func (f *Fleet) Closed() <-chan struct{} { return f.closed }

// Cause is why the fleet was closed.
func (f *Fleet) Cause() error { return f.cause }

// Cluster is a cluster, nil if there is none.
func (f *Fleet) Cluster(key types.NamespacedName) *pb.Cluster {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.clusters[key]
}

// Machine is a machine, nil if there is none.
func (f *Fleet) Machine(key types.NamespacedName) *pb.Machine {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.machines[key]
}

// Operation is an operation, nil if there is none.
func (f *Fleet) Operation(key types.NamespacedName) *pb.Operation {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.operations[key]
}

// Clusters are all clusters in no order, as they are at a revision.
func (f *Fleet) Clusters() (clusters []*pb.Cluster, revision uint64) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return values(f.clusters), f.history.last
}

// Machines are all machines in no order, as they are at a revision.
func (f *Fleet) Machines() (machines []*pb.Machine, revision uint64) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return values(f.machines), f.history.last
}

// Operations are all operations in no order, as they are at a revision.
func (f *Fleet) Operations() (operations []*pb.Operation, revision uint64) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return values(f.operations), f.history.last
}

// MachinesOf are the machines of a cluster, by name.
func (f *Fleet) MachinesOf(cluster types.NamespacedName) []*pb.Machine {
	f.mu.RLock()
	defer f.mu.RUnlock()
	t := f.targets[cluster]
	if t == nil {
		return nil
	}
	machines := make([]*pb.Machine, 0, len(t.machines))
	for _, name := range slices.Sorted(maps.Keys(t.machines)) {
		machines = append(machines, f.machines[types.NamespacedName{Namespace: cluster.Namespace, Name: name}])
	}
	return machines
}

// Namespaces are the namespaces that anything is in, sorted.
func (f *Fleet) Namespaces() []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.namespaces
}

func values[M any](of map[types.NamespacedName]M) []M {
	list := make([]M, 0, len(of))
	for _, value := range of {
		list = append(list, value)
	}
	return list
}

// message is what a fleet holds.
type message interface {
	proto.Message
	comparable
}

// put takes a new state of a message, nil if it is gone, and notes the change, if it is one.
func put[M message](f *Fleet, in map[types.NamespacedName]M, key types.NamespacedName, after M, change func(before M) Change) {
	var none M
	before := in[key]
	switch {
	case before == after, before != none && after != none && proto.Equal(before, after):
		return
	case after == none:
		delete(in, key)
		f.countNamespace(key.Namespace, -1)
	case before == none:
		f.countNamespace(key.Namespace, 1)
		fallthrough
	default:
		in[key] = after
	}
	f.history.append(change(before))
}

func (f *Fleet) countNamespace(namespace string, by int) {
	f.counts[namespace] += by
	switch f.counts[namespace] {
	case 0:
		delete(f.counts, namespace)
	case by: // The first one.
	default:
		return
	}
	f.namespaces = slices.Sorted(maps.Keys(f.counts))
}
