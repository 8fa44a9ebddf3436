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
	p, err := Prepare(path)
	if err != nil {
		return err
	}
	defer p.Close()
	return p.Replace(data)
}

// Pending is a file that is not at its path yet. It is made before there is anything to write, by who has to know that there is a place for it.
type Pending struct {
	path string
	file *os.File
}

// Prepare makes a file beside path. Nothing is at path, or what was there, until the file is put there.
func Prepare(path string) (*Pending, error) {
	// CreateTemp makes the file 0600.
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	return &Pending{path, f}, nil
}

// Close takes the file away, unless it was put at its path.
func (p *Pending) Close() {
	p.file.Close()           //nolint:errcheck // Closed where it was written; else nobody misses it.
	os.Remove(p.file.Name()) //nolint:errcheck // Gone after the rename; else there is nothing more to do.
}

// Replace writes data and puts the file at its path, whatever is there.
func (p *Pending) Replace(data []byte) error {
	if err := p.write(data); err != nil {
		return err
	}
	if err := os.Rename(p.file.Name(), p.path); err != nil {
		return fmt.Errorf("replacing %s: %w", p.path, err)
	}
	return nil
}

// Add writes data and puts the file at its path, where nothing is. The error wraps fs.ErrExist if something is there.
func (p *Pending) Add(data []byte) error {
	if err := p.write(data); err != nil {
		return err
	}
	if err := os.Link(p.file.Name(), p.path); err != nil {
		return fmt.Errorf("adding %s: %w", p.path, err)
	}
	return nil
}

func (p *Pending) write(data []byte) error {
	if err := writeAndSync(p.file, data); err != nil {
		return fmt.Errorf("writing %s: %w", p.path, err)
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
