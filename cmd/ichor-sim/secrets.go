// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func newSecretsCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets CLUSTER",
		Short: "List with which key each Secret of a cluster is encrypted in etcd",
		Args:  cobra.ExactArgs(1),
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := g.client()
		if err != nil {
			return err
		}
		keys, err := client.Secrets(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if *format == outputJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(keys)
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "SECRET\tBEGINS WITH\tFINGERPRINT")
		for _, name := range slices.Sorted(maps.Keys(keys)) {
			fmt.Fprintf(w, "%s\t%s\t%s\n", name, cmp.Or(keys[name].Prefix, "(plain text)"), keys[name].Fingerprint)
		}
		return w.Flush()
	}
	return cmd
}
