// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"ichor.maesh.dev/hub/hub/standalone"
	"ichor.maesh.dev/hub/hub/standalone/plane"
)

// newControlPlaneCommand is what the supervisor of standalone mode starts; people have no use for it.
func newControlPlaneCommand() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:    standalone.Command,
		Short:  "Run the API server of standalone mode",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runControlPlane(cmd.Context(), dataDir)
		},
	}
	cmd.Flags().StringVar(&dataDir, standalone.DataDirFlag, "", "directory of the API server's data")
	return cmd
}

func runControlPlane(ctx context.Context, dataDir string) (err error) {
	inherited, err := standalone.Inherit(dataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, inherited.Close()) }()
	return plane.Run(inherited.Context(ctx), plane.Config{
		DataDir:               inherited.DataDir,
		Listener:              inherited.Listener,
		ServingCertFile:       inherited.Files.Serving,
		ServingKeyFile:        inherited.Files.Serving,
		ClientCAFile:          inherited.Files.CA,
		ServiceAccountKeyFile: inherited.Files.ServiceAccountKey,
	})
}
