// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/controllers/operation/kind/kubernetes/machineimage"
	"ichor.maesh.dev/hub/providers/kube"
)

func TestRemovedArguments(t *testing.T) {
	for name, row := range map[string]struct {
		component machineimage.Component
		args      []string
		from, to  string
		want      string
	}{
		"nothing":            {machineimage.APIServer, []string{"kube-apiserver", "--v=2"}, was, is, ""},
		"a gate":             {machineimage.APIServer, []string{"--feature-gates=A=true,HonorPVReclaimPolicy=true"}, was, is, "kube-apiserver has feature gate HonorPVReclaimPolicy, which v1.36 does not know any more"},
		"a gate of later":    {machineimage.APIServer, []string{"--feature-gates=GangScheduling=true"}, was, is, ""},
		"a gate of before":   {machineimage.APIServer, []string{"--feature-gates=KMSv2=true"}, was, is, ""},
		"a flag":             {machineimage.Kubelet, []string{"--pod-infra-container-image=x"}, "v1.34.1", "v1.35.2", "kubelet has flag pod-infra-container-image, which v1.35 does not know any more"},
		"a flag of another":  {machineimage.APIServer, []string{"--pod-infra-container-image=x"}, "v1.34.1", "v1.35.2", ""},
		"far behind":         {machineimage.Kubelet, []string{"--cloud-config=x"}, "v1.33.1", "v1.36.1", "kubelet has flag cloud-config, which v1.34 does not know any more"},
		"another patch":      {machineimage.APIServer, []string{"--feature-gates=HonorPVReclaimPolicy=true"}, "v1.36.0", "v1.36.1", ""},
		"part of a word":     {machineimage.APIServer, []string{"--feature-gates=HonorPVReclaimPolicyX=true"}, was, is, ""},
		"a flag without one": {machineimage.Kubelet, []string{"--enable-load-reader"}, "v1.36.1", "v1.37.0", "kubelet has flag enable-load-reader, which v1.37 does not know any more"},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(objects(row.component, row.args, row.from, row.to)).To(Equal(row.want))
		})
	}
}

func TestRemovedBy(t *testing.T) {
	g := NewWithT(t)
	g.Expect(removedBy("1.36", is)).To(BeTrue())
	g.Expect(removedBy("1.35", is)).To(BeTrue())
	g.Expect(removedBy("1.37", is)).To(BeFalse())
	g.Expect(removedBy("", is)).To(BeFalse())
	g.Expect(removedBy("soon", is)).To(BeFalse())
}

func TestSummary(t *testing.T) {
	g := NewWithT(t)
	g.Expect(summary(nil)).To(Equal("manifests: 0 unchanged"))
	g.Expect(summary([]kube.ManifestChange{
		{Object: "DaemonSet a/b", Action: kube.ManifestConfigured}, {Object: "ConfigMap a/c", Action: kube.ManifestConfigured},
		{Object: "ConfigMap a/d", Action: kube.ManifestPruned}, {Object: "ConfigMap a/e", Action: kube.ManifestCreated}, {Object: "ConfigMap a/f", Action: kube.ManifestUnchanged},
	})).To(Equal("manifests: 1 created (ConfigMap a/e), 2 changed (DaemonSet a/b, …), 1 deleted (ConfigMap a/d), 1 unchanged"))
}
