// SPDX-License-Identifier: Apache-2.0

package command

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// rotatedKeys are the keys that can be rotated, as people write them and as the hub does.
var rotatedKeys = []struct{ flag, name string }{{"service-account", "ServiceAccount"}, {"secretbox", "Secretbox"}}

// bothKeys are all of them, in the order above.
const bothKeys = "both"

// rotateKeysOrder rotates keys of the cluster that is the argument.
func (a *app) rotateKeysOrder(use, example string) *order {
	parameters := &pb.KeyRotationParameters{}
	wanted := &pb.OperationOrder{
		Kind:       pb.OperationKind_OPERATION_KIND_KEY_ROTATION,
		Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_KeyRotation{KeyRotation: parameters}},
	}
	var keys []string
	var bypass overrides
	return &order{
		use: use, example: example,
		short: "Replace the key of service accounts, the key that encrypts Secrets, or both",
		long: `Replace the key that signs the tokens of service accounts, the key that encrypts Secrets in etcd, or both one after the other.

Control planes go one at a time, in passes: first every API server takes the new key, then every one uses it, and only when nothing needs
the old key any more it is dropped. Between the passes the operation waits until pods have new tokens, which takes a day and can be
ended earlier with: ichor operation confirm NAME; or has everything written again that is encrypted.

It takes Talos v1.14 or later on every control plane: older machine configs hold one key only.`,
		names: a.clusterNames,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringSliceVar(&keys, "key", nil, "which keys, in this order: service-account, secretbox, or both")
			bypass.addTo(cmd)
		},
		check: func() (err error) {
			if parameters.Keys, err = keyNames(keys); err != nil {
				return err
			}
			wanted.Overrides, err = bypass.parse()
			return err
		},
		make: a.ofCluster(wanted),
	}
}

// keyNames are keys as the hub names them.
func keyNames(flags []string) ([]string, error) {
	if slices.Equal(flags, []string{bothKeys}) {
		return []string{rotatedKeys[0].name, rotatedKeys[1].name}, nil
	}
	var names []string
	for _, flag := range flags {
		i := slices.IndexFunc(rotatedKeys, func(key struct{ flag, name string }) bool { return key.flag == flag })
		switch {
		case i < 0:
			return nil, usageError("--key %q is not one of %s, %s, %s", flag, rotatedKeys[0].flag, rotatedKeys[1].flag, bothKeys)
		case slices.Contains(names, rotatedKeys[i].name):
			return nil, usageError("--key %s is there twice", flag)
		}
		names = append(names, rotatedKeys[i].name)
	}
	if len(names) == 0 {
		return nil, usageError("say which key: --key %s", strings.Join([]string{rotatedKeys[0].flag, rotatedKeys[1].flag, bothKeys}, ", --key "))
	}
	return names, nil
}
