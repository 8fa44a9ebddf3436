// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
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
