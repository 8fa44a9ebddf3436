// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"path"

	"connectrpc.com/connect"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/auth"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Interceptor writes down every call that has side effects: who asked for what, of which target, from where, and what came of it. It belongs
// inside of what authenticates, since it takes the caller from the context.
func Interceptor(recorder *Recorder) connect.Interceptor { return calls{recorder} }

type calls struct{ recorder *Recorder }

// WrapUnary implements connect.Interceptor.
func (c calls) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		caller, known := auth.From(ctx)
		if spec := request.Spec(); !known || spec.IsClient || spec.IdempotencyLevel == connect.IdempotencyNoSideEffects {
			return next(ctx, request)
		}
		about, _ := subjectOf(request.Any()) // What nobody has described has no namespace, and is in the log.
		if about.dry {
			return next(ctx, request)
		}
		about = about.resolve(ctx, c.recorder.Reader) // Before, since the call may delete it.
		response, err := next(ctx, request)
		result, message := outcome(err)
		if err == nil {
			about, message = about.answered(response.Any())
		}
		c.recorder.record(ctx, caller, path.Base(request.Spec().Procedure), about, result, message)
		return response, err
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (calls) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor: streams only read.
func (calls) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// outcome is what an error says about the call.
func outcome(err error) (v1alpha1.AuditResult, string) {
	if err == nil {
		return v1alpha1.AuditDone, ""
	}
	message := err.Error()
	var failed *connect.Error
	if errors.As(err, &failed) {
		message = failed.Message()
		if partlyDone(failed) {
			return v1alpha1.AuditFailed, message
		}
	}
	switch connect.CodeOf(err) {
	case connect.CodePermissionDenied, connect.CodeUnauthenticated:
		return v1alpha1.AuditDenied, message
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeAlreadyExists, connect.CodeFailedPrecondition,
		connect.CodeOutOfRange, connect.CodeUnimplemented:
		return v1alpha1.AuditRefused, message
	default:
		return v1alpha1.AuditFailed, message
	}
}

// partlyDone says whether a call wrote something before it failed.
func partlyDone(err *connect.Error) bool {
	for _, detail := range err.Details() {
		if detail.Type() == string((&pb.PartlyDone{}).ProtoReflect().Descriptor().FullName()) {
			return true
		}
	}
	return false
}
