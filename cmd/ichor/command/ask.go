// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// errNotConfirmed ends a command that a person did not want after all.
var errNotConfirmed = errors.New("not confirmed, nothing was changed")

// ask asks before something that cannot be taken back. Without a terminal nobody can answer, and only --yes goes on.
func (a *app) ask(ctx context.Context, question string, yes bool) error {
	if yes {
		return nil
	}
	if !a.InTerminal {
		return usageError("this needs a confirmation and there is no terminal to ask on: add --yes")
	}
	answer, err := a.answer(ctx, question+" [y/N] ")
	if err != nil {
		return err
	}
	if !strings.EqualFold(answer, "y") && !strings.EqualFold(answer, "yes") {
		return errNotConfirmed
	}
	return nil
}

// askName asks for a name to be typed: what follows is worth a second look. Who has given it on the command line is not asked.
func (a *app) askName(ctx context.Context, what, name, given string) error {
	switch {
	case given == name:
		return nil
	case given != "":
		return usageError("--confirm %q is not the name of the %s, %q; nothing was changed", given, what, name)
	case !a.InTerminal:
		return usageError("this needs the name of the %s as a confirmation and there is no terminal to ask on: add --confirm %s", what, name)
	}
	answer, err := a.answer(ctx, fmt.Sprintf("Type the name of the %s (%s) to go on: ", what, name))
	if err != nil {
		return err
	}
	if answer != name {
		return errNotConfirmed
	}
	return nil
}

// answer reads one line. An interrupt ends the wait for it.
func (a *app) answer(ctx context.Context, question string) (string, error) {
	fmt.Fprint(a.Err, question)
	type read struct {
		line string
		err  error
	}
	answers := make(chan read, 1)
	go func() {
		line, err := bufio.NewReader(a.In).ReadString('\n')
		answers <- read{line, err}
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.Err)
		return "", &codedError{errors.New("interrupted, nothing was changed"), exitInterrupted}
	case got := <-answers:
		if got.err != nil && got.line == "" {
			return "", errNotConfirmed
		}
		return strings.TrimSpace(got.line), nil
	}
}

// connected is a command that talks to a hub.
func (a *app) connected(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.connect(); err != nil {
			return err
		}
		defer a.disconnect()
		return run(cmd, args)
	}
}
