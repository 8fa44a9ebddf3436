// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// ListClusters lists clusters.
func (s *Server) ListClusters(ctx context.Context, request *connect.Request[pb.ListClustersRequest]) (*connect.Response[pb.ListClustersResponse], error) {
	message := request.Msg
	by, err := orderOf(message.GetOrderBy(), "name", clusterFields)
	if err != nil {
		return nil, err
	}
	page, err := pagingOf(message.GetPage(), message.GetFilter(), wrapperspb.String(message.GetOrderBy()))
	if err != nil {
		return nil, err
	}
	selected, r, err := s.filterClusters(ctx, message.GetFilter(), s.read)
	if err != nil {
		return nil, err
	}
	seen, err := r.look(ctx, clustersResource, operationsResource)
	if err != nil {
		return nil, err
	}
	all, revision := r.fleet.Clusters()
	for i := range all {
		all[i] = seen.cluster(all[i])
	}
	all = those(all, seen, selected)
	part, next := cut(all, by, page)
	return connect.NewResponse(&pb.ListClustersResponse{
		Clusters: part, NextPageToken: next, TotalSize: size(all), Failures: r.failures, ResumeToken: r.token(revision),
	}), nil
}

// filterClusters reads a filter, and begins a call in the namespaces that it names.
func (s *Server) filterClusters(ctx context.Context, filter *pb.ClusterFilter, begin func(context.Context, []string) (*reading, error)) (selection[*pb.Cluster], *reading, error) {
	selected, err := selectClusters(filter)
	if err != nil {
		return nil, nil, err
	}
	named, err := s.named("filter.namespaces", filter.GetNamespaces(), map[string][]*pb.Reference{"filter.names": filter.GetNames()})
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

// GetCluster reads one cluster, and its machines where the caller may read them.
func (s *Server) GetCluster(ctx context.Context, request *connect.Request[pb.GetClusterRequest]) (*connect.Response[pb.GetClusterResponse], error) {
	key, err := s.key("ref", request.Msg.GetRef())
	if err != nil {
		return nil, err
	}
	r, err := s.read(ctx, []string{key.Namespace})
	if err != nil {
		return nil, err
	}
	if err := r.mayGet(ctx, clustersResource, key); err != nil {
		return nil, problem(err)
	}
	r.await(ctx, func() bool { return r.fleet.Cluster(key) != nil })
	cluster := r.fleet.Cluster(key)
	if cluster == nil {
		return nil, r.missing("cluster", key, "ichor cluster list")
	}
	response := &pb.GetClusterResponse{Cluster: cluster}
	operations, _ := r.readable(ctx, operationsResource, false)
	if !operations[key.Namespace] {
		response.Cluster = withoutOperations(cluster)
	}
	if readable, _ := r.readable(ctx, machinesResource, false); readable[key.Namespace] {
		response.Machines = r.fleet.MachinesOf(key)
	}
	for i := 0; i < len(response.Machines) && !operations[key.Namespace]; i++ {
		response.Machines[i] = withoutWork(response.Machines[i])
	}
	return connect.NewResponse(response), nil
}

// cluster is a cluster as a caller sees it whose second resource are the operations.
func (v views) cluster(cluster *pb.Cluster) *pb.Cluster {
	if cluster == nil || v.sees(cluster.GetRef().GetNamespace(), 1) {
		return cluster
	}
	return withoutOperations(cluster)
}

// withoutOperations is a cluster for somebody who may not read operations. Who holds its lock is in the status of the cluster itself.
func withoutOperations(cluster *pb.Cluster) *pb.Cluster {
	if len(cluster.GetOperations()) == 0 {
		return cluster
	}
	rest := proto.CloneOf(cluster)
	rest.Operations = nil
	if slices.ContainsFunc(cluster.GetOperations(), func(op *pb.OperationSummary) bool { return op.GetAttention() == cluster.GetAttention() }) {
		rest.Attention, rest.AttentionReason = pb.Attention_ATTENTION_UNSPECIFIED, "" // It may be an operation's.
	}
	return rest
}

// machine is a machine as a caller sees it who asked for clusters or machines, and operations second.
func (v views) machine(machine *pb.Machine) *pb.Machine {
	if machine == nil || v.sees(machine.GetRef().GetNamespace(), 1) {
		return machine
	}
	return withoutWork(machine)
}

// withoutWork is a machine for somebody who may not read operations.
func withoutWork(machine *pb.Machine) *pb.Machine {
	if machine.GetOperation() == nil {
		return machine
	}
	rest := proto.CloneOf(machine)
	rest.Operation, rest.Step, rest.Attention = nil, "", pb.Attention_ATTENTION_UNSPECIFIED
	return rest
}

// ListMachines lists machines of every cluster, or of some.
func (s *Server) ListMachines(ctx context.Context, request *connect.Request[pb.ListMachinesRequest]) (*connect.Response[pb.ListMachinesResponse], error) {
	message := request.Msg
	by, err := orderOf(message.GetOrderBy(), "name", machineFields)
	if err != nil {
		return nil, err
	}
	page, err := pagingOf(message.GetPage(), &pb.ListMachinesRequest{
		Clusters: message.GetClusters(), Namespaces: message.GetNamespaces(), LabelSelector: message.GetLabelSelector(), Text: message.GetText(), OrderBy: message.GetOrderBy(),
	})
	if err != nil {
		return nil, err
	}
	selected, err := selectMachines(message)
	if err != nil {
		return nil, err
	}
	named, err := s.named("namespaces", message.GetNamespaces(), map[string][]*pb.Reference{"clusters": message.GetClusters()})
	if err != nil {
		return nil, err
	}
	r, err := s.read(ctx, named)
	if err != nil {
		return nil, err
	}
	seen, err := r.look(ctx, machinesResource, operationsResource)
	if err != nil {
		return nil, err
	}
	all, _ := r.fleet.Machines()
	for i, machine := range all {
		all[i] = seen.machine(machine)
	}
	all = those(all, seen, selected)
	part, next := cut(all, by, page)
	return connect.NewResponse(&pb.ListMachinesResponse{Machines: part, NextPageToken: next, TotalSize: size(all), Failures: r.failures}), nil
}
