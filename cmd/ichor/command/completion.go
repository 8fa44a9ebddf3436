// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// completionTime bounds a completion: somebody waits with a finger on the key.
const completionTime = 2 * time.Second

// mostNames is how many names are offered.
const mostNames = 200

// namer finds names that begin with something.
type namer func(ctx context.Context, begin string) ([]string, error)

// complete offers names for the only argument of a command. Where nothing can be found out in time, it offers none: no error may get between
// somebody and what they type.
func (a *app) complete(find namer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		if find == nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.offer(cmd, find, begin), cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *app) offer(cmd *cobra.Command, find namer, begin string) []string {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	a.Err = io.Discard
	a.timeout = completionTime
	names, err := find(ctx, begin)
	if err != nil {
		return nil
	}
	var offered []string
	for _, name := range sorted(names) {
		if strings.HasPrefix(name, begin) && len(offered) < mostNames {
			offered = append(offered, name)
		}
	}
	return offered
}

// completeFlags offers values for the flags that all commands have.
func (a *app) completeFlags(root *cobra.Command) {
	for flag, find := range map[string]namer{
		"cluster": a.clusterNames,
		"context": a.eitherContextNames,
		"output":  func(context.Context, string) ([]string, error) { return outputs, nil },
	} {
		err := root.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
			return a.offer(cmd, find, begin), cobra.ShellCompDirectiveNoFileComp
		})
		if err != nil {
			panic(err) // The flag is defined a few lines before.
		}
	}
}

// eitherContextNames are contexts of ichor and of the kubeconfig.
func (a *app) eitherContextNames(ctx context.Context, begin string) ([]string, error) {
	if a.plugin || a.kubeconfig != "" {
		return a.kubeContexts(), nil
	}
	names, err := a.contextNames(ctx, begin)
	return append(names, a.kubeContexts()...), err
}

// asked runs something with a connection, for a completion.
func (a *app) asked(ask func() error) error {
	if err := a.connect(); err != nil {
		return err
	}
	defer a.disconnect()
	return ask()
}

func (a *app) clusterNames(ctx context.Context, begin string) (names []string, err error) {
	err = a.asked(func() error {
		response, err := call(ctx, a, a.connection.clusters.ListClusters, &pb.ListClustersRequest{
			Filter: &pb.ClusterFilter{Namespaces: []string{a.namespace}, Text: begin}, Page: &pb.Page{Size: mostNames},
		})
		for _, cluster := range response.GetClusters() {
			names = append(names, cluster.GetRef().GetName())
		}
		return err
	})
	return names, err
}

func (a *app) operationNames(ctx context.Context, begin string) (names []string, err error) {
	err = a.asked(func() error {
		namespaces, clusters, err := a.scope(false)
		if err != nil {
			return err
		}
		response, err := call(ctx, a, a.connection.operations.ListOperations, &pb.ListOperationsRequest{
			Filter: &pb.OperationFilter{Namespaces: namespaces, Clusters: clusters, Text: begin}, Page: &pb.Page{Size: mostNames},
		})
		for _, op := range response.GetOperations() {
			names = append(names, op.GetRef().GetName())
		}
		return err
	})
	return names, err
}

// machineNames are the names of machines, and of their nodes.
func (a *app) machineNames(ctx context.Context, begin string) (names []string, err error) {
	err = a.asked(func() error {
		namespaces, clusters, err := a.scope(false)
		if err != nil {
			return err
		}
		response, err := call(ctx, a, a.connection.clusters.ListMachines, &pb.ListMachinesRequest{
			Namespaces: namespaces, Clusters: clusters, Text: begin, Page: &pb.Page{Size: mostNames},
		})
		for _, machine := range response.GetMachines() {
			names = append(names, machine.GetRef().GetName())
			if machine.GetNode() != "" {
				names = append(names, machine.GetNode())
			}
		}
		return err
	})
	return names, err
}
