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
		status  bool
		trouble string
	}{
		"unavailable":         {status.Error(codes.Unavailable, "connection refused 127.0.0.1:50000"), "Retryable", true, "no answer"},
		"deadline":            {status.Error(codes.DeadlineExceeded, "after 5s"), "Retryable", true, "no answer"},
		"cancelled":           {status.Error(codes.Canceled, "x"), "Retryable", true, "no answer"},
		"aborted":             {status.Error(codes.Aborted, "x"), "Retryable", true, "Aborted: x"},
		"exhausted":           {status.Error(codes.ResourceExhausted, "x"), "Retryable", true, "ResourceExhausted: x"},
		"in progress":         {status.Error(codes.FailedPrecondition, "another upgrade is already in progress"), "InProgress", true, "FailedPrecondition: another upgrade is already in progress"},
		"precondition":        {status.Error(codes.FailedPrecondition, "not installed"), "Permanent", true, "FailedPrecondition: not installed"},
		"denied":              {status.Error(codes.PermissionDenied, "x"), "Permanent", true, "PermissionDenied: x"},
		"unauthenticated":     {status.Error(codes.Unauthenticated, "x"), "Permanent", true, "Unauthenticated: x"},
		"invalid":             {status.Error(codes.InvalidArgument, "x"), "Permanent", true, "InvalidArgument: x"},
		"unimplemented":       {status.Error(codes.Unimplemented, "x"), "Permanent", true, "Unimplemented: x"},
		"unknown":             {status.Error(codes.Unknown, "x"), "Permanent", true, "Unknown: x"},
		"internal":            {status.Error(codes.Internal, "x"), "Permanent", true, "Internal: x"},
		"not found":           {status.Error(codes.NotFound, "x"), "Permanent", true, "NotFound: x"},
		"cut off":             {fmt.Errorf("installing: %w", io.ErrUnexpectedEOF), "Retryable", false, "installing: unexpected EOF"},
		"own deadline":        {fmt.Errorf("x: %w", context.DeadlineExceeded), "Retryable", false, "x: context deadline exceeded"},
		"told to end":         {context.Canceled, "Retryable", false, "context canceled"},
		"fenced":              {fenced, "Interrupted", false, "x: the change was not made: lost"},
		"fenced while it ran": {errors.Join(fenced, status.Error(codes.PermissionDenied, "x")), "Interrupted", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(Classify(row.err)).To(Equal(row.class))
			g.Expect(IsStatus(row.err)).To(Equal(row.status))
			if row.trouble != "" {
				g.Expect(Trouble(row.err)).To(Equal(row.trouble))
			}
			wrapped := fmt.Errorf("machine at 10.0.0.1: %w", row.err)
			g.Expect(Classify(wrapped)).To(Equal(row.class), "wrapping changes nothing")
		})
	}
}

// The same fault has the same words, whatever the library appends to it.
func TestTroubleIsTheSameForTheSameFault(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Trouble(status.Error(codes.Unavailable, "dial tcp 10.0.0.1:50000: i/o timeout"))).To(Equal(Trouble(status.Error(codes.Unavailable, "EOF"))))
}
