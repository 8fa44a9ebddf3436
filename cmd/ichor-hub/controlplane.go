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
	var audit standalone.Audit
	cmd := &cobra.Command{
		Use:    standalone.Command,
		Short:  "Run the API server of standalone mode",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runControlPlane(cmd.Context(), dataDir, audit)
		},
	}
	cmd.Flags().StringVar(&dataDir, standalone.DataDirFlag, "", "directory of the API server's data")
	cmd.Flags().StringVar(&audit.Log, standalone.AuditLogFlag, "", "file that the API server's audit is added to")
	cmd.Flags().StringVar(&audit.Policy, standalone.AuditPolicyFlag, "", "file with the policy of the API server's audit")
	return cmd
}

func runControlPlane(ctx context.Context, dataDir string, audit standalone.Audit) (err error) {
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
		AuditPolicyFile:       audit.Policy,
		AuditLogFile:          audit.Log,
	})
}
