// SPDX-License-Identifier: Apache-2.0

// Command ichor starts and follows operations on the clusters of a hub.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker.
var version = "dev"

// Exit codes of the command.
const (
	exitError       = 1
	exitUsage       = 2
	exitFailed      = 3
	exitInterrupted = 130
)

// codedError carries an exit code of its own.
type codedError struct {
	error

	code int
}

func (e *codedError) Unwrap() error { return e.error }

// usageError is about how the command was called.
func usageError(format string, args ...any) error {
	return &codedError{fmt.Errorf(format, args...), exitUsage}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := newCommand(os.Stdin, os.Stdout, os.Stderr).ExecuteContext(ctx)
	stop()
	os.Exit(report(err))
}

// report prints an error and returns the exit code.
func report(err error) int {
	if err == nil {
		return 0
	}
	var coded *codedError
	if !errors.As(err, &coded) {
		coded = &codedError{err, exitError}
	}
	fmt.Fprintln(os.Stderr, "Error:", err)
	return coded.code
}
