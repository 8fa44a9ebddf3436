// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/hub/fleet/render"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// target are the objects about a cluster, and what was made of them.
type target struct {
	key     types.NamespacedName
	cluster *v1alpha1.TalosCluster
	capi    *clusterv1.Cluster
	lease   *coordinationv1.Lease

	machines map[string]*v1alpha1.TalosMachine

	// operations are those that are not over.
	operations map[string]*v1alpha1.TalosOperation

	// works is what the operations do to the machines.
	works map[string]render.Work
}

// Apply takes objects as they are now. They must not change afterwards.
func (f *Fleet) Apply(objects ...client.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, object := range objects {
		key := client.ObjectKeyFromObject(object)
		switch o := object.(type) {
		case *v1alpha1.TalosCluster:
			f.change(key, func(t *target) { t.cluster = o })
		case *clusterv1.Cluster:
			f.change(key, func(t *target) { t.capi = o })
		case *coordinationv1.Lease:
			if cluster, ok := locked(o); ok {
				f.change(cluster, func(t *target) { t.lease = o })
			}
		case *v1alpha1.TalosMachine:
			f.putMachine(key, o)
		case *v1alpha1.TalosOperation:
			f.putOperation(key, o)
		}
	}
	f.history.tell()
}

// Delete takes note that an object is gone.
func (f *Fleet) Delete(object client.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := client.ObjectKeyFromObject(object)
	switch o := object.(type) {
	case *v1alpha1.TalosCluster:
		f.change(key, func(t *target) { t.cluster = nil })
	case *clusterv1.Cluster:
		f.change(key, func(t *target) { t.capi = nil })
	case *coordinationv1.Lease:
		if cluster, ok := locked(o); ok {
			f.change(cluster, func(t *target) { t.lease = nil })
		}
	case *v1alpha1.TalosMachine:
		f.dropMachine(key)
	case *v1alpha1.TalosOperation:
		f.dropOperation(key)
	}
	f.history.tell()
}

// locked is the cluster whose lock a Lease is; ok is false if it is something else.
func locked(lease *coordinationv1.Lease) (cluster types.NamespacedName, ok bool) {
	name := lease.Labels[clusterv1.ClusterNameLabel]
	return types.NamespacedName{Namespace: lease.Namespace, Name: name}, name != "" && lease.Name == lock.LeaseName(name)
}

// change changes what is known of a cluster itself.
func (f *Fleet) change(key types.NamespacedName, change func(*target)) {
	t := f.target(key)
	change(t)
	f.renderCluster(t)
	f.forget(t)
}

func (f *Fleet) target(key types.NamespacedName) *target {
	t := f.targets[key]
	if t == nil {
		t = &target{key: key, machines: map[string]*v1alpha1.TalosMachine{}, operations: map[string]*v1alpha1.TalosOperation{}}
		f.targets[key] = t
	}
	return t
}

// forget drops a cluster of which nothing is left.
func (f *Fleet) forget(t *target) {
	if t.cluster == nil && t.capi == nil && t.lease == nil && len(t.machines) == 0 && len(t.operations) == 0 {
		delete(f.targets, t.key)
	}
}

func (f *Fleet) putMachine(key types.NamespacedName, machine *v1alpha1.TalosMachine) {
	home := types.NamespacedName{Namespace: key.Namespace, Name: machine.Spec.ClusterName}
	if old, ok := f.machineHomes[key]; ok && old != home {
		f.dropMachine(key) // It was deleted and made anew for another cluster, and nobody saw it in between.
	}
	f.machineHomes[key] = home
	t := f.target(home)
	before := t.machines[key.Name]
	t.machines[key.Name] = machine
	if before == nil || taken(before) != taken(machine) {
		f.renderOperations(t)
	}
	f.renderCluster(t)
	f.renderMachine(t, key.Name)
}

// taken says whether operations take a machine: only that changes what they say of how many they take.
func taken(machine *v1alpha1.TalosMachine) bool {
	return machine.Works() && !machine.Held()
}

