// SPDX-License-Identifier: Apache-2.0

// Command ichor-hub runs operations on many Talos Linux clusters from one place.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // Maintenance windows and schedules name time zones, and an image with nothing but the hub has none.

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// From the second signal on the default applies, so that a hanging shutdown can be cut short.
	context.AfterFunc(ctx, stop)
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1) //nolint:gocritic // There is nothing left to stop.
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:               "ichor-hub",
		Short:             "Run operations on many Talos Linux clusters from one place",
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
	}
	root.AddCommand(newServeCommand(), newLoginLinkCommand(), newControlPlaneCommand(), newLetGoCommand(), newInstallCommand(), newVersionCommand())
	return root
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintln(cmd.OutOrStdout(), version)
		},
	}
}
