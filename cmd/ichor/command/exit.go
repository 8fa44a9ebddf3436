// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"ichor.maesh.dev/hub/cmd/ichor/follow"
)

// Exit codes of the command.
const (
	exitError       = 1
	exitUsage       = 2
	exitFailed      = 3
	exitDiffers     = 4
	exitStillRuns   = 5
	exitInterrupted = 130
)

// codedError carries an exit code of its own.
type codedError struct {
	error

	code int
}

func (e *codedError) Unwrap() error { return e.error }

// Error says what went wrong; nothing where the exit code says it all.
func (e *codedError) Error() string {
	if e.error == nil {
		return ""
	}
	return e.error.Error()
}

// usageError is about how the command was called.
func usageError(format string, args ...any) error {
	return &codedError{fmt.Errorf(format, args...), exitUsage}
}

// Report prints an error and returns the exit code.
func Report(err error, w io.Writer) int {
	if err == nil {
		return 0
	}
	var coded *codedError
	if errors.As(err, &coded) && coded.error == nil {
		return coded.code // What it means is printed already.
	}
	for i, line := range strings.Split(err.Error(), "\n") {
		if i == 0 {
			line = "Error: " + line
		}
		fmt.Fprintln(w, follow.Plain(line))
	}
	if coded != nil {
		return coded.code
	}
	return exitError
}
