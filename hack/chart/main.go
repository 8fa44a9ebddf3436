// SPDX-License-Identifier: Apache-2.0

// Command chart writes the templates of the Helm chart from what kustomize renders, so that both install the same.
//
//	chart CONFIG DIRECTORY
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: chart CONFIG DIRECTORY")
	}
	files, err := templates(args[0])
	if err != nil {
		return err
	}
	if err := os.RemoveAll(args[1]); err != nil { // An object that is gone leaves no template behind.
		return err
	}
	if err := os.MkdirAll(args[1], 0o755); err != nil { //nolint:gosec // It is part of the source tree.
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(args[1], name), content, 0o644); err != nil { //nolint:gosec // Likewise.
			return err
		}
	}
	return nil
}
