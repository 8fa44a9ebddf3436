// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"fmt"
	"io"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// EtcdSnapshot begins to read a snapshot of etcd from a control plane. It changes nothing. The stream ends with ctx; a stream that breaks
// is an error, never an end.
func (c *connection) EtcdSnapshot(ctx context.Context, address string) (io.ReadCloser, error) {
	stream, err := c.client.EtcdSnapshot(at(ctx, address), &machineapi.EtcdSnapshotRequest{})
	if err != nil {
		return nil, fmt.Errorf("reading a snapshot of etcd at %s: %w", address, err)
	}
	return stream, nil
}
