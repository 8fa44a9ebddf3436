// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/guard"
)

// Case B18 is among the rows: work that is under way is waited for.
func TestCaseB18ErrorsMean(t *testing.T) {
	fenced := fmt.Errorf("x: %w: lost", guard.ErrNotAllowed)
	for name, row := range map[string]struct {
		err     error
		class   v1alpha1.ErrorClass
		refused bool
		status  bool
		trouble string
	}{
		"unavailable":         {status.Error(codes.Unavailable, "connection refused 127.0.0.1:50000"), "Retryable", false, true, "no answer"},
		"deadline":            {status.Error(codes.DeadlineExceeded, "after 5s"), "Retryable", false, true, "no answer"},
		"cancelled":           {status.Error(codes.Canceled, "x"), "Retryable", false, true, "no answer"},
		"aborted":             {status.Error(codes.Aborted, "x"), "Retryable", false, true, "Aborted: x"},
		"exhausted":           {status.Error(codes.ResourceExhausted, "x"), "Retryable", false, true, "ResourceExhausted: x"},
		"in progress":         {status.Error(codes.FailedPrecondition, "another upgrade is already in progress"), "InProgress", true, true, "FailedPrecondition: another upgrade is already in progress"},
		"precondition":        {status.Error(codes.FailedPrecondition, "not installed"), "Permanent", true, true, "FailedPrecondition: not installed"},
		"denied":              {status.Error(codes.PermissionDenied, "x"), "Permanent", true, true, "PermissionDenied: x"},
		"unauthenticated":     {status.Error(codes.Unauthenticated, "x"), "Permanent", true, true, "Unauthenticated: x"},
		"invalid":             {status.Error(codes.InvalidArgument, "x"), "Permanent", true, true, "InvalidArgument: x"},
		"unimplemented":       {status.Error(codes.Unimplemented, "x"), "Permanent", true, true, "Unimplemented: x"},
		"unknown":             {status.Error(codes.Unknown, "x"), "Permanent", false, true, "Unknown: x"},
		"internal":            {status.Error(codes.Internal, "x"), "Permanent", false, true, "Internal: x"},
		"not found":           {status.Error(codes.NotFound, "x"), "Permanent", false, true, "NotFound: x"},
		"cut off":             {fmt.Errorf("installing: %w", io.ErrUnexpectedEOF), "Retryable", false, false, "installing: unexpected EOF"},
		"own deadline":        {fmt.Errorf("x: %w", context.DeadlineExceeded), "Retryable", false, false, "x: context deadline exceeded"},
		"told to end":         {context.Canceled, "Retryable", false, false, "context canceled"},
		"fenced":              {fenced, "Interrupted", true, false, "x: the change was not made: lost"},
		"fenced while it ran": {errors.Join(fenced, status.Error(codes.PermissionDenied, "x")), "Interrupted", true, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(Classify(row.err)).To(Equal(row.class))
			g.Expect(Refused(row.err)).To(Equal(row.refused))
			g.Expect(IsStatus(row.err)).To(Equal(row.status))
			if row.trouble != "" {
				g.Expect(Trouble(row.err)).To(Equal(row.trouble))
			}
			wrapped := fmt.Errorf("machine at 10.0.0.1: %w", row.err)
			g.Expect(Classify(wrapped)).To(Equal(row.class), "wrapping changes nothing")
			g.Expect(Refused(wrapped)).To(Equal(row.refused))
		})
	}
}

// The same fault has the same words, whatever the library appends to it.
func TestTroubleIsTheSameForTheSameFault(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Trouble(status.Error(codes.Unavailable, "dial tcp 10.0.0.1:50000: i/o timeout"))).To(Equal(Trouble(status.Error(codes.Unavailable, "EOF"))))
}
