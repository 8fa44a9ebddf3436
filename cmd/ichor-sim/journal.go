// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"ichor.maesh.dev/hub/test/sim/journal"
)

func newJournalCommand(g *globals) *cobra.Command {
	var filter journal.Filter
	var follow bool
	cmd := &cobra.Command{
		Use:   "journal",
		Short: "Show the calls that the nodes received",
		Long: `Show the calls that the nodes received and what became of them. Changing calls
and events are kept for the whole run, the latest reads as well. Followed calls
show twice: when they arrive and when they end.`,
		Example: `  ichor-sim journal --cluster demo-1 --method 'LifecycleService/*'
  ichor-sim journal --cluster demo-1 --node cp-1 -f`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.Cluster, "cluster", "", "only this cluster")
	flags.StringVar(&filter.Node, "node", "", "only this node")
	flags.StringVar(&filter.Method, "method", "", "only this method; a final * stands for any ending")
	flags.BoolVarP(&follow, "follow", "f", false, "go on with what happens from now on")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client, err := g.client()
		if err != nil {
			return err
		}
		p := newEntryPrinter(cmd.OutOrStdout(), *format, follow)
		if err := client.Journal(cmd.Context(), filter, follow, p.print); err != nil {
			return err
		}
		return p.table.Flush()
	}
	return cmd
}

// entryPrinter prints entries as a table, whose columns are aligned when the end is known, or as JSON lines.
type entryPrinter struct {
	table  *tabwriter.Writer
	json   *json.Encoder
	follow bool
}

func newEntryPrinter(w io.Writer, format output, follow bool) *entryPrinter {
	p := &entryPrinter{table: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0), follow: follow}
	if format == outputJSON {
		p.json = json.NewEncoder(w)
		return p
	}
	fmt.Fprintln(p.table, "SEQ\tTIME\tCLUSTER\tNODE\tMETHOD\tARGUMENTS\tCALLER\tOUTCOME\tDURATION")
	return p
}

func (p *entryPrinter) print(e journal.Entry) error {
	if p.json != nil {
		return p.json.Encode(e)
	}
	caller := strings.TrimSpace(e.Caller + " " + strings.Join(e.Roles, ","))
	fmt.Fprintf(p.table, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.Sequence, e.Time.Format(time.TimeOnly+".000"),
		e.Cluster, dash(e.Node), e.Method, dash(pairs(e.Arguments)), dash(caller), outcomeOf(e), e.Duration.Round(time.Millisecond))
	if p.follow {
		return p.table.Flush()
	}
	return nil
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func pairs(m map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, key+"="+m[key])
	}
	return strings.Join(parts, " ")
}

func outcomeOf(e journal.Entry) string {
	switch {
	case !e.Done:
		return "..."
	case e.ExitCode != nil:
		return "exit code " + strconv.Itoa(int(*e.ExitCode))
	}
	return dash(strings.TrimSpace(e.Code + " " + e.Message))
}
