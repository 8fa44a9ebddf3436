// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
)

func TestCheck(t *testing.T) {
	lost := errors.New("the lock is held by another")
	for name, row := range map[string]struct {
		ctx func(context.Context) context.Context
		err string
	}{
		"allowed": {func(ctx context.Context) context.Context {
			return With(ctx, func(context.Context) error { return nil })
		}, ""},
		"refused": {func(ctx context.Context) context.Context {
			return With(ctx, func(context.Context) error { return lost })
		}, "Reboot: the change was not made: the lock is held by another"},
		"no guard":       {func(ctx context.Context) context.Context { return ctx }, "Reboot: the change was not made: no guard was given"},
		"a guard of nil": {func(ctx context.Context) context.Context { return With(ctx, nil) }, "Reboot: the change was not made: no guard was given"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			err := Check(row.ctx(t.Context()), "Reboot")
			if row.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(row.err))
			g.Expect(err).To(MatchError(ErrNotAllowed))
			if name == "refused" {
				g.Expect(err).To(MatchError(lost))
			}
		})
	}
}

// A guard that could not find out has refused nothing: the call is not made, and its error is the guard's own.
func TestCheckPassesUndecidedThrough(t *testing.T) {
	silent := errors.New("no answer")
	for name, row := range map[string]struct {
		err     error
		message string
	}{
		"bare":    {ErrUndecided, "Reboot: whether the change is allowed is not known"},
		"wrapped": {fmt.Errorf("%w: reading the lock: %w", ErrUndecided, silent), "Reboot: whether the change is allowed is not known: reading the lock: no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			err := Check(With(t.Context(), func(context.Context) error { return row.err }), "Reboot")
			g.Expect(err).To(MatchError(row.message))
			g.Expect(err).To(MatchError(ErrUndecided))
			g.Expect(err).NotTo(MatchError(ErrNotAllowed))
			if name == "wrapped" {
				g.Expect(err).To(MatchError(silent))
			}
		})
	}
}

// The guard is asked each time, with the context of the call.
func TestCheckAsksEachTime(t *testing.T) {
	g := NewWithT(t)
	type key struct{}
	var asked []any
	ctx := With(context.WithValue(t.Context(), key{}, "call"), func(ctx context.Context) error {
		asked = append(asked, ctx.Value(key{}))
		return nil
	})
	g.Expect(Check(ctx, "a")).To(Succeed())
	g.Expect(Check(ctx, "b")).To(Succeed())
	g.Expect(asked).To(Equal([]any{"call", "call"}))
}
