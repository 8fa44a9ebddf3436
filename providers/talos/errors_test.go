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
		"undecided":           {fmt.Errorf("x: %w: %w", guard.ErrUndecided, errors.New("y")), "Retryable", false, "x: whether the change is allowed is not known: y"},
		"undecided, cut off":  {fmt.Errorf("x: %w: %w", guard.ErrUndecided, context.Canceled), "Retryable", false, "x: whether the change is allowed is not known: context canceled"},
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

// The same fault of a certificate has the same words, whatever times and names the library puts there.
func TestTroubleOfCertificates(t *testing.T) {
	handshake := "connection error: desc = \"transport: authentication handshake failed: "
	for name, row := range map[string]struct {
		err      error
		want     string
		rejected bool
	}{
		"expired":               {status.Error(codes.Unavailable, handshake+"tls: failed to verify certificate: x509: certificate has expired or is not yet valid\""), "the certificate of the server has expired or is not yet valid", false},
		"of another authority":  {status.Error(codes.Unavailable, handshake+"tls: failed to verify certificate: x509: certificate signed by unknown authority\""), "the certificate of the server is not signed by the CA of the file", true},
		"the machine refuses":   {status.Error(codes.Unavailable, handshake+"remote error: tls: bad certificate\""), "the server does not accept the client certificate", true},
		"expired, says machine": {status.Error(codes.Unavailable, handshake+"remote error: tls: expired certificate\""), "the server does not accept the client certificate: it has expired", true},
		"wrapped":               {fmt.Errorf("machine at 10.0.0.1: %w", status.Error(codes.Unavailable, "tls: bad certificate")), "the TLS certificate is not accepted, by the hub or by the server", false},
		"another handshake":     {status.Error(codes.Unavailable, handshake+"EOF\""), "no answer", false},
		"no answer of Talos":    {errors.New("talosconfig is invalid: crt: x509: malformed certificate"), "talosconfig is invalid: crt: x509: malformed certificate", false},
		"no token":              {status.Error(codes.Unauthenticated, "who?"), "Unauthenticated: who?", true},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Trouble(row.err)).To(Equal(row.want))
			NewWithT(t).Expect(Rejected(row.err)).To(Equal(row.rejected))
		})
	}
}

// Refused is only what the machine said for certain. What broke on the way, or on the machine, may have been done.
func TestRefused(t *testing.T) {
	for name, row := range map[string]struct {
		err  error
		want bool
	}{
		"invalid":         {status.Error(codes.InvalidArgument, "x"), true},
		"unimplemented":   {status.Error(codes.Unimplemented, "x"), true},
		"denied":          {status.Error(codes.PermissionDenied, "x"), true},
		"precondition":    {status.Error(codes.FailedPrecondition, "x"), true},
		"unauthenticated": {status.Error(codes.Unauthenticated, "x"), true},
		"wrapped":         {fmt.Errorf("rebooting: %w", status.Error(codes.PermissionDenied, "x")), true},
		"joined":          {errors.Join(errors.New("y"), status.Error(codes.PermissionDenied, "x")), true},
		"nothing":         {nil, false},
		"unavailable":     {status.Error(codes.Unavailable, "x"), false},
		"deadline":        {status.Error(codes.DeadlineExceeded, "x"), false},
		"cancelled":       {status.Error(codes.Canceled, "x"), false},
		"internal":        {status.Error(codes.Internal, "x"), false},
		"unknown":         {status.Error(codes.Unknown, "x"), false},
		"aborted":         {status.Error(codes.Aborted, "x"), false},
		"cut off":         {io.ErrUnexpectedEOF, false},
		"fenced":          {guard.ErrNotAllowed, false},
		"undecided":       {guard.ErrUndecided, false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Refused(row.err)).To(Equal(row.want))
		})
	}
}
