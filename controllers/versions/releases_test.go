// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/compatibility/talos113"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/gendata"
)

// Cases C15 and F15: the table says of each pair what machines say of it.
func TestTalosRowsAgreeWithMachinery(t *testing.T) {
	for talosMinor := 11; talosMinor <= 14; talosMinor++ {
		for kubernetesMinor := 28; kubernetesMinor <= 38; kubernetesMinor++ {
			for _, patch := range []int{0, 1, 30} {
				g := NewWithT(t)
				talos, kubernetes := fmt.Sprintf("v1.%d.2", talosMinor), fmt.Sprintf("v1.%d.%d", kubernetesMinor, patch)
				host, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: talos})
				g.Expect(err).NotTo(HaveOccurred())
				version, err := compatibility.ParseKubernetesVersion(kubernetes[1:])
				g.Expect(err).NotTo(HaveOccurred())

				objection, err := KubernetesOn(talos, kubernetes)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(objection == nil).To(Equal(version.SupportedWith(host) == nil), "Talos %s, Kubernetes %s: %v", talos, kubernetes, objection)
			}
		}
	}
}

// The machinery that is linked knows a newest Talos: a row that it has and the table has not would be missed otherwise.
func TestTableEndsWhereMachineryDoes(t *testing.T) {
	g := NewWithT(t)
	newest := releases.Talos[len(releases.Talos)-1]
	g.Expect(newest.Minor).To(Equal(minorOf(mustParse(t, gendata.VersionTag))), "add a row to releases.yaml")
	g.Expect(newest.Kubernetes.To).To(Equal(minorOf(mustParse(t, constants.DefaultKubernetesVersion))))
	g.Expect("v" + newest.Etcd).To(Equal(minorOf(mustParse(t, constants.DefaultEtcdVersion)).String()))
	g.Expect(MinimumTalos.EQ(talos113.MinimumHostUpgradeVersion)).To(BeTrue(), "the first Talos with the new API can be reached from it: %s", MinimumTalos)
}

func TestTableIsInOrder(t *testing.T) {
	for _, product := range []Product{Talos, Cilium} {
		for i, r := range product.rows() {
			g := NewWithT(t)
			if i > 0 {
				before := product.rows()[i-1]
				g.Expect(r.Minor).To(Equal(before.Minor.next()), "no gap: %s", product)
				g.Expect(r.Kubernetes.From.compare(before.Kubernetes.From)).To(BeNumerically(">=", 0))
				g.Expect(r.Kubernetes.To.compare(before.Kubernetes.To)).To(BeNumerically(">=", 0))
			}
			g.Expect(r.Kubernetes.has(r.Kubernetes.From) && r.Kubernetes.has(r.Kubernetes.To)).To(BeTrue(), "%s %s", product, r.Minor)
			if product == Cilium {
				g.Expect(r.Source).To(HavePrefix(fmt.Sprintf("https://github.com/cilium/cilium/blob/%s.", r.Minor)), "each row says where it is from")
			}
		}
	}
}

func TestTableThatIsNone(t *testing.T) {
	for name, data := range map[string]string{
		"a field that nobody reads": `talos: [{minor: "1.14", kubernets: {from: "1.32", to: "1.37"}}]`,
		"a patch level":             `talos: [{minor: "1.14.1"}]`,
		"no list":                   `talos: {minor: "1.14"}`,
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(func() { mustLoad([]byte(data)) }).To(PanicWith(ContainSubstring("the table of release sets")))
		})
	}
}
