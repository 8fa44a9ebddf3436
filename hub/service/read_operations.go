// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/hub/fleet/render"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// ListOperations lists operations of every cluster, or of some.
func (s *Server) ListOperations(ctx context.Context, request *connect.Request[pb.ListOperationsRequest]) (*connect.Response[pb.ListOperationsResponse], error) {
	message := request.Msg
	by, err := orderOf(message.GetOrderBy(), "create_time desc", operationFields)
	if err != nil {
		return nil, err
	}
	page, err := pagingOf(message.GetPage(), message.GetFilter(), wrapperspb.String(message.GetOrderBy()))
	if err != nil {
		return nil, err
	}
	selected, r, err := s.filterOperations(ctx, message.GetFilter(), s.read)
	if err != nil {
		return nil, err
	}
	seen, err := r.look(ctx, operationsResource)
	if err != nil {
		return nil, err
	}
	all, revision := r.fleet.Operations()
	all = those(all, seen, selected)
	part, next := cut(all, by, page)
	return connect.NewResponse(&pb.ListOperationsResponse{
		Operations: part, NextPageToken: next, TotalSize: size(all), Failures: r.failures, ResumeToken: r.token(revision),
	}), nil
}

// size is how many there are, as messages count.
func size[M any](of []M) int32 { return int32(min(len(of), 1<<31-1)) }

// filterOperations reads a filter, and begins a call in the namespaces that it names.
func (s *Server) filterOperations(ctx context.Context, filter *pb.OperationFilter, begin func(context.Context, []string) (*reading, error)) (selection[*pb.Operation], *reading, error) {
	selected, err := selectOperations(filter)
	if err != nil {
		return nil, nil, err
	}
	named, err := s.named("filter.namespaces", filter.GetNamespaces(), map[string][]*pb.Reference{"filter.clusters": filter.GetClusters(), "filter.names": filter.GetNames()})
	if err != nil {
		return nil, nil, err
	}
	r, err := begin(ctx, named)
	if err != nil {
		return nil, nil, err
	}
	r.query = fingerprint([]proto.Message{filter})
	return selected, r, nil
}

// GetOperation reads one operation, and what was recorded about it.
func (s *Server) GetOperation(ctx context.Context, request *connect.Request[pb.GetOperationRequest]) (*connect.Response[pb.GetOperationResponse], error) {
	key, err := s.key("ref", request.Msg.GetRef())
	if err != nil {
		return nil, err
	}
	r, err := s.read(ctx, []string{key.Namespace})
	if err != nil {
		return nil, err
	}
	if err := r.mayGet(ctx, operationsResource, key); err != nil {
		return nil, problem(err)
	}
	op := r.operation(ctx, key)
	if op == nil {
		return nil, r.missing("operation", key, "ichor operation list")
	}
	return connect.NewResponse(&pb.GetOperationResponse{Operation: op, Events: r.events(ctx, op)}), nil
}

// operation is an operation, nil if there is none.
func (r *reading) operation(ctx context.Context, key types.NamespacedName) *pb.Operation {
	r.await(ctx, func() bool { return r.fleet.Operation(key) != nil })
	return r.fleet.Operation(key)
}

// events are what was recorded about an operation, read as the caller. They are a help: who may not read them does without.
func (r *reading) events(ctx context.Context, op *pb.Operation) []*pb.OperationEvent {
	found := &corev1.EventList{}
	err := r.Client.List(ctx, found, client.InNamespace(op.GetRef().GetNamespace()), client.MatchingFields{"involvedObject.uid": op.GetUid()})
	if err != nil {
		return nil
	}
	slices.SortStableFunc(found.Items, func(a, b corev1.Event) int {
		return cmp.Or(timeOf(&a).Compare(timeOf(&b).Time), strings.Compare(a.Name, b.Name))
	})
	events := make([]*pb.OperationEvent, 0, len(found.Items))
	for i := range found.Items {
		event := &found.Items[i]
		events = append(events, &pb.OperationEvent{
			Time: render.Time(timeOf(event)), Warning: event.Type == corev1.EventTypeWarning, Reason: event.Reason, Message: event.Message, Count: times(event),
		})
	}
	return events
}

// timeOf is when an event was last seen. Which of its times are set depends on who wrote it.
func timeOf(event *corev1.Event) metav1.Time {
	switch {
	case event.Series != nil && !event.Series.LastObservedTime.IsZero():
		return metav1.NewTime(event.Series.LastObservedTime.Time)
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp
	case !event.EventTime.IsZero():
		return metav1.NewTime(event.EventTime.Time)
	}
	return event.CreationTimestamp
}

// times is how often an event was seen.
func times(event *corev1.Event) int32 {
	if event.Series != nil {
		return event.Series.Count
	}
	return max(event.Count, 1)
}
