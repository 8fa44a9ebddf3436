// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"bufio"
	"context"
	"fmt"
	"io"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
)

// recoverBuffer is more than the client of machinery reads at once.
const recoverBuffer = 64 << 10

// RecoverEtcd sends a snapshot. What the machine has of an earlier one is written over. The client of machinery drops what a reader returns
// together with its end, which a buffered one never does.
func (c *connection) RecoverEtcd(ctx context.Context, address string, snapshot io.Reader) error {
	if _, err := c.client.EtcdRecover(c.guarded(ctx, address), bufio.NewReaderSize(snapshot, recoverBuffer)); err != nil {
		return fmt.Errorf("sending a snapshot of etcd to %s: %w", address, err)
	}
	return nil
}

// BootstrapEtcd begins an etcd of the snapshot that was sent.
func (c *connection) BootstrapEtcd(ctx context.Context, address string, skipHashCheck bool) error {
	request := &machineapi.BootstrapRequest{RecoverEtcd: true, RecoverSkipHashCheck: skipHashCheck}
	if err := c.client.Bootstrap(c.guarded(ctx, address), request); err != nil {
		return fmt.Errorf("beginning an etcd of a snapshot at %s: %w", address, err)
	}
	return nil
}

// NotReady says whether a machine answered that it is too early for what it was asked for: it has not come up as far as that yet.
func NotReady(err error) bool { return client.StatusCode(err) == codes.FailedPrecondition }

// HasEtcd says whether a machine answered that it has an etcd already, and so begins none.
func HasEtcd(err error) bool { return client.StatusCode(err) == codes.AlreadyExists }
