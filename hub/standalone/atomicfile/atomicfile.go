// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces files so that a reader, or a crash, never finds half of one.
package atomicfile

import (
	"fmt"
	"os"
	"path/filepath"
)

// Write replaces the file at path by data. The file is readable by its owner alone.
func Write(path string, data []byte) error {
	// CreateTemp makes the file 0600.
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // Gone after the rename; else there is nothing more to do.
	if err := writeAndSync(f, data); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	return nil
}

func writeAndSync(f *os.File, data []byte) error {
	defer f.Close() //nolint:errcheck // Closed below; this is for the early returns.
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}
