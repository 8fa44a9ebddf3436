// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"ichor.maesh.dev/hub/hub/auth/link"
	"ichor.maesh.dev/hub/hub/standalone"
)

// newLoginLinkCommand lets the owner of a standalone hub in, who is whoever may write in its data directory.
func newLoginLinkCommand() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "login-link",
		Short: "Print a link that signs in once to a standalone hub",
		Long: `Print a link that signs in once to a standalone hub, as its administrator.

A browser opens it, or the command line: ichor login --link. It works for ten minutes, with a hub that runs
or that is started before they are over.`,
		Example: `  ichor-hub login-link --data-dir /var/lib/ichor-hub`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := standalone.AnnouncedURL(dataDir)
			if err != nil {
				return err
			}
			return printLink(cmd.OutOrStdout(), dataDir, at)
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "directory of the standalone hub")
	if err := cmd.MarkFlagRequired("data-dir"); err != nil {
		panic(err) // The flag is there.
	}
	return cmd
}

// printLink makes a link to a hub, and prints it.
func printLink(out io.Writer, dataDir, at string) error {
	code, err := link.Store{Dir: standalone.LoginLinks(dataDir)}.Create(time.Now(), 0)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Sign in once, within %.0f minutes: %s\n", link.DefaultLifetime.Minutes(), link.URL(at, code))
	return nil
}
