// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// pageSize is how much is asked for at once.
const pageSize = 1000

func addAllNamespaces(cmd *cobra.Command, all *bool) {
	cmd.Flags().BoolVarP(all, "all-namespaces", "A", false, "list those of all namespaces")
}

// pages asks for one page after the other.
func pages[Res interface{ GetNextPageToken() string }](fetch func(*pb.Page) (Res, error), keep func(Res)) error {
	page := &pb.Page{Size: pageSize}
	for {
		response, err := fetch(page)
		if err != nil {
			return err
		}
		keep(response)
		if page.Token = response.GetNextPageToken(); page.Token == "" {
			return nil
		}
	}
}

// partial tells what is missing in a list, and that the exit code should not say that all is well.
func (a *app) partial(failures []*pb.Failure) error {
	for _, f := range failures {
		a.remark("Warning: %s is missing: %s", scopeName(f.GetScope()), f.GetMessage())
	}
	if len(failures) > 0 {
		return errors.New("the list is not complete")
	}
	return nil
}

func scopeName(scope *pb.Reference) string {
	switch {
	case scope.GetName() != "":
		return scope.GetNamespace() + "/" + scope.GetName()
	case scope.GetNamespace() != "":
		return "namespace " + scope.GetNamespace()
	}
	return "a part"
}

func (a *app) listClusters(ctx context.Context, request *pb.ListClustersRequest) (*pb.ListClustersResponse, error) {
	all := &pb.ListClustersResponse{}
	err := pages(func(page *pb.Page) (*pb.ListClustersResponse, error) {
		request.Page = page
		return call(ctx, a, a.connection.clusters.ListClusters, request)
	}, func(response *pb.ListClustersResponse) {
		all.Clusters = append(all.Clusters, response.GetClusters()...)
		all.TotalSize, all.Failures = response.GetTotalSize(), response.GetFailures()
	})
	return all, err
}

func (a *app) listMachines(ctx context.Context, request *pb.ListMachinesRequest) (*pb.ListMachinesResponse, error) {
	all := &pb.ListMachinesResponse{}
	err := pages(func(page *pb.Page) (*pb.ListMachinesResponse, error) {
		request.Page = page
		return call(ctx, a, a.connection.clusters.ListMachines, request)
	}, func(response *pb.ListMachinesResponse) {
		all.Machines = append(all.Machines, response.GetMachines()...)
		all.TotalSize, all.Failures = response.GetTotalSize(), response.GetFailures()
	})
	return all, err
}

func (a *app) listOperations(ctx context.Context, request *pb.ListOperationsRequest) (*pb.ListOperationsResponse, error) {
	all := &pb.ListOperationsResponse{}
	err := pages(func(page *pb.Page) (*pb.ListOperationsResponse, error) {
		request.Page = page
		return call(ctx, a, a.connection.operations.ListOperations, request)
	}, func(response *pb.ListOperationsResponse) {
		all.Operations = append(all.Operations, response.GetOperations()...)
		all.TotalSize, all.Failures = response.GetTotalSize(), response.GetFailures()
	})
	return all, err
}
