// SPDX-License-Identifier: Apache-2.0

package fault_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/sim/fault"
)

func TestFireCountsAndEnds(t *testing.T) {
	g := NewWithT(t)
	var r fault.Registry
	_, err := r.Add(fault.Fault{Name: fault.InstallerExit, Cluster: "c", Node: "n", Times: 2, Params: map[string]string{"code": "5"}})
	g.Expect(err).NotTo(HaveOccurred())
	here, elsewhere := fault.Site{Cluster: "c", Node: "n"}, fault.Site{Cluster: "c", Node: "m"}

	_, fired := r.Fire(fault.InstallerExit, elsewhere)
	g.Expect(fired).To(BeFalse())
	_, fired = r.Fire(fault.Fallback, here)
	g.Expect(fired).To(BeFalse())
	f, fired := r.Fire(fault.InstallerExit, here)
	g.Expect(fired).To(BeTrue())
	g.Expect(f.Params).To(HaveKeyWithValue("code", "5"))
	g.Expect(r.List()).To(ConsistOf(HaveField("Fired", 1)))
	_, fired = r.Fire(fault.InstallerExit, here)
	g.Expect(fired).To(BeTrue())
	_, fired = r.Fire(fault.InstallerExit, here)
	g.Expect(fired).To(BeFalse(), "it was ordered twice")
}

func TestStandingFaults(t *testing.T) {
	g := NewWithT(t)
	var r fault.Registry
	changes := 0
	r.OnChange(func(string) { changes++ })
	id, err := r.Add(fault.Fault{Name: fault.Unreachable})
	g.Expect(err).NotTo(HaveOccurred())
	at := fault.Site{Cluster: "c", Node: "n"}
	g.Expect(r.Standing(fault.Unreachable, at)).To(HaveLen(1))
	g.Expect(r.Standing(fault.Unreachable, at)[0].Params).To(Equal(map[string]string{"api": "both", "mode": "refuse", "delay": "500ms"}), "defaults")
	g.Expect(r.Clear(id)).To(BeTrue())
	g.Expect(r.Clear(id)).To(BeFalse())
	g.Expect(r.Standing(fault.Unreachable, at)).To(BeEmpty())
	g.Expect(changes).To(Equal(2))
}

func TestOrdersThatMakeNoSense(t *testing.T) {
	for name, f := range map[string]fault.Fault{
		"unknown":              {Name: "meteorite"},
		"negative times":       {Name: fault.Fallback, Times: -1},
		"times while standing": {Name: fault.Unreachable, Times: 1},
		"unknown parameter":    {Name: fault.Fallback, Params: map[string]string{"code": "1"}},
		"unknown value":        {Name: fault.Unreachable, Params: map[string]string{"mode": "maybe"}},
	} {
		t.Run(name, func(t *testing.T) {
			var r fault.Registry
			_, err := r.Add(f)
			NewWithT(t).Expect(err).To(HaveOccurred())
		})
	}
}

func TestWaitGone(t *testing.T) {
	g := NewWithT(t)
	var r fault.Registry
	at := fault.Site{Cluster: "c", Node: "n"}
	g.Expect(r.WaitGone(t.Context(), fault.BootStuck, at)).To(Succeed(), "none is in force")
	first, err := r.Add(fault.Fault{Name: fault.BootStuck, Node: "n"})
	g.Expect(err).NotTo(HaveOccurred())
	second, err := r.Add(fault.Fault{Name: fault.BootStuck})
	g.Expect(err).NotTo(HaveOccurred())
	gone := make(chan error, 1)
	go func() { gone <- r.WaitGone(t.Context(), fault.BootStuck, at) }()
	r.Clear(first)
	g.Consistently(gone, "20ms").ShouldNot(Receive(), "the other one stands")
	r.Clear(second)
	g.Eventually(gone).Should(Receive(BeNil()))
}

func TestFireIf(t *testing.T) {
	g := NewWithT(t)
	var r fault.Registry
	for _, method := range []string{"GET", "POST"} {
		_, err := r.Add(fault.Fault{Name: fault.KubernetesRefused, Times: 1, Params: map[string]string{"method": method}})
		g.Expect(err).NotTo(HaveOccurred())
	}
	post := func(f fault.Fault) bool { return f.Params["method"] == "POST" }
	_, fired := r.FireIf(fault.KubernetesRefused, fault.Site{}, post)
	g.Expect(fired).To(BeTrue())
	_, fired = r.FireIf(fault.KubernetesRefused, fault.Site{}, post)
	g.Expect(fired).To(BeFalse(), "it was ordered once")
	g.Expect(r.List()).To(ConsistOf(HaveField("Params", HaveKeyWithValue("method", "GET"))))
}

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		pattern, text string
		matches       bool
	}{
		{"*", "", true},
		{"*/kubelet:*", "ghcr.io/siderolabs/kubelet:v1.36.2", true},
		{"*/kubelet:*", "registry.k8s.io/kube-apiserver:v1.36.2", false},
		{"v1.36.*", "v1.36.2", true},
		{"v1.36.*", "v1.37.0", false},
		{"a*b*c", "a-b-c", true},
		{"a*b*c", "a-c", false},
		{"ab*ba", "aba", false},
		{"plain", "plain", true},
		{"plain", "plainer", false},
		{"", "", true},
	} {
		NewWithT(t).Expect(fault.Matches(tt.pattern, tt.text)).To(Equal(tt.matches), "%s %s", tt.pattern, tt.text)
	}
}
