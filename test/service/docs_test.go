// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/framework"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/sim"
)

// block is a fenced block of a document.
var block = regexp.MustCompile("(?ms)^```(sh|json|text)\n(.*?)^```$") //nolint:gocritic // It is about lines.

// example is a command of a document, and what it prints; an ellipsis stands for anything.
type example struct{ command, prints string }

func examples(g *WithT, document string) []example {
	var list []example
	for _, found := range block.FindAllStringSubmatch(document, -1) {
		if found[1] == "sh" {
			list = append(list, example{command: found[2]})
			continue
		}
		g.Expect(list).NotTo(BeEmpty())
		g.Expect(list[len(list)-1].prints).To(BeEmpty(), "one block of output for each of commands")
		list[len(list)-1].prints = found[2]
	}
	return list
}

// pattern matches what a document shows. How JSON is spaced says nothing, and differs between builds.
func pattern(prints string) string {
	var parts []string
	for part := range strings.SplitSeq(squeezed(prints), "…") {
		parts = append(parts, regexp.QuoteMeta(strings.TrimSpace(part)))
	}
	return "(?s)^" + strings.Join(parts, ".*") + "$"
}

// squeezed leaves out what spaces JSON.
func squeezed(text string) string {
	return regexp.MustCompile(`([,:]) `).ReplaceAllString(strings.TrimSpace(strings.ReplaceAll(text, "\n", " ")), "$1")
}

// What the document shows is what happens.
func TestExamplesOfTheDocumentWork(t *testing.T) {
	g := NewWithT(t)
	if _, err := exec.LookPath("curl"); err != nil {
		g.Expect(os.Getenv(framework.RequireVariable)).NotTo(Equal("1"), "the examples need curl")
		t.Skipf("the examples need curl: %v", err)
	}
	document, err := os.ReadFile("../../docs/api.md")
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	h, err := harness.Start(ctx, harness.Options{Speed: 1, Clusters: []sim.ClusterSpec{{Name: "demo-1", ControlPlanes: 1}}})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(h.Stop()).To(Succeed()) })
	g.Expect(h.Import(ctx, "demo-1")).To(Succeed())
	link, err := h.Link()
	g.Expect(err).NotTo(HaveOccurred())
	_, code, _ := strings.Cut(link, "code=")

	const mark = "--- next ---"
	list := examples(g, string(document))
	g.Expect(len(list)).To(BeNumerically(">=", 8))
	var script strings.Builder
	for _, e := range list {
		script.WriteString(e.command + "printf '\\n" + mark + "\\n'\n")
	}
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.Env = append(os.Environ(), "HUB="+h.URL(), "CA="+h.Certificate(), "CODE="+code)
	out, err := cmd.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	printed := strings.Split(string(out), mark)
	for i, e := range list {
		if e.prints == "" {
			continue
		}
		g.Expect(squeezed(printed[i])).To(MatchRegexp(pattern(e.prints)), "of: %s", e.command)
	}
}
