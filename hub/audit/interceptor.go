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
		came := outcomeOf(err)
		if err == nil {
			about, came = about.answered(response.Any())
		}
		c.recorder.record(ctx, caller, path.Base(request.Spec().Procedure), about, came)
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

// outcome is what came of a call.
type outcome struct {
	result  v1alpha1.AuditResult
	effect  v1alpha1.AuditEffect
	message string
}

// outcomeOf is what an error says about the call.
func outcomeOf(err error) outcome {
	if err == nil {
		return outcome{result: v1alpha1.AuditDone, effect: v1alpha1.AuditChanged}
	}
	message := err.Error()
	var failed *connect.Error
	if errors.As(err, &failed) {
		message = failed.Message()
		if partlyDone(failed) {
			return outcome{v1alpha1.AuditFailed, v1alpha1.AuditChanged, message}
		}
	}
	return outcome{resultOf(connect.CodeOf(err)), v1alpha1.AuditUnchanged, message}
}

func resultOf(code connect.Code) v1alpha1.AuditResult {
	switch code {
	case connect.CodePermissionDenied, connect.CodeUnauthenticated:
		return v1alpha1.AuditDenied
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeAlreadyExists, connect.CodeFailedPrecondition,
		connect.CodeOutOfRange, connect.CodeUnimplemented:
		return v1alpha1.AuditRefused
	default:
		return v1alpha1.AuditFailed
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
