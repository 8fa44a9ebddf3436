// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// MaxFile is how large a file may be that is read from a machine.
const MaxFile = 1 << 20

// File reads a file of a machine. One that is larger than MaxFile is an error, and no part of it is returned.
func (c *connection) File(ctx context.Context, address, name string) ([]byte, error) {
	file, err := c.client.Read(at(ctx, address), name)
	if err != nil {
		return nil, fmt.Errorf("machine at %s: reading %s: %w", address, name, err)
	}
	defer file.Close() //nolint:errcheck // Only read from.
	data, err := io.ReadAll(io.LimitReader(file, MaxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("machine at %s: reading %s: %w", address, name, err)
	case len(data) > MaxFile:
		return nil, fmt.Errorf("machine at %s: %s is larger than %d bytes", address, name, MaxFile)
	}
	return data, nil
}

// FileTimes are when the files of a directory of a machine were last written, by name and by the clock of the machine, in whole seconds.
func (c *connection) FileTimes(ctx context.Context, address, directory string) (map[string]time.Time, error) {
	stream, err := c.client.LS(at(ctx, address), &machineapi.ListRequest{Root: directory, Types: []machineapi.ListRequest_Type{machineapi.ListRequest_REGULAR}})
	if err != nil {
		return nil, fmt.Errorf("machine at %s: listing %s: %w", address, directory, err)
	}
	times := map[string]time.Time{}
	for {
		file, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return times, nil
		case err != nil:
			return nil, fmt.Errorf("machine at %s: listing %s: %w", address, directory, err)
		case file.GetError() != "":
			return nil, fmt.Errorf("machine at %s: listing %s: %s", address, directory, file.GetError())
		}
		times[path.Base(file.GetName())] = time.Unix(file.GetModified(), 0).UTC()
	}
}
