// SPDX-License-Identifier: Apache-2.0

// Package ui is the page of the hub, as `make build-ui` built it.
package ui

import (
	"embed"
	"io/fs"
)

// dist is empty but for a file that keeps the directory where nothing has been built: `go build` needs no npm.
//
//go:embed all:dist
var dist embed.FS

// Files are the files of the page, each with its compressed copies beside it.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // The name is a constant and valid.
	}
	return files
}
