// SPDX-License-Identifier: Apache-2.0

package component_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/sim/component"
)

func TestVersion(t *testing.T) {
	for image, version := range map[string]string{
		"registry.k8s.io/kube-apiserver:v1.36.2":             "v1.36.2",
		"ghcr.io/siderolabs/kubelet:v1.36.2-fat":             "v1.36.2",
		"ghcr.io/siderolabs/kubelet:v1.36.2-slim@sha256:abc": "v1.36.2",
		"mirror.example.org:5000/kubelet:v1.37.0-rc.1":       "v1.37.0-rc.1",
		"mirror.example.org:5000/kubelet":                    "",
		"mirror.example.org/kubelet@sha256:abc":              "",
	} {
		NewWithT(t).Expect(component.Version(image)).To(Equal(version), image)
	}
}

func TestDigestsAreFoundAgain(t *testing.T) {
	g := NewWithT(t)
	const kubelet = "ghcr.io/siderolabs/kubelet"
	tag, ok := component.TagOf(kubelet, component.Digest(kubelet+":v1.36.2-fat"))
	g.Expect(ok).To(BeTrue())
	g.Expect(tag).To(Equal("v1.36.2-fat"))
	_, ok = component.TagOf(kubelet, component.Digest("another/kubelet:v1.36.2"))
	g.Expect(ok).To(BeFalse(), "it is another repository's")
	part := component.Part{Image: kubelet + "@" + component.Digest(kubelet+":v1.35.4")}
	g.Expect(part.Resolved().Version).To(Equal("v1.35.4"))
}

// TestTrouble has flags and gates from before and after they were removed.
func TestTrouble(t *testing.T) {
	for name, tt := range map[string]struct {
		part    component.Part
		trouble string
	}{
		"a flag that is still there": {part: component.Part{Name: component.Kubelet, Version: "v1.34.9", Args: []string{"--pod-infra-container-image=x"}}},
		"a flag that is gone": {
			part:    component.Part{Name: component.Kubelet, Version: "v1.35.0", Args: []string{"--pod-infra-container-image=x"}},
			trouble: "unknown flag: --pod-infra-container-image",
		},
		"another part's flag": {part: component.Part{Name: component.Scheduler, Version: "v1.35.0", Args: []string{"--pod-infra-container-image=x"}}},
		"a gate that is gone, among others": {
			part:    component.Part{Name: component.APIServer, Version: "v1.36.2", Args: []string{"--feature-gates=A=true,HonorPVReclaimPolicy=false"}},
			trouble: `invalid argument for "--feature-gates" flag: unrecognized feature gate: HonorPVReclaimPolicy`,
		},
		"a release candidate": {
			part:    component.Part{Name: component.APIServer, Version: "v1.36.0-rc.1", Args: []string{"--feature-gates=HonorPVReclaimPolicy=true"}},
			trouble: `invalid argument for "--feature-gates" flag: unrecognized feature gate: HonorPVReclaimPolicy`,
		},
		"a gate that stays": {part: component.Part{Name: component.APIServer, Version: "v1.36.2", Args: []string{"--feature-gates=A=true"}}},
		"no version":        {part: component.Part{Name: component.Kubelet, Args: []string{"--pod-infra-container-image=x"}}},
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(tt.part.Trouble()).To(Equal(tt.trouble)) })
	}
}
