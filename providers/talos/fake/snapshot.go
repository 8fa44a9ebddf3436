// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"bytes"
	"context"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Store gives a control plane a snapshot of etcd to send.
func (t *Talos) Store(address string, snapshot []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machines[address].snapshot = snapshot
}

// EtcdSnapshot sends the first half, plays the call "EtcdSnapshot" with all that is ordered for it, and sends the rest.
func (c *client) EtcdSnapshot(ctx context.Context, address string) (io.ReadCloser, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(address)
	switch {
	case err != nil:
		return nil, err
	case m.etcd == nil:
		return nil, status.Error(codes.Unimplemented, "etcd snapshot is only available on control plane nodes")
	}
	half := len(m.snapshot) / 2
	rest := &lateReader{run: func() error { return c.Run(ctx, "EtcdSnapshot", address, func() error { return ctx.Err() }) }, Reader: bytes.NewReader(m.snapshot[half:])}
	return io.NopCloser(io.MultiReader(bytes.NewReader(m.snapshot[:half]), rest)), nil
}

// lateReader runs something before its first byte.
type lateReader struct {
	io.Reader

	run func() error
}

// Read implements io.Reader.
func (r *lateReader) Read(p []byte) (int, error) {
	if run := r.run; run != nil {
		r.run = nil
		if err := run(); err != nil {
			return 0, err
		}
	}
	return r.Reader.Read(p)
}
