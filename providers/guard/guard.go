// SPDX-License-Identifier: Apache-2.0

// Package guard is the fence before every call that changes a target.
//
// The clients of the adapters refuse a changing call whose context carries no guard, and ask the guard right before the call
// leaves this process. A hub that lost its lock or its leadership thus stops at the next call, whatever it was doing.
package guard

import (
	"context"
	"errors"
	"fmt"
)

// Func says whether the caller may still change the target: nil, or the reason why not. It may read the lock, uncached.
type Func func(context.Context) error

// ErrNotAllowed is wrapped by every refusal of a guard.
var ErrNotAllowed = errors.New("the change was not made")

// ErrUndecided is wrapped by what a guard returns when it could not find out. The change is not made, and may be tried again.
var ErrUndecided = errors.New("whether the change is allowed is not known")

type contextKey struct{}

// With returns a context in which changing calls are allowed while f says so.
func With(ctx context.Context, f Func) context.Context {
	return context.WithValue(ctx, contextKey{}, f)
}

// Check asks the guard of ctx. A context without one is refused: reading needs no guard, and changing without one is a mistake.
func Check(ctx context.Context, call string) error {
	f, _ := ctx.Value(contextKey{}).(Func)
	if f == nil {
		return fmt.Errorf("%s: %w: no guard was given", call, ErrNotAllowed)
	}
	switch err := f(ctx); {
	case errors.Is(err, ErrUndecided):
		return fmt.Errorf("%s: %w", call, err)
	case err != nil:
		return fmt.Errorf("%s: %w: %w", call, ErrNotAllowed, err)
	}
	return nil
}
