// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/types"

	"ichor.maesh.dev/hub/hub/fleet"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// WatchOperations sends the operations that there are, then every change.
func (s *Server) WatchOperations(ctx context.Context, request *connect.Request[pb.WatchOperationsRequest], stream *connect.ServerStream[pb.WatchOperationsResponse]) error {
	return s.watchOperations(ctx, request.Msg, stream.Send)
}

func (s *Server) watchOperations(ctx context.Context, request *pb.WatchOperationsRequest, send func(*pb.WatchOperationsResponse) error) error {
	selected, r, err := s.filterOperations(ctx, request.GetFilter(), s.readLive)
	if err != nil {
		return err
	}
	if names := request.GetFilter().GetNames(); request.GetResumeToken() == "" {
		r.await(ctx, func() bool {
			return !slices.ContainsFunc(names, func(ref *pb.Reference) bool {
				return ref.GetName() != "" && r.fleet.Operation(keyOfReference(ref)) == nil
			})
		})
	}
	return s.watch(ctx, r, request.GetResumeToken(), &operationSink{selected: selected, send: send}, operationsResource)
}

func keyOfReference(ref *pb.Reference) types.NamespacedName {
	return types.NamespacedName{Namespace: ref.GetNamespace(), Name: ref.GetName()}
}

// operationSink sends what happens to operations.
type operationSink struct {
	selected selection[*pb.Operation]
	send     func(*pb.WatchOperationsResponse) error
}

func (s *operationSink) all(w *watch, in func(string) bool, token string) (uint64, error) {
	all, revision := w.fleet.Operations()
	for _, op := range inOrder(all) {
		if !in(op.GetRef().GetNamespace()) || !w.views.sees(op.GetRef().GetNamespace(), 0) || !s.selected.selects(op) {
			continue
		}
		if err := s.changed(w, op, token); err != nil {
			return 0, err
		}
	}
	return revision, nil
}

func (s *operationSink) change(w *watch, change *fleet.Change, _, after string) error {
	switch {
	case change.Operation != nil && s.selected.selects(change.Operation):
		return s.changed(w, change.Operation, after)
	case change.OperationBefore != nil && s.selected.selects(change.OperationBefore):
		return s.removed(w, change.OperationBefore.GetRef(), after)
	}
	return nil
}

func (s *operationSink) changed(w *watch, op *pb.Operation, token string) error {
	return s.say(w, &pb.WatchOperationsResponse{Event: &pb.WatchOperationsResponse_Changed{Changed: op}, ResumeToken: token})
}

func (s *operationSink) removed(w *watch, ref *pb.Reference, token string) error {
	return s.say(w, &pb.WatchOperationsResponse{Event: &pb.WatchOperationsResponse_Removed{Removed: ref}, ResumeToken: token})
}

func (s *operationSink) synced(w *watch, token string) error {
	return s.say(w, &pb.WatchOperationsResponse{Event: &pb.WatchOperationsResponse_Synced{Synced: &pb.Synced{}}, ResumeToken: token})
}

func (s *operationSink) reset(w *watch) error {
	return s.say(w, &pb.WatchOperationsResponse{Event: &pb.WatchOperationsResponse_Reset_{Reset_: &pb.Reset{}}})
}

func (s *operationSink) heartbeat(w *watch, token string) error {
	beat := &pb.Heartbeat{ServerTime: timestamppb.New(w.now())}
	return s.say(w, &pb.WatchOperationsResponse{Event: &pb.WatchOperationsResponse_Heartbeat{Heartbeat: beat}, ResumeToken: token})
}

func (s *operationSink) say(w *watch, response *pb.WatchOperationsResponse) error {
	w.sent()
	return s.send(response)
}

// inOrder sorts messages by namespace and name.
func inOrder[M referred](messages []M) []M {
	slices.SortFunc(messages, func(a, b M) int {
		return cmp.Or(strings.Compare(a.GetRef().GetNamespace(), b.GetRef().GetNamespace()), strings.Compare(a.GetRef().GetName(), b.GetRef().GetName()))
	})
	return messages
}

// WatchClusters sends the clusters that there are, then every change.
func (s *Server) WatchClusters(ctx context.Context, request *connect.Request[pb.WatchClustersRequest], stream *connect.ServerStream[pb.WatchClustersResponse]) error {
	return s.watchClusters(ctx, request.Msg, stream.Send)
}

