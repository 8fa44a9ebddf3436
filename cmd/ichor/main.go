// SPDX-License-Identifier: Apache-2.0

// Command ichor starts and follows operations on the clusters of a hub.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"ichor.maesh.dev/hub/cmd/ichor/command"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // Who interrupts twice does not want to wait.
	err := command.New(command.Process(version), plugin(os.Args[0])).ExecuteContext(ctx)
	stop()
	os.Exit(command.Report(err, os.Stderr))
}

// plugin says whether the program was called as one of kubectl's.
func plugin(name string) bool {
	return strings.TrimSuffix(filepath.Base(name), ".exe") == "kubectl-ichor"
}
