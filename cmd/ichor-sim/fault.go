// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"ichor.maesh.dev/hub/test/sim/fault"
)

func newFaultCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fault",
		Short: "Order, list and clear faults",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newFaultAddCommand(g), newFaultListCommand(g), newFaultClearCommand(g))
	return cmd
}

func newFaultAddCommand(g *globals) *cobra.Command {
	var f fault.Fault
	cmd := &cobra.Command{
		Use:   "add FAULT",
		Short: "Put a fault in force",
		Long:  "Put a fault in force and print its ID.\n\nFaults:\n" + describeFaults(),
		Example: `  ichor-sim fault add installer-exit --cluster demo-1 --node cp-1 --set code=4 --times 1
  ichor-sim fault add unreachable --cluster demo-2 --set api=talos --set mode=blackhole`,
		Args: cobra.ExactArgs(1),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Cluster, "cluster", "", "only in this cluster")
	flags.StringVar(&f.Node, "node", "", "only on this node")
	flags.IntVar(&f.Times, "times", 0, "how often it fires; 0 is until cleared")
	flags.StringToStringVar(&f.Params, "set", nil, "a parameter as NAME=VALUE; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.Name = args[0]
		client, err := g.client()
		if err != nil {
			return err
		}
		id, err := client.Inject(cmd.Context(), f)
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), id)
		return nil
	}
	return cmd
}

func describeFaults() string {
	var text strings.Builder
	for _, d := range fault.Definitions {
		fmt.Fprintf(&text, "  %s: %s\n", d.Name, d.Summary)
		for _, p := range d.Params {
			fmt.Fprintf(&text, "    %s (default %s): %s", p.Name, p.Default, p.Summary)
			if len(p.Values) > 0 {
				fmt.Fprintf(&text, ": %s", strings.Join(p.Values, ", "))
			}
			text.WriteString("\n")
		}
	}
	return strings.TrimRight(text.String(), "\n")
}

func newFaultListCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the faults in force",
		Args:  cobra.NoArgs,
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client, err := g.client()
		if err != nil {
			return err
		}
		faults, err := client.Faults(cmd.Context())
		if err != nil {
			return err
		}
		if *format == outputJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(faults)
		}
		return printFaults(cmd.OutOrStdout(), faults)
	}
	return cmd
}

func printFaults(out io.Writer, faults []fault.Active) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tFAULT\tCLUSTER\tNODE\tPARAMETERS\tTIMES\tFIRED")
	for _, f := range faults {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\n", f.ID, f.Name, dash(f.Cluster), dash(f.Node), dash(pairs(f.Params)), f.Times, f.Fired)
	}
	return w.Flush()
}

func newFaultClearCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "clear [ID]",
		Short: "End a fault, or all of them",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.client()
			if err != nil {
				return err
			}
			return client.Clear(cmd.Context(), strings.Join(args, ""))
		},
	}
}
