// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"ichor.maesh.dev/hub/controllers/operation/plan"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/providers/credentials"
)

// NotFoundError means that something which the user named does not exist.
type NotFoundError struct{ What, Help string }

// Error says what does not exist, and how to find what does.
func (e *NotFoundError) Error() string { return e.What + "; " + e.Help }

// InvalidError means that a request asks for what cannot be.
type InvalidError struct {
	// Field is the part of the request, as the protocol names it; Value is what it has, empty if nothing.
	Field, Value string

	// Allowed says what it may have.
	Allowed string
}

// Error names the field, its value and what is allowed.
func (e *InvalidError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s is missing: %s", e.Field, e.Allowed)
	}
	return fmt.Sprintf("%s %s: %s", e.Field, clip(e.Value), e.Allowed)
}

// mostEchoed is how much of a value that somebody sent is sent back.
const mostEchoed = 80

// clip quotes a value, of which the end is left out if it is long.
func clip(value string) string {
	if len(value) <= mostEchoed {
		return strconv.Quote(value)
	}
	return strconv.Quote(strings.ToValidUTF8(value[:mostEchoed], "")) + "…"
}

// RefusedError means that nothing was done since something speaks against it. Nothing was written.
type RefusedError struct{ Refusals []plan.Refusal }

// Error names every refusal.
func (e *RefusedError) Error() string {
	var lines []string
	for _, r := range e.Refusals {
		line := r.Gate + ": " + r.Message
		if r.Help != "" {
			line += " (" + r.Help + ")"
		}
		lines = append(lines, line)
	}
	return "refused: " + strings.Join(lines, "; ")
}

// StateError means that an object is in no state in which it could be done.
type StateError struct{ What, Help string }

// Error says what state that is, and what helps.
func (e *StateError) Error() string { return e.What + "; " + e.Help }

// UnopenedError means that a cluster could not be opened with the credentials that somebody brought.
type UnopenedError struct{ Cause error }

// Error says why, and what helps.
func (e *UnopenedError) Error() string {
	return fmt.Sprintf("%s; to import it without a look at it: --offline", e.Cause)
}

// Unwrap is why.
func (e *UnopenedError) Unwrap() error { return e.Cause }

// ExistsError means that what shall be made is there already, and is something else.
type ExistsError struct{ What, Help string }

// Error says what is there, and what helps.
func (e *ExistsError) Error() string { return e.What + "; " + e.Help }

// ChangedError means that what a request is about was changed while it was worked on.
type ChangedError struct{ What string }

// Error says what was changed.
func (e *ChangedError) Error() string { return e.What + ": look at it again, and repeat the request" }

// PartlyDoneError means that a request that writes several objects came only so far.
type PartlyDoneError struct {
	// Done is what was written, Missing what was not, and Finish how to finish it.
	Done, Missing, Finish string

	// Cause is why it came no further.
	Cause error
}

// Error says how far it came.
func (e *PartlyDoneError) Error() string {
	return fmt.Sprintf("%s, but %s: %s; to finish it, %s", e.Done, e.Missing, e.Cause, e.Finish)
}

// Unwrap is why it came no further.
func (e *PartlyDoneError) Unwrap() error { return e.Cause }

// problem turns an error into one of Connect: with a code that programs go by, details, and the words for people.
func problem(err error) error {
	if err == nil {
		return nil
	}
	var ready *connect.Error
	var partly *PartlyDoneError
	if errors.As(err, &ready) && !errors.As(err, &partly) {
		return err
	}
	made := connect.NewError(codeOf(err), errors.New(plain(err)))
	for _, detail := range detailsOf(err) {
		if packed, packErr := connect.NewErrorDetail(detail); packErr == nil { // A message that was built here always packs.
			made.AddDetail(packed)
		}
	}
	return made
}

// plain is what an error says, without what Connect puts before the words of its own.
func plain(err error) string {
	text := err.Error()
	var inner *connect.Error
	if errors.As(err, &inner) {
		text = strings.Replace(text, inner.Error(), inner.Message(), 1)
	}
	return text
}

// detailsOf are the parts of an error that programs read.
func detailsOf(err error) []proto.Message {
	var details []proto.Message
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		details = append(details, &pb.Refusals{Refusals: refusalMessages(refused.Refusals)})
	}
	if partly := (*PartlyDoneError)(nil); errors.As(err, &partly) {
		details = append(details, &pb.PartlyDone{Done: partly.Done, Missing: partly.Missing, Finish: partly.Finish})
	}
	return details
}

// codeOf is the code of an error, whoever made it.
func codeOf(err error) connect.Code {
	for _, own := range []struct {
		is   bool
		code connect.Code
	}{
		{is[*UnopenedError](err), connect.CodeFailedPrecondition}, // Whatever the cluster answered is no answer to this call.
		{is[*NotFoundError](err), connect.CodeNotFound},
		{is[*InvalidError](err), connect.CodeInvalidArgument},
		{is[*RefusedError](err), connect.CodeFailedPrecondition},
		{is[*StateError](err), connect.CodeFailedPrecondition},
		{is[*ExistsError](err), connect.CodeAlreadyExists},
		{is[*ChangedError](err), connect.CodeAborted},
		{is[*connect.Error](err), connect.CodeOf(err)},
		{errors.Is(err, credentials.ErrInvalid), connect.CodeInvalidArgument},
		{errors.Is(err, context.Canceled), connect.CodeCanceled},
		{errors.Is(err, context.DeadlineExceeded), connect.CodeDeadlineExceeded},
	} {
		if own.is {
			return own.code
		}
	}
	return kubernetesCode(err)
}

func is[T error](err error) bool {
	var target T
	return errors.As(err, &target)
}

// kubernetesCode is the code of what the management API answered, or of why it did not.
func kubernetesCode(err error) connect.Code {
	for _, row := range []struct {
		is   func(error) bool
		code connect.Code
	}{
		{apierrors.IsForbidden, connect.CodePermissionDenied},
		{apierrors.IsUnauthorized, connect.CodeUnauthenticated},
		{apierrors.IsNotFound, connect.CodeNotFound},
		{apierrors.IsAlreadyExists, connect.CodeAlreadyExists},
		{apierrors.IsConflict, connect.CodeAborted},
		{apierrors.IsInvalid, connect.CodeInvalidArgument},
		{apierrors.IsBadRequest, connect.CodeInvalidArgument},
		{apierrors.IsRequestEntityTooLargeError, connect.CodeInvalidArgument},
		{apierrors.IsTimeout, connect.CodeDeadlineExceeded},
		{apierrors.IsServerTimeout, connect.CodeUnavailable},
		{apierrors.IsServiceUnavailable, connect.CodeUnavailable},
		{apierrors.IsTooManyRequests, connect.CodeUnavailable},
		{unanswered, connect.CodeUnavailable},
	} {
		if row.is(err) {
			return row.code
		}
	}
	return connect.CodeInternal
}

// unanswered says whether a request did not get through, or its answer did not.
func unanswered(err error) bool {
	var network net.Error
	return errors.As(err, &network) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err)
}