func (f *Fleet) dropMachine(key types.NamespacedName) {
	home, ok := f.machineHomes[key]
	if !ok {
		return
	}
	delete(f.machineHomes, key)
	t := f.target(home)
	delete(t.machines, key.Name)
	f.renderOperations(t)
	f.renderCluster(t)
	f.renderMachine(t, key.Name)
	f.forget(t)
}

func (f *Fleet) putOperation(key types.NamespacedName, op *v1alpha1.TalosOperation) {
	home := types.NamespacedName{Namespace: key.Namespace, Name: op.Spec.ClusterName}
	if old, ok := f.operationHomes[key]; ok && old != home {
		f.dropOperation(key)
	}
	f.operationHomes[key] = home
	t := f.target(home)
	if op.Completed() {
		delete(t.operations, key.Name)
	} else {
		t.operations[key.Name] = op
	}
	f.renderOperation(t, op)
	f.renderWorks(t)
	f.forget(t)
}

func (f *Fleet) dropOperation(key types.NamespacedName) {
	home, ok := f.operationHomes[key]
	if !ok {
		return
	}
	delete(f.operationHomes, key)
	t := f.target(home)
	delete(t.operations, key.Name)
	put(f, f.operations, key, nil, func(before *pb.Operation) Change { return Change{Key: key, OperationBefore: before} })
	f.renderWorks(t)
	f.forget(t)
}

// renderOperations renders the operations that are not over: how many machines they will take has changed.
func (f *Fleet) renderOperations(t *target) {
	if !f.complete {
		return
	}
	for _, op := range t.operations {
		f.renderOperation(t, op)
	}
}

func (f *Fleet) renderOperation(t *target, op *v1alpha1.TalosOperation) {
	key, after := client.ObjectKeyFromObject(op), render.Operation(op, slices.Collect(maps.Values(t.machines))...)
	put(f, f.operations, key, after, func(before *pb.Operation) Change { return Change{Key: key, OperationBefore: before, Operation: after} })
}

// renderWorks renders a cluster, and those of its machines to which operations do something else than before.
func (f *Fleet) renderWorks(t *target) {
	if !f.complete {
		return
	}
	before := t.works
	t.works = render.Works(f.unfinished(t))
	f.renderCluster(t)
	for name := range t.machines {
		if !before[name].Same(t.works[name]) {
			f.renderMachine(t, name)
		}
	}
}

// unfinished are the operations of a cluster that are not over, the oldest first.
func (f *Fleet) unfinished(t *target) []*pb.Operation {
	operations := make([]*pb.Operation, 0, len(t.operations))
	for name := range t.operations {
		operations = append(operations, f.operations[types.NamespacedName{Namespace: t.key.Namespace, Name: name}])
	}
	slices.SortFunc(operations, func(a, b *pb.Operation) int {
		return cmp.Or(a.GetCreateTime().AsTime().Compare(b.GetCreateTime().AsTime()), strings.Compare(a.GetRef().GetName(), b.GetRef().GetName()))
	})
	return operations
}

func (f *Fleet) renderCluster(t *target) {
	if !f.complete {
		return
	}
	var after *pb.Cluster
	if t.cluster != nil {
		after = render.Cluster(render.Facts{
			Cluster: t.cluster, CAPICluster: t.capi, Lease: t.lease,
			Machines: slices.Collect(maps.Values(t.machines)), Operations: f.unfinished(t),
		})
	}
	put(f, f.clusters, t.key, after, func(before *pb.Cluster) Change { return Change{Key: t.key, ClusterBefore: before, Cluster: after} })
}

func (f *Fleet) renderMachine(t *target, name string) {
	if !f.complete {
		return
	}
	key := types.NamespacedName{Namespace: t.key.Namespace, Name: name}
	var after *pb.Machine
	if machine := t.machines[name]; machine != nil {
		after = render.Machine(machine, t.works[name])
	}
	put(f, f.machines, key, after, func(before *pb.Machine) Change {
		return Change{Key: key, MachineBefore: before, Machine: after, Of: f.clusters[t.key]}
	})
}
