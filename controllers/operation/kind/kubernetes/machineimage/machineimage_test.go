// SPDX-License-Identifier: Apache-2.0

package machineimage_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"ichor.maesh.dev/hub/controllers/operation/kind/kubernetes/machineimage"
)

// images are where machinery finds what a config says of each component.
var images = map[machineimage.Component]func(config.Config) string{
	machineimage.APIServer:         func(c config.Config) string { return c.K8sAPIServerConfig().Image() },
	machineimage.ControllerManager: func(c config.Config) string { return c.K8sControllerManagerConfig().Image() },
	machineimage.Scheduler:         func(c config.Config) string { return c.K8sSchedulerConfig().Image() },
	machineimage.Proxy:             func(c config.Config) string { return c.K8sProxyConfig().Image() },
	machineimage.Kubelet:           func(c config.Config) string { return c.K8sKubeletConfig().Image() },
}

// generated is the config of a control plane as a version of Talos makes it.
func generated(g *WithT, contract *config.VersionContract) []byte {
	input, err := generate.NewInput("c1", "https://10.0.0.1:6443", "1.35.2", generate.WithVersionContract(contract))
	g.Expect(err).NotTo(HaveOccurred())
	made, err := input.Config(machine.TypeControlPlane)
	g.Expect(err).NotTo(HaveOccurred())
	data, err := made.Bytes()
	g.Expect(err).NotTo(HaveOccurred())
	return data
}

// In both forms of a config exactly one image becomes another, and machinery reads all else as it was.
func TestSetChangesOneImageOnly(t *testing.T) {
	for form, contract := range map[string]*config.VersionContract{"one document": config.TalosVersion1_13, "a document each": config.TalosVersion1_14} {
		for component, read := range images {
			t.Run(form+"/"+string(component), func(t *testing.T) {
				g := NewWithT(t)
				before := generated(g, contract)
				was, err := machineimage.Read(before, component)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(was).To(Equal(machineimage.Setting{Image: read(load(g, before))}))
				g.Expect(was.Image).To(HaveSuffix(string(component) + ":v1.35.2"))

				wanted := strings.Replace(was.Image, "v1.35.2", "v1.36.1", 1)
				after, err := machineimage.Set(before, component, wanted)
				g.Expect(err).NotTo(HaveOccurred())
				for other, image := range images {
					if other == component {
						g.Expect(image(load(g, after))).To(Equal(wanted))
					} else {
						g.Expect(image(load(g, after))).To(Equal(image(load(g, before))))
					}
				}
				back, err := machineimage.Set(after, component, was.Image)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(load(g, back).RedactSecrets("x").Bytes()).To(Equal(must(g, load(g, before).RedactSecrets("x").Bytes)))
			})
		}
	}
}

func load(g *WithT, data []byte) config.Provider {
	loaded, err := configloader.NewFromBytes(data)
	g.Expect(err).NotTo(HaveOccurred())
	return loaded
}

func must(g *WithT, call func() ([]byte, error)) []byte {
	data, err := call()
	g.Expect(err).NotTo(HaveOccurred())
	return data
}

func TestRead(t *testing.T) {
	for name, row := range map[string]struct {
		config string
		of     machineimage.Component
		want   machineimage.Setting
	}{
		"nothing":                 {"version: v1alpha1\n", machineimage.APIServer, machineimage.Setting{}},
		"an empty one":            {"version: v1alpha1\ncluster:\n    apiServer: {}\n", machineimage.APIServer, machineimage.Setting{}},
		"no value":                {"cluster:\n    apiServer:\n", machineimage.APIServer, machineimage.Setting{}},
		"an image":                {"cluster:\n    apiServer:\n        image: r/a:v1\n", machineimage.APIServer, machineimage.Setting{Image: "r/a:v1"}},
		"a document wins":         {"cluster:\n    apiServer:\n        image: r/a:v1\n---\napiVersion: v1alpha1\nkind: KubeAPIServerConfig\nimage: r/a:v2\n", machineimage.APIServer, machineimage.Setting{Image: "r/a:v2"}},
		"a proxy off":             {"cluster:\n    proxy:\n        disabled: true\n", machineimage.Proxy, machineimage.Setting{Off: true}},
		"a proxy's document, off": {"apiVersion: v1alpha1\nkind: KubeProxyConfig\nenabled: false\n", machineimage.Proxy, machineimage.Setting{Off: true}},
		"a scheduler off":         {"machine:\n    controlPlane:\n        scheduler:\n            disabled: true\ncluster:\n    scheduler:\n        image: r/s:v1\n", machineimage.Scheduler, machineimage.Setting{Image: "r/s:v1", Off: true}},
		"no document at all":      {"", machineimage.Kubelet, machineimage.Setting{}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(machineimage.Read([]byte(row.config), row.of)).To(Equal(row.want))
		})
	}
}

// What the hub does not know stays, comments included, and what is missing is made.
func TestSetKeepsTheRest(t *testing.T) {
	for name, row := range map[string]struct{ before, after string }{
		"an unknown document": {
			"# mine\nversion: v1alpha1\ncluster:\n    apiServer:\n        image: r/a:v1 # pinned\n---\napiVersion: v9\nkind: NobodyKnows\nsome: [1, 2]\n",
			"# mine\nversion: v1alpha1\ncluster:\n    apiServer:\n        image: r/a:v2 # pinned\n---\napiVersion: v9\nkind: NobodyKnows\nsome: [1, 2]\n",
		},
		"none named":    {"version: v1alpha1\ncluster:\n    id: x\n", "version: v1alpha1\ncluster:\n    id: x\n    apiServer:\n        image: r/a:v2\n"},
		"an empty one":  {"version: v1alpha1\ncluster:\n    apiServer: {}\n", "version: v1alpha1\ncluster:\n    apiServer:\n        image: r/a:v2\n"},
		"without value": {"version: v1alpha1\ncluster:\n    apiServer:\n", "version: v1alpha1\ncluster:\n    apiServer:\n        image: r/a:v2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			after, err := machineimage.Set([]byte(row.before), machineimage.APIServer, "r/a:v2")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(after)).To(Equal(row.after))
		})
	}
	g := NewWithT(t)
	_, err := machineimage.Set([]byte("apiVersion: v1alpha1\nkind: KubeletConfig\n"), machineimage.APIServer, "r/a:v2")
	g.Expect(err).To(MatchError("the machine config has no document KubeAPIServerConfig, and none of kind v1alpha1 that could name the image of kube-apiserver"))
	_, err = machineimage.Set([]byte("a: [\n"), machineimage.APIServer, "r/a:v2")
	g.Expect(err).To(MatchError(ContainSubstring("reading the machine config: ")))
}
