// SPDX-License-Identifier: Apache-2.0

package table

import (
	"context"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Rows are all requests of the table.
func Rows() []Row {
	return slices.Concat(
		orders(), keyOrders(), plans(), configs(), creates(), keys(), rights(), nodes(), idle(), bounds(), steers(), confirms(), machines(), imports(), forgets(),
		kubernetes(), rotations(), lists(), gets(), watches(), exports(),
	)
}

// ref names an object of the world.
func ref(name string) *pb.Reference { return &pb.Reference{Namespace: Namespace, Name: name} }

// upgrade orders Talos v1.14.1 for cluster c1.
func upgrade(change ...func(*pb.OperationOrder)) *pb.OperationOrder {
	order := &pb.OperationOrder{
		Cluster: ref(Cluster), Kind: pb.OperationKind_OPERATION_KIND_TALOS, Target: &pb.OperationTarget{TalosVersion: wanted},
	}
	for _, c := range change {
		c(order)
	}
	return order
}

// reboot orders the reboot of a machine of cluster c1.
func reboot(machine string, change ...func(*pb.OperationOrder)) *pb.OperationOrder {
	order := &pb.OperationOrder{
		Cluster: ref(Cluster), Kind: pb.OperationKind_OPERATION_KIND_NODE,
		Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_Node{Node: &pb.NodeParameters{Machine: machine, Action: "Reboot"}}},
	}
	for _, c := range change {
		c(order)
	}
	return order
}

func to(version string) func(*pb.OperationOrder) {
	return func(o *pb.OperationOrder) { o.Target = &pb.OperationTarget{TalosVersion: version} }
}

func override(gate, reason string) func(*pb.OperationOrder) {
	return func(o *pb.OperationOrder) {
		o.Overrides = append(o.Overrides, &pb.GateOverride{Gate: gate, Reason: reason})
	}
}

func plan(order *pb.OperationOrder) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Operations.PlanOperation(ctx, connect.NewRequest(&pb.PlanOperationRequest{Order: order})))
	}
}

// create starts an order, under a key so that its name is known.
func create(order *pb.OperationOrder, change ...func(*pb.CreateOperationRequest)) func(context.Context, Clients) (proto.Message, error) {
	request := &pb.CreateOperationRequest{Order: order, IdempotencyKey: "key-1"}
	for _, c := range change {
		c(request)
	}
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Operations.CreateOperation(ctx, connect.NewRequest(request)))
	}
}

// given is a world with objects in place of others of the same name.
func given(objects ...client.Object) func() *World {
	return func() *World { return NewWorld(objects...) }
}

// with changes a world after it is made.
func with(change func(*World), objects ...client.Object) func() *World {
	return func() *World {
		world := NewWorld(objects...)
		change(world)
		return world
	}
}

// denied is a user who lacks a verb.
func denied(verb, subresource string) func(*World) {
	return func(w *World) {
		w.Denied = func(what authorizationv1.ResourceAttributes) bool {
			return what.Verb == verb && what.Subresource == subresource
		}
	}
}

func machine(name string, change func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	m := Machine(name, v1alpha1.WorkerRole)
	if name[:4] == "c1-c" {
		m.Spec.Role = v1alpha1.ControlPlaneRole
	}
	change(m)
	return m
}

func runs(version string) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion = version }
}

// everywhere are all machines of c1, changed.
func everywhere(change func(*v1alpha1.TalosMachine)) []client.Object {
	var objects []client.Object
	for _, name := range []string{"c1-cp-1", "c1-cp-2", "c1-cp-3", "c1-w-1", "c1-w-2"} {
		objects = append(objects, machine(name, change))
	}
	return objects
}

// invalid is a row of a request that nobody can mean.
func invalid(name, message string, call func(context.Context, Clients) (proto.Message, error)) Row {
	return Row{Name: name, Call: call, Code: connect.CodeInvalidArgument, Message: message}
}
