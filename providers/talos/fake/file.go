// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Write gives a machine a file.
func (t *Talos) Write(address, path string, data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.machines[address]
	if m.files == nil {
		m.files = map[string][]byte{}
	}
	m.files[path] = slices.Clone(data)
}

func (c *client) File(_ context.Context, address, path string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(address)
	if err != nil {
		return nil, err
	}
	data, ok := m.files[path]
	if !ok {
		return nil, status.Errorf(codes.Unknown, "stat %s: no such file or directory", path)
	}
	return slices.Clone(data), nil
}
