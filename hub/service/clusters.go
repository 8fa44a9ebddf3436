// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"

	"connectrpc.com/connect"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/fleet/render"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// ImportCluster implements the ClusterService.
func (s *Server) ImportCluster(ctx context.Context, request *connect.Request[pb.ImportClusterRequest]) (*connect.Response[pb.ImportClusterResponse], error) {
	cluster, err := s.importCluster(ctx, request.Msg)
	if err != nil {
		return nil, problem(err)
	}
	return connect.NewResponse(&pb.ImportClusterResponse{Cluster: cluster}), nil
}

func (s *Server) importCluster(ctx context.Context, request *pb.ImportClusterRequest) (*pb.Cluster, error) {
	key, err := s.key("ref", request.GetRef())
	if err != nil {
		return nil, err
	}
	service, err := s.writer(ctx)
	if err != nil {
		return nil, err
	}
	in := Import{
		Name: key.Name, Namespace: key.Namespace, Kubeconfig: request.GetKubeconfig(), Talosconfig: request.GetTalosconfig(),
		KubeContext: request.GetKubeContext(), TalosContext: request.GetTalosContext(), AllowInsecure: request.GetAllowInsecure(),
		Offline: request.GetOffline(), TakeOver: request.GetTakeOver(), Labels: request.GetLabels(),
	}
	adopts := len(in.Kubeconfig) == 0 && len(in.Talosconfig) == 0
	if err := service.mayImport(ctx, in, !adopts); err != nil {
		return nil, err
	}
	if in, err = service.claim(ctx, in); err != nil {
		return nil, err
	}
	way := service.Import
	if adopts {
		way = service.Adopt
	}
	cluster, err := way(ctx, in)
	if err != nil {
		return nil, err
	}
	return service.render(ctx, cluster), nil
}

// render is a cluster as it is after a write. What could not be read is left out of it: the write is done.
func (s *Service) render(ctx context.Context, cluster *v1alpha1.TalosCluster) *pb.Cluster {
	facts := render.Facts{Cluster: cluster}
	if read, err := s.Facts(ctx, client.ObjectKeyFromObject(cluster)); err == nil {
		facts.CAPICluster = read.CAPICluster
		for i := range read.Machines {
			facts.Machines = append(facts.Machines, &read.Machines[i])
		}
	}
	facts.Operations = s.underWay(ctx, cluster.Namespace, cluster.Name)
	return render.Cluster(facts)
}

// underWay are the operations of a cluster that are not over; nothing if they cannot be read.
func (s *Service) underWay(ctx context.Context, namespace, cluster string) []*pb.Operation {
	list := &v1alpha1.TalosOperationList{}
	if err := s.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil
	}
	var operations []*pb.Operation
	for _, op := range unfinished(list.Items, cluster) {
		operations = append(operations, render.Operation(op))
	}
	return operations
}

// mayImport asks before the hub opens a connection to wherever the files that somebody brought say.
func (s *Service) mayImport(ctx context.Context, in Import, files bool) error {
	if s.Rights == nil {
		return nil
	}
	clusters := authorizationv1.ResourceAttributes{Verb: "create", Group: v1alpha1.GroupVersion.Group, Resource: "talosclusters"}
	needed := []authorizationv1.ResourceAttributes{clusters}
	if files {
		needed = append(needed, authorizationv1.ResourceAttributes{Verb: "create", Group: corev1.GroupName, Resource: "secrets"})
	}
	if in.TakeOver {
		clusters.Verb = overrideVerb
		needed = append(needed, clusters)
	}
	for _, what := range needed {
		what.Namespace = in.Namespace
		if err := s.Rights.May(ctx, what); err != nil {
			return err
		}
	}
	return nil
}

// ForgetCluster implements the ClusterService.
func (s *Server) ForgetCluster(ctx context.Context, request *connect.Request[pb.ForgetClusterRequest]) (*connect.Response[pb.ForgetClusterResponse], error) {
	gone, err := s.forgetCluster(ctx, request.Msg)
	if err != nil {
		return nil, problem(err)
	}
	return connect.NewResponse(&pb.ForgetClusterResponse{Gone: gone}), nil
}

func (s *Server) forgetCluster(ctx context.Context, request *pb.ForgetClusterRequest) (gone bool, err error) {
	key, err := s.key("ref", request.GetRef())
	if err != nil {
		return false, err
	}
	service, err := s.writer(ctx)
	if err != nil {
		return false, err
	}
	return service.Forget(ctx, key)
}