func (s *Server) watchClusters(ctx context.Context, request *pb.WatchClustersRequest, send func(*pb.WatchClustersResponse) error) error {
	selected, r, err := s.filterClusters(ctx, request.GetFilter(), s.readLive)
	if err != nil {
		return err
	}
	audience := []string{clustersResource, operationsResource}
	if request.GetMachines() {
		r.query += "-machines"
		audience = append(audience, machinesResource)
	}
	return s.watch(ctx, r, request.GetResumeToken(), &clusterSink{selected: selected, machines: request.GetMachines(), send: send}, audience...)
}

// clusterSink sends what happens to clusters, and to their machines where somebody asked for those, too.
type clusterSink struct {
	selected selection[*pb.Cluster]
	machines bool
	send     func(*pb.WatchClustersResponse) error
}

func (s *clusterSink) all(w *watch, in func(string) bool, token string) (uint64, error) {
	all, revision := w.fleet.Clusters()
	for _, cluster := range inOrder(all) {
		cluster = w.views.cluster(cluster)
		if !in(cluster.GetRef().GetNamespace()) || !w.views.sees(cluster.GetRef().GetNamespace(), 0) || !s.selected.selects(cluster) {
			continue
		}
		if err := s.entered(w, cluster, token, token); err != nil {
			return 0, err
		}
	}
	return revision, nil
}

// entered sends a cluster that is new to the watch, and then its machines as they are now. Those that changed meanwhile are sent again.
func (s *clusterSink) entered(w *watch, cluster *pb.Cluster, before, after string) error {
	responses := []*pb.WatchClustersResponse{{Event: &pb.WatchClustersResponse_Changed{Changed: cluster}}}
	if s.sendsMachines(w, cluster.GetRef().GetNamespace()) {
		for _, machine := range w.fleet.MachinesOf(keyOfReference(cluster.GetRef())) {
			responses = append(responses, &pb.WatchClustersResponse{Event: &pb.WatchClustersResponse_MachineChanged{MachineChanged: w.views.machine(machine)}})
		}
	}
	for i, response := range responses {
		response.ResumeToken = before
		if i == len(responses)-1 {
			response.ResumeToken = after
		}
		if err := s.say(w, response); err != nil {
			return err
		}
	}
	return nil
}

func (s *clusterSink) sendsMachines(w *watch, namespace string) bool {
	return s.machines && w.views.sees(namespace, 2)
}

func (s *clusterSink) change(w *watch, change *fleet.Change, before, after string) error {
	clusterBefore, cluster, of := w.views.cluster(change.ClusterBefore), w.views.cluster(change.Cluster), w.views.cluster(change.Of)
	was := clusterBefore != nil && s.selected.selects(clusterBefore)
	is := cluster != nil && s.selected.selects(cluster)
	switch {
	case is && was:
		return s.say(w, &pb.WatchClustersResponse{Event: &pb.WatchClustersResponse_Changed{Changed: cluster}, ResumeToken: after})
	case is:
		return s.entered(w, cluster, before, after)
	case was:
		return s.removed(w, change.ClusterBefore.GetRef(), after)
	case of == nil, !s.sendsMachines(w, change.Key.Namespace), !s.selected.selects(of):
		return nil
	case change.Machine != nil:
		return s.say(w, &pb.WatchClustersResponse{Event: &pb.WatchClustersResponse_MachineChanged{MachineChanged: w.views.machine(change.Machine)}, ResumeToken: after})
	}
	return s.say(w, &pb.WatchClustersResponse{Event: &pb.WatchClustersResponse_MachineRemoved{MachineRemoved: change.MachineBefore.GetRef()}, ResumeToken: after})
}

func (s *clusterSink) removed(w *watch, ref *pb.Reference, token string) error {
	return s.say(w, &pb.WatchClustersResponse{Event: &pb.WatchClustersResponse_Removed{Removed: ref}, ResumeToken: token})
}

func (s *clusterSink) synced(w *watch, token string) error {
	return s.say(w, &pb.WatchClustersResponse{Event: &pb.WatchClustersResponse_Synced{Synced: &pb.Synced{}}, ResumeToken: token})
}

func (s *clusterSink) reset(w *watch) error {
	return s.say(w, &pb.WatchClustersResponse{Event: &pb.WatchClustersResponse_Reset_{Reset_: &pb.Reset{}}})
}

func (s *clusterSink) heartbeat(w *watch, token string) error {
	beat := &pb.Heartbeat{ServerTime: timestamppb.New(w.now())}
	return s.say(w, &pb.WatchClustersResponse{Event: &pb.WatchClustersResponse_Heartbeat{Heartbeat: beat}, ResumeToken: token})
}

func (s *clusterSink) say(w *watch, response *pb.WatchClustersResponse) error {
	w.sent()
	return s.send(response)
}
