// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// The gauges follow the conditions, and go with the target.
func TestMeasure(t *testing.T) {
	g := NewWithT(t)
	facts, p := seen(t)
	expect := func(kubernetes, talos string) {
		t.Helper()
		summarize(facts, p, true, "")
		measure(facts.Cluster)
		g.Expect(testutil.CollectAndCompare(reachable, strings.NewReader(`
# HELP ichor_target_reachable Whether an API of a target answers: 1 or 0. The Talos API does if that of any machine does.
# TYPE ichor_target_reachable gauge
ichor_target_reachable{api="kubernetes",cluster="c1",namespace="default"} `+kubernetes+`
ichor_target_reachable{api="talos",cluster="c1",namespace="default"} `+talos+`
`))).To(Succeed())
	}
	expect("1", "1")
	silence(&p, "10.0.1.1")
	expect("1", "1")
	silence(&p, "10.0.0.1", "10.0.1.1")
	p.kubeTrouble = "no answer"
	expect("0", "0")
	unmeasure(c1)
	g.Expect(testutil.CollectAndCount(reachable)).To(BeZero())
}
