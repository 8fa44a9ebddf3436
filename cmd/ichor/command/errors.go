// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	"ichor.maesh.dev/hub/cmd/ichor/dial"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// explain says in words why a call failed, and what helps.
func (a *app) explain(err error) error {
	var failed *connect.Error
	var signIn *dial.SignInError
	var fingerprint *dial.FingerprintError
	switch {
	case errors.As(err, &signIn):
		return signIn
	case errors.As(err, &fingerprint):
		return fmt.Errorf("%w; if it was renewed, compare the fingerprint with whoever runs the hub and sign in again: ichor login", fingerprint)
	case dial.Untrusted(err):
		return fmt.Errorf("%s is not trusted: %w; sign in again with --ca-file or --fingerprint", a.connection.where, errors.Unwrap(err))
	case !errors.As(err, &failed):
		return err
	}
	return &explained{error: err, text: a.words(failed)}
}

// explained is an error of Connect in words for people.
type explained struct {
	error

	text string
}

// Error is the words.
func (e *explained) Error() string { return e.text }

// Unwrap is the error.
func (e *explained) Unwrap() error { return e.error }

func (a *app) words(err *connect.Error) string {
	if refusals := detail[*pb.Refusals](err); refusals != nil {
		return refused(refusals.GetRefusals())
	}
	text := err.Message()
	switch err.Code() { //nolint:exhaustive // The rest says it all itself.
	case connect.CodeUnauthenticated:
		if a.connection.context != nil && a.connection.context.Hub != "" {
			text = fmt.Sprintf("%s does not know you (%s); sign in with: ichor login --context %s", a.connection.where, text, a.connection.context.Name)
		}
	case connect.CodeUnavailable:
		text = fmt.Sprintf("%s does not answer: %s", a.connection.where, text)
	case connect.CodeDeadlineExceeded:
		text = fmt.Sprintf("%s has not answered in time: %s; wait longer with --timeout", a.connection.where, text)
	case connect.CodeUnimplemented:
		text = fmt.Sprintf("%s does not know how to do that: %s; see: ichor version", a.connection.where, text)
	}
	if partly := detail[*pb.PartlyDone](err); partly != nil {
		text += fmt.Sprintf("\n  done:    %s\n  missing: %s\n  finish:  %s", partly.GetDone(), partly.GetMissing(), partly.GetFinish())
	}
	return text
}

// detail is the detail of a type that an error carries; nil if it carries none.
func detail[T any](err *connect.Error) (found T) {
	for _, d := range err.Details() {
		value, decodeErr := d.Value()
		if decodeErr != nil {
			continue // Of a newer hub.
		}
		if typed, ok := value.(T); ok {
			return typed
		}
	}
	return found
}

// refused says why an operation does not start: each reason, what helps, and how it is bypassed if it can be.
func refused(refusals []*pb.Refusal) string {
	if len(refusals) == 1 {
		return "refused: " + refusal(refusals[0])
	}
	lines := []string{fmt.Sprintf("refused for %d reasons:", len(refusals))}
	for _, r := range refusals {
		lines = append(lines, "  "+refusal(r))
	}
	return strings.Join(lines, "\n")
}

func refusal(r *pb.Refusal) string {
	text := r.GetGate() + ": " + r.GetMessage()
	if r.GetHelp() != "" {
		text += " (" + r.GetHelp() + ")"
	}
	if r.GetOverridable() {
		text += fmt.Sprintf("; to bypass it, if you may: --override %s=REASON", r.GetGate())
	}
	return text
}
