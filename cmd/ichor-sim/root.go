// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"ichor.maesh.dev/hub/test/sim/control"
)

// globals are the flags of all commands.
type globals struct {
	dir string
}

func newRootCommand() *cobra.Command {
	g := &globals{}
	cmd := &cobra.Command{
		Use:   "ichor-sim",
		Short: "Run a simulated fleet of Talos clusters",
		Long: `ichor-sim runs Talos clusters that exist only in its memory. Every node serves the
real Talos API, every cluster a Kubernetes API; kubectl and Talos clients work
against them. Faults can be ordered, and a journal shows every call.`,
		SilenceUsage: true,
	}
	cmd.PersistentFlags().StringVar(&g.dir, "dir", "ichor-sim", "state directory of the simulation")
	cmd.AddCommand(newServeCommand(g), newNodesCommand(g), newPowerCommand(g), newJournalCommand(g), newFaultCommand(g), newSecretsCommand(g))
	return cmd
}

// client finds the running simulation.
func (g *globals) client() (*control.Client, error) { return control.Open(g.dir) }

// output is a validated -o flag.
type output string

const (
	outputTable output = "table"
	outputJSON  output = "json"
)

// String implements pflag.Value.
func (o *output) String() string { return string(*o) }

// Set implements pflag.Value.
func (o *output) Set(s string) error {
	switch output(s) {
	case outputTable, outputJSON:
		*o = output(s)
		return nil
	}
	return fmt.Errorf("want %s or %s", outputTable, outputJSON)
}

// Type implements pflag.Value.
func (o *output) Type() string { return "format" }

func outputFlag(cmd *cobra.Command) *output {
	o := outputTable
	cmd.Flags().VarP(&o, "output", "o", "output format: table or json")
	return &o
}
