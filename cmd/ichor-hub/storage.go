// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"

	"github.com/spf13/pflag"

	"ichor.maesh.dev/hub/providers/blob"
	"ichor.maesh.dev/hub/providers/blob/drivers"
)

// storageOptions say where snapshots of etcd may be stored.
type storageOptions struct {
	dir     string
	ambient bool
}

func (o *storageOptions) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.dir, "snapshot-dir", "", "directory below which snapshots of etcd may be stored by file:// (default: snapshots in --data-dir; none without)")
	flags.BoolVar(&o.ambient, "ambient-storage-credentials", false, "open buckets that come without credentials as the hub itself, by the identity that its cloud gives it")
}

// opener opens the buckets that the options let it open.
func (o *storageOptions) opener(dataDir string) blob.Opener {
	dir := o.dir
	if dir == "" && dataDir != "" {
		dir = filepath.Join(dataDir, "snapshots")
	}
	if dir != "" {
		if absolute, err := filepath.Abs(dir); err == nil {
			dir = absolute
		}
	}
	return blob.Opener{Drivers: drivers.All(o.ambient), Directory: dir}
}
