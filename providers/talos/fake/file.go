// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"path"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Write gives a machine a file.
func (t *Talos) Write(address, name string, data []byte) {
	t.WriteAt(address, name, data, time.Now())
}

// WriteAt gives a machine a file that it has written at a time.
func (t *Talos) WriteAt(address, name string, data []byte, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.machines[address]
	if m.files == nil {
		m.files = map[string]file{}
	}
	m.files[name] = file{data: slices.Clone(data), written: at.UTC().Truncate(time.Second)}
}

// file is a file of a machine.
type file struct {
	data    []byte
	written time.Time
}

func (c *client) FileTimes(_ context.Context, address, directory string) (map[string]time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(address)
	if err != nil {
		return nil, err
	}
	times := map[string]time.Time{}
	for name, found := range m.files {
		if path.Dir(name) == path.Clean(directory) {
			times[path.Base(name)] = found.written
		}
	}
	return times, nil
}

func (c *client) File(_ context.Context, address, name string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(address)
	if err != nil {
		return nil, err
	}
	found, ok := m.files[name]
	if !ok {
		return nil, status.Errorf(codes.Unknown, "stat %s: no such file or directory", name)
	}
	return slices.Clone(found.data), nil
}
