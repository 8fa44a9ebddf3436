// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"

	"connectrpc.com/connect"

	"ichor.maesh.dev/hub/hub/gitops"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// ExportCluster implements the ClusterService.
func (s *Server) ExportCluster(ctx context.Context, request *connect.Request[pb.ExportClusterRequest]) (*connect.Response[pb.ExportClusterResponse], error) {
	response, err := s.exportCluster(ctx, request.Msg)
	if err != nil {
		return nil, problem(err)
	}
	return connect.NewResponse(response), nil
}

// exportCluster reads past every cache: what somebody commits is what there is.
func (s *Server) exportCluster(ctx context.Context, request *pb.ExportClusterRequest) (*pb.ExportClusterResponse, error) {
	key, err := s.key("cluster", request.GetCluster())
	if err != nil {
		return nil, err
	}
	service, err := s.writer(ctx)
	if err != nil {
		return nil, err
	}
	facts, err := service.Facts(ctx, key)
	if err != nil {
		return nil, err
	}
	export, err := gitops.Of(facts)
	if err != nil {
		return nil, err
	}
	response := &pb.ExportClusterResponse{Remarks: export.Remarks}
	for _, file := range export.Files {
		response.Files = append(response.Files, &pb.ExportedFile{Path: file.Path, Content: string(file.Content)})
	}
	return response, nil
}
