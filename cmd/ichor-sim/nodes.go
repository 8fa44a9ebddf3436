// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"ichor.maesh.dev/hub/test/sim/control"
)

func newNodesCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List the nodes and what they run",
		Args:  cobra.NoArgs,
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client, err := g.client()
		if err != nil {
			return err
		}
		nodes, err := client.Nodes(cmd.Context())
		if err != nil {
			return err
		}
		if *format == outputJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(nodes)
		}
		return printNodes(cmd, nodes)
	}
	return cmd
}

func printNodes(cmd *cobra.Command, nodes []control.Node) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CLUSTER\tNODE\tADDRESS\tROLE\tSTAGE\tREADY\tVERSION\tNEXT\tBOOT ID")
	for _, n := range nodes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%t\t%s\t%s\t%s\n",
			n.Cluster, n.Name, n.Address, roleOf(n), n.Stage, n.Ready, n.Version, n.Next, n.BootID)
	}
	return w.Flush()
}

func roleOf(n control.Node) string {
	switch {
	case n.Leader:
		return "control-plane (etcd leader)"
	case n.ControlPlane:
		return "control-plane"
	}
	return "worker"
}

func newPowerCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:       "power on|off CLUSTER [NODE]",
		Short:     "Switch the power of a node, or of all nodes of a cluster, on or off",
		Args:      cobra.RangeArgs(2, 3),
		ValidArgs: []string{"on", "off"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != "on" && args[0] != "off" {
				return fmt.Errorf("the power is either on or off, not %q", args[0])
			}
			client, err := g.client()
			if err != nil {
				return err
			}
			if len(args) == 3 {
				return client.Power(cmd.Context(), args[1], args[2], args[0] == "on")
			}
			return powerAll(cmd.Context(), client, args[1], args[0] == "on")
		},
	}
}

// powerAll switches every node of a cluster.
func powerAll(ctx context.Context, client *control.Client, cluster string, on bool) error {
	nodes, err := client.Nodes(ctx)
	if err != nil {
		return err
	}
	found := false
	for _, n := range nodes {
		if n.Cluster != cluster {
			continue
		}
		found = true
		if err := client.Power(ctx, cluster, n.Name, on); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("no cluster is named %q", cluster)
	}
	return nil
}
