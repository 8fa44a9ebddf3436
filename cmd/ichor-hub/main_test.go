// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"testing"

	. "github.com/onsi/gomega"
)

func TestServeRefusesFlagsThatDoNotFit(t *testing.T) {
	for _, test := range []struct {
		name  string
		args  []string
		error string
	}{
		{"standalone without directory", []string{"--standalone"}, "data-dir"},
		{"directory without standalone", []string{"--data-dir", "d"}, "standalone"},
		{"standalone with kubeconfig", []string{"--standalone", "--data-dir", "d", "--kubeconfig", "k"}, "kubeconfig"},
		{"kubeconfig that is not there", []string{"--kubeconfig", "/does/not/exist"}, "finding the management cluster"},
		{"lease shorter than its renewal", []string{"--leader-elect-lease-duration", "5s"}, "--leader-elect-lease-duration 5s: want more than --leader-elect-renew-deadline 10s"},
		{"renewal that leaves no second attempt", []string{"--leader-elect-renew-deadline", "2s"}, "--leader-elect-renew-deadline 2s: want more than 1.2 times"},
		{"no pause between attempts", []string{"--leader-elect-retry-period", "0s"}, "--leader-elect-retry-period 0s"},
		{"unknown level", []string{"--log-level", "loud"}, "--log-level"},
		{"unknown format", []string{"--log-format", "xml"}, "--log-format"},
		{"argument", []string{"now"}, "now"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := newCommand()
			cmd.SetArgs(append([]string{"serve"}, test.args...))
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			NewWithT(t).Expect(cmd.ExecuteContext(t.Context())).To(MatchError(ContainSubstring(test.error)))
		})
	}
}

func TestControlPlaneIsNotForPeople(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs([]string{"--help"})
	cmd.SetOut(&out)
	g.Expect(cmd.ExecuteContext(t.Context())).To(Succeed())
	g.Expect(out.String()).To(ContainSubstring("serve"))
	g.Expect(out.String()).NotTo(ContainSubstring("control-plane"))
}
