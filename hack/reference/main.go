// SPDX-License-Identifier: Apache-2.0

// Command reference writes docs/reference from what it describes: the command line, the protocol, and the objects.
//
//	reference DIRECTORY IMAGE CRD...
//
// IMAGE is the protocol with its comments, as `buf build` makes it; each CRD is a file.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	const needed = 3
	if len(args) < needed {
		return errors.New("reference wants arguments: DIRECTORY IMAGE CRD")
	}
	image, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	protocol, err := protocolPage(image)
	if err != nil {
		return fmt.Errorf("%s: %w", args[1], err)
	}
	objects, err := objectsPage(args[2:])
	if err != nil {
		return err
	}
	for name, page := range map[string][]byte{"cli.md": commandPage(), "proto.md": protocol, "crds.md": objects} {
		path := filepath.Join(args[0], name)
		if err := os.WriteFile(path, page, 0o644); err != nil { //nolint:gosec // It is for everybody to read.
			return err
		}
	}
	return nil
}

// page is a page that is being written.
type page struct{ bytes.Buffer }

// newPage begins a page. Nobody is to write into it by hand.
func newPage(title, intro string) *page {
	p := &page{}
	p.say("<!-- Written by make generate-docs. Change what it describes instead. -->\n\n# %s\n\n%s\n", title, intro)
	return p
}

func (p *page) say(format string, args ...any) { fmt.Fprintf(p, format, args...) }
