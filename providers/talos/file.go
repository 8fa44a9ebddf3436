// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"fmt"
	"io"
)

// MaxFile is how large a file may be that is read from a machine.
const MaxFile = 1 << 20

// File reads a file of a machine. One that is larger than MaxFile is an error, and no part of it is returned.
func (c *connection) File(ctx context.Context, address, path string) ([]byte, error) {
	file, err := c.client.Read(at(ctx, address), path)
	if err != nil {
		return nil, fmt.Errorf("machine at %s: reading %s: %w", address, path, err)
	}
	defer file.Close() //nolint:errcheck // Only read from.
	data, err := io.ReadAll(io.LimitReader(file, MaxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("machine at %s: reading %s: %w", address, path, err)
	case len(data) > MaxFile:
		return nil, fmt.Errorf("machine at %s: %s is larger than %d bytes", address, path, MaxFile)
	}
	return data, nil
}
