// SPDX-License-Identifier: Apache-2.0

// Command ichor-sim runs a simulated fleet of Talos clusters, orders faults and shows what the machines were asked to do.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newRootCommand().ExecuteContext(ctx); err != nil {
		stop()
		os.Exit(1) //nolint:gocritic // stop has run.
	}
}
