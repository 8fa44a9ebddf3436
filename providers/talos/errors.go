// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"
	"io"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/dial"
	"ichor.maesh.dev/hub/providers/guard"
)

const deniedCode = codes.PermissionDenied

// alreadyInProgress is how Talos words that the same work is under way; it has no code of its own for that.
const alreadyInProgress = "already in progress"

// Classify says what a failed call to the Talos API means for the step that made it.
func Classify(err error) v1alpha1.ErrorClass {
	switch {
	case errors.Is(err, guard.ErrNotAllowed):
		return v1alpha1.ErrorInterrupted
	case errors.Is(err, guard.ErrUndecided), errors.Is(err, io.ErrUnexpectedEOF):
		return v1alpha1.ErrorRetryable
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		return v1alpha1.ErrorRetryable
	}
	switch code := status.Code(err); code { //nolint:exhaustive // The rest is permanent.
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.ResourceExhausted:
		return v1alpha1.ErrorRetryable
	case codes.FailedPrecondition:
		if strings.Contains(err.Error(), alreadyInProgress) {
			return v1alpha1.ErrorInProgress
		}
	}
	return v1alpha1.ErrorPermanent
}

// Refused says whether the machine answered and certainly did not do what it was asked.
func Refused(err error) bool {
	switch status.Code(err) { //nolint:exhaustive // For the others nobody knows.
	case codes.InvalidArgument, codes.Unimplemented, codes.PermissionDenied, codes.FailedPrecondition, codes.Unauthenticated:
		return true
	}
	return false
}

// OutOfPlace says whether a machine refused a call for the state that it is in, as one does that was heard before.
func OutOfPlace(err error) bool { return status.Code(err) == codes.FailedPrecondition }

// IsStatus says whether an error is an answer of the Talos API, or of the way to it.
func IsStatus(err error) bool {
	_, ok := status.FromError(err)
	return ok
}

// Trouble says in the same words for the same fault why the Talos API tells nothing.
func Trouble(err error) string {
	words, _ := explain(err)
	return words
}

// Rejected says whether the machine answered and does not accept the credentials, or is not one that they trust. Other credentials would
// help, and nothing is known of the machine.
func Rejected(err error) bool {
	if err == nil {
		return false
	}
	_, rejected := explain(err)
	return rejected
}

// noAnswer are the words for a machine that does not answer.
const noAnswer = "no answer"

// etcdWords begin what an etcd member itself says of its trouble.
const etcdWords = "etcdserver: "

func explain(err error) (words string, rejected bool) {
	s, ok := status.FromError(err)
	if !ok {
		return err.Error(), false
	}
	if words, rejected := dial.TLSTrouble(s.Message()); words != "" {
		return words, rejected
	}
	if i := strings.Index(s.Message(), etcdWords); i >= 0 {
		return s.Message()[i:], false // The machine answers, and its etcd member says what is wrong.
	}
	switch s.Code() { //nolint:exhaustive // The rest is told as it is.
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return noAnswer, false
	case codes.Unauthenticated:
		return s.Code().String() + ": " + s.Message(), true
	}
	return s.Code().String() + ": " + s.Message(), false
}
