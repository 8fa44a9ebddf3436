// SPDX-License-Identifier: Apache-2.0

// Package progress lets a long call say what it waits for while it goes on, to whoever made it.
package progress

import "context"

type contextKey struct{}

// With returns a context in which calls report to f.
func With(ctx context.Context, f func(waitingFor string)) context.Context {
	return context.WithValue(ctx, contextKey{}, f)
}

// Report says what a call waits for. Without anybody who wants to know it does nothing.
func Report(ctx context.Context, waitingFor string) {
	if f, ok := ctx.Value(contextKey{}).(func(string)); ok {
		f(waitingFor)
	}
}
