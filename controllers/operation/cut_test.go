// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/gomega"
)

// What failed stands at the beginning of an error, and why at its end.
func TestShortenKeepsBothEnds(t *testing.T) {
	g := NewWithT(t)
	g.Expect(shorten("short")).To(Equal("short"))
	long := "Pulling failed: pulling " + strings.Repeat("very-long/", 40) + "image: 503 Service Unavailable"
	g.Expect(shorten(long)).To(And(HaveLen(messageLimit), HavePrefix("Pulling failed: "), HaveSuffix("image: 503 Service Unavailable"), ContainSubstring("…")))
	for width := range 5 {
		text := strings.Repeat("x", width) + strings.Repeat("日本語", 60)
		cut := shorten(text)
		g.Expect(utf8.ValidString(cut)).To(BeTrue())
		g.Expect(len(cut)).To(And(BeNumerically("<=", messageLimit), BeNumerically(">", messageLimit-8)))
	}
	g.Expect(explain(long, "do this: ichor operation resume up")).To(And(HaveLen(messageLimit), HaveSuffix("Unavailable; do this: ichor operation resume up")))
}
