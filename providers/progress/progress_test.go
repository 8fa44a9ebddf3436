// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
)

func TestReport(t *testing.T) {
	g := NewWithT(t)
	var outer, inner []string
	ctx := With(t.Context(), func(waitingFor string) { outer = append(outer, waitingFor) })
	Report(ctx, "a")
	derived, cancel := context.WithCancel(ctx)
	Report(derived, "b")
	cancel()
	Report(derived, "c")
	g.Expect(outer).To(Equal([]string{"a", "b", "c"}), "every report arrives, as it is made and in order")

	Report(With(ctx, func(waitingFor string) { inner = append(inner, waitingFor) }), "d")
	g.Expect(inner).To(Equal([]string{"d"}), "who asks last is told")
	g.Expect(outer).To(HaveLen(3))
}

func TestReportToNobody(t *testing.T) {
	NewWithT(t).Expect(func() { Report(t.Context(), "a") }).NotTo(Panic())
}
