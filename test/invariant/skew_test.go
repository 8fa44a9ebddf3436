// SPDX-License-Identifier: Apache-2.0

package invariant_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/invariant"
)

func TestSkew(t *testing.T) {
	skew := invariant.Skew{Cluster: "c", ControlPlanes: []string{"cp-1", "cp-2"}, Workers: []string{"w"}, From: "v1.35.2"}
	for name, tt := range map[string]struct {
		story   []string // Node, component and version.
		problem string
	}{
		"servers first": {story: []string{
			"cp-1 kube-apiserver v1.36.2", "cp-2 kube-apiserver v1.36.2", "cp-1 kube-controller-manager v1.36.2",
			"cp-2 kube-scheduler v1.36.2", "w kubelet v1.36.2", "w kube-proxy v1.36.2",
		}},
		"a patch level in any order": {story: []string{"w kubelet v1.35.9", "cp-1 kube-scheduler v1.35.9"}},
		"servers two minors apart": {
			story:   []string{"cp-1 kube-apiserver v1.37.0"},
			problem: "API servers of the minors 35 and 37 serve side by side",
		},
		"a controller manager beside an old server": {
			story:   []string{"cp-1 kube-apiserver v1.36.2", "cp-1 kube-controller-manager v1.36.2"},
			problem: "kube-controller-manager on cp-1 is v1.36.2 and newer than an API server of the minor 35",
		},
		"a kubelet too early": {
			story:   []string{"cp-1 kube-apiserver v1.36.2", "w kubelet v1.36.2"},
			problem: "kubelet on w is v1.36.2 and newer than an API server of the minor 35",
		},
		"a proxy too early": {
			story:   []string{"w kube-proxy v1.36.2"},
			problem: "kube-proxy on w is v1.36.2 and newer than an API server of the minor 35",
		},
		"kubelets left behind": {
			story: []string{
				"cp-1 kube-apiserver v1.36.0", "cp-2 kube-apiserver v1.36.0", "cp-1 kube-apiserver v1.37.0", "cp-2 kube-apiserver v1.37.0",
				"cp-1 kube-controller-manager v1.37.0", "cp-2 kube-controller-manager v1.37.0", "cp-1 kube-scheduler v1.37.0", "cp-2 kube-scheduler v1.37.0",
				"cp-1 kube-apiserver v1.38.0", "cp-2 kube-apiserver v1.38.0", "cp-1 kube-apiserver v1.39.0",
			},
			problem: "kubelet on w is v1.35.2 and too old for an API server of the minor 39",
		},
		"a server taken back": {
			story:   []string{"cp-1 kube-apiserver v1.36.2", "cp-2 kube-apiserver v1.36.2", "w kubelet v1.36.2", "cp-2 kube-apiserver v1.35.2"},
			problem: "kubelet on w is v1.36.2 and newer than an API server of the minor 35",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			j := newStory(t)
			for _, line := range tt.story {
				node, what, _ := strings.Cut(line, " ")
				j.Event("c", node, "component", what)
			}
			if tt.problem == "" {
				g.Expect(skew.Violations(j.Journal)).To(BeEmpty())
				return
			}
			g.Expect(skew.Violations(j.Journal)).To(ContainElement(HaveSuffix(tt.problem)))
		})
	}
}

func TestSkewTellsVersions(t *testing.T) {
	g := NewWithT(t)
	j := newStory(t)
	skew := invariant.Skew{Cluster: "c", ControlPlanes: []string{"cp-1"}, Workers: []string{"w"}, From: "v1.35.2"}
	j.Event("c", "cp-1", "component", "kube-apiserver v1.36.2")
	j.Event("c", "w", "component", "kubelet v1.36.2")
	g.Expect(skew.Changes(j.Journal)).To(HaveExactElements(
		HaveField("Component", invariant.Component{Name: "kube-apiserver", Node: "cp-1"}),
		HaveField("Component", invariant.Component{Name: "kubelet", Node: "w"}),
	))
	g.Expect(skew.Versions(j.Journal)).To(And(
		HaveLen(7),
		HaveKeyWithValue(invariant.Component{Name: "kube-apiserver", Node: "cp-1"}, "v1.36.2"),
		HaveKeyWithValue(invariant.Component{Name: "kube-proxy", Node: "w"}, "v1.35.2"),
	))
}
