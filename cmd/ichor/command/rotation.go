// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ichor.maesh.dev/hub/hub/standalone/atomicfile"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// authorities are what --authority takes, and what the hub calls them.
var authorities = map[string][]string{"talos": {"Talos"}, "kubernetes": {"Kubernetes"}, "both": {"Talos", "Kubernetes"}}

// rotateCAOrder replaces the certificate authorities of the cluster that is the argument.
func (a *app) rotateCAOrder(use, example string) *order {
	parameters := &pb.CARotationParameters{}
	wanted := &pb.OperationOrder{
		Kind:       pb.OperationKind_OPERATION_KIND_CA_ROTATION,
		Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_CaRotation{CaRotation: parameters}},
	}
	var names []string
	var bypass overrides
	return &order{
		use: use, example: example,
		short: "Replace the certificate authorities of a cluster",
		long: `Replace the certificate authorities of a cluster: that of the Talos API, that of the Kubernetes API, or one after the other.

Every machine first accepts the new authority, then signs by it, and at last drops the old one; machine by machine, each proved directly, and
none left out. Before the old one is dropped the new credentials are in the Secrets of the cluster, and the operation waits until somebody says
that people have them: ichor operation confirm NAME. Until then it can be turned back: ichor operation turn-back NAME.

The authorities of etcd and of the API aggregator are not replaced.`,
		names: a.clusterNames,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringSliceVar(&names, "authority", []string{"both"}, "talos, kubernetes or both")
			cmd.Flags().StringVar(&wanted.MaxUnavailable, "max-unavailable", "", "how many workers may be in hand at once, as a number or a percentage (default 1)")
			bypass.addTo(cmd)
		},
		check: func() (err error) {
			if parameters.Authorities, err = authoritiesOf(names); err != nil {
				return err
			}
			if wanted.Overrides, err = bypass.parse(); err != nil {
				return err
			}
			return checkMaxUnavailable(wanted.GetMaxUnavailable())
		},
		make: a.ofCluster(wanted),
	}
}

func authoritiesOf(names []string) ([]string, error) {
	var list []string
	for _, name := range names {
		of, ok := authorities[strings.ToLower(name)]
		if !ok {
			return nil, usageError("--authority %q is not one of talos, kubernetes and both", name)
		}
		for _, authority := range of {
			if slices.Contains(list, authority) {
				return nil, usageError("--authority: %s is there twice", strings.ToLower(authority))
			}
			list = append(list, authority)
		}
	}
	if len(list) == 0 {
		return nil, usageError("--authority is empty: it is talos, kubernetes or both")
	}
	return list, nil
}

func newTurnBackCommand(a *app) *cobra.Command {
	var yes bool
	cmd := a.onOperation("turn-back NAME", "Make what an operation has changed what it was, as long as that is possible", func(ctx context.Context, name *pb.Reference) error {
		if err := a.ask(ctx, fmt.Sprintf("Turn operation %s back?", a.named(name)), yes); err != nil {
			return err
		}
		response, err := call(ctx, a, a.connection.operations.TurnBackOperation, &pb.TurnBackOperationRequest{Ref: name})
		switch {
		case err != nil:
			return fmt.Errorf("turning operation %s back: %w", a.named(name), err)
		case !response.GetChanged():
			return a.unchanged(response.GetOperation(), name, "turns back already")
		}
		return a.did(a.operationResult(response.GetOperation(), name), "Operation %s turns back. Follow it with: ichor operation watch %[1]s", a.named(name))
	})
	cmd.Long = `Make what an operation has changed what it was, as long as that is possible.

A rotation of certificate authorities can be turned back until the first machine drops the old authority. An operation that has failed goes on,
backwards.`
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for a confirmation")
	return cmd
}

func newBundleExportCommand(a *app) *cobra.Command {
	var file string
	var force bool
	cmd := &cobra.Command{
		Use:   "bundle-export NAME",
		Short: "Export the bundle of a cluster's secrets, as a backup",
		Long: `Export the bundle of a cluster's secrets, as a backup: certificate authorities, keys and tokens, from which machines of the cluster are made.

Whoever has it has the cluster: keep it where nobody else looks. talosctl reads it: talosctl gen config --with-secrets FILE. After a rotation
a backup from before is of no use, and condition BundleBackupStale of the cluster says so until the bundle has been exported again.`,
		Example:           "  ichor cluster bundle-export prod-1 --file prod-1-secrets.yaml",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete(a.clusterNames),
		RunE: a.connected(func(cmd *cobra.Command, args []string) error {
			ref, err := clusterResource.parse(args[0], a.namespace)
			if err != nil {
				return err
			}
			if file == "" {
				return usageError(`--file is needed: the file to write, or "-" for the standard output`)
			}
			return a.exportBundle(cmd.Context(), ref, file, force)
		}),
	}
	cmd.Flags().StringVar(&file, "file", "", `file to write, or "-" for the standard output`)
	cmd.Flags().BoolVar(&force, "overwrite", false, "write over a file that is there")
	return cmd
}

// exportBundle writes the file before it says that there is one. It makes one beside it first: an export that nobody keeps is none. What is there is
// replaced once the new bundle is on the disk as a whole, for it may be the only backup.
func (a *app) exportBundle(ctx context.Context, ref *pb.Reference, file string, overwrite bool) error {
	export := func() ([]byte, error) {
		response, err := call(ctx, a, a.connection.clusters.ExportBundle, &pb.ExportBundleRequest{Ref: ref})
		if err != nil {
			return nil, fmt.Errorf("exporting the bundle of cluster %s: %w", ref.GetName(), err)
		}
		return response.GetBundle(), nil
	}
	if file == "-" {
		bundle, err := export()
		if err == nil {
			_, err = a.Out.Write(bundle)
		}
		return err
	}
	if _, err := os.Lstat(file); err == nil && !overwrite {
		return thereAlready(file)
	}
	into, err := atomicfile.Prepare(file)
	if err != nil {
		return err
	}
	defer into.Close()
	bundle, err := export()
	if err != nil {
		return err
	}
	put := into.Add
	if overwrite {
		put = into.Replace
	}
	switch err := put(bundle); {
	case errors.Is(err, fs.ErrExist): // Somebody has made it meanwhile.
		return thereAlready(file)
	case err != nil:
		return err
	}
	a.remark("The bundle of cluster %s is in %s. Whoever has it has the cluster.", ref.GetName(), file)
	return nil
}

func thereAlready(file string) error {
	return usageError("--file %s is there already: choose another, or add --overwrite", file)
}
