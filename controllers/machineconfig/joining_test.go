// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

const installer = "factory.talos.dev/metal-installer/abc:v1.13.6"

// with is a config after a patch.
func with(t testing.TB, config []byte, patch string) []byte {
	t.Helper()
	in := input(config, v14, patch)
	made, err := Render(in)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// What is the model's own does not go along: its name, its addresses, its disks. What all machines of the role have does.
func TestJoinLeavesTheModelsOwn(t *testing.T) {
	for _, version := range []string{v12, v13, v14} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			plain := generated(t, version, machine.TypeWorker)
			labels := func(text string) string {
				if version == v14 {
					return "apiVersion: v1alpha1\nkind: KubeNodeConfig\nlabels: {" + text + "}"
				}
				return "machine: {nodeLabels: {" + text + "}}"
			}
			shared := with(t, with(t, plain, labels("pool: a")), "machine: {sysctls: {vm.swappiness: \"1\"}}")
			own := "machine: {certSANs: [10.0.0.7, lb.example]}"
			model := with(t, shared, own)
			model = with(t, model, labels("rack: r1"))
			if version != v12 {
				model = with(t, model, "apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\naddresses: [{address: 10.0.0.7/24}]")
			} else {
				model = with(t, model, "machine: {network: {interfaces: [{interface: eth0, addresses: [10.0.0.7/24]}]}}")
			}
			made, err := Join(Joining{
				Model: model, Siblings: [][]byte{shared}, Own: []string{"10.0.0.7", "w-1"}, Hostname: "w-2", Disk: "/dev/vdb", Image: installer,
				Patches: []v1alpha1.MachineConfigPatch{{Name: "a", Patch: "machine: {sysctls: {net.core.somaxconn: \"9\"}}"}},
			})
			g.Expect(err).NotTo(HaveOccurred())
			text := string(made.Whole)
			g.Expect(text).NotTo(ContainSubstring("10.0.0.7"))
			g.Expect(text).NotTo(ContainSubstring("rack"))
			g.Expect(text).To(And(ContainSubstring("pool: a"), ContainSubstring("lb.example"), ContainSubstring("swappiness"), ContainSubstring("somaxconn"),
				ContainSubstring(installer), ContainSubstring("/dev/vdb"), ContainSubstring("hostname: w-2")))
			g.Expect(string(made.Base)).NotTo(ContainSubstring("somaxconn"), "what a patch adds goes when the patch is taken away")
			g.Expect(Hash(made.Whole)).NotTo(Equal(Hash(model)))
		})
	}
}

// The same comes out of the same.
func TestJoinIsTheSameEachTime(t *testing.T) {
	g := NewWithT(t)
	in := Joining{Model: generated(t, v13, machine.TypeControlPlane), Hostname: "cp-4", Disk: "/dev/vda", Image: installer}
	first, err := Join(in)
	g.Expect(err).NotTo(HaveOccurred())
	second, err := Join(in)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(Hash(second.Whole)).To(Equal(Hash(first.Whole)))
}

// A machine that joins has the authorities and keys that its model has now, whatever pass of a rotation that is: what is accepted and what
// signs.
func TestJoinFollowsRotations(t *testing.T) {
	for _, version := range []string{v13, v14} {
		for _, role := range []machine.Type{machine.TypeControlPlane, machine.TypeWorker} {
			t.Run(version+" "+role.String(), func(t *testing.T) {
				g := NewWithT(t)
				model := generated(t, version, role)
				for _, authority := range []v1alpha1.CAAuthority{v1alpha1.TalosCA, v1alpha1.KubernetesCA} {
					have, err := ReadAuthorities(model, authority)
					g.Expect(err).NotTo(HaveOccurred())
					certificate, key := anAuthority(g)
					for _, pass := range []Authorities{have.Accepting(certificate), have.Accepting(certificate).IssuingBy(certificate, key)} {
						rotated, err := WithAuthorities(model, authority, pass)
						g.Expect(err).NotTo(HaveOccurred())
						made, err := Join(Joining{Model: rotated, Disk: "/dev/vda", Image: installer})
						g.Expect(err).NotTo(HaveOccurred())
						g.Expect(ReadAuthorities(made.Whole, authority)).To(Equal(pass))
					}
				}
			})
		}
	}
}

// The first worker of a cluster knows what a worker has to know, and none of the keys that only a control plane has.
func TestFirstWorker(t *testing.T) {
	for _, version := range []string{v12, v13, v14} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			controlPlane := generated(t, version, machine.TypeControlPlane)
			certificate, _ := anAuthority(g)
			have, err := ReadAuthorities(controlPlane, v1alpha1.TalosCA)
			g.Expect(err).NotTo(HaveOccurred())
			controlPlane, err = WithAuthorities(controlPlane, v1alpha1.TalosCA, have.Accepting(certificate))
			g.Expect(err).NotTo(HaveOccurred())
			model, err := FirstWorker(controlPlane, version)
			g.Expect(err).NotTo(HaveOccurred())
			made, err := Join(Joining{Model: model, Disk: "/dev/vda", Image: installer})
			g.Expect(err).NotTo(HaveOccurred())
			whole := made.Whole
			provider, err := Load(whole)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(provider.Machine().Type()).To(Equal(machine.TypeWorker))
			accepted, err := ReadAuthorities(whole, v1alpha1.TalosCA)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(accepted.Accepts(certificate)).To(BeTrue())
			g.Expect(accepted.Key).To(BeEmpty())
			b := bundle()
			for _, secret := range []string{string(b.Certs.Etcd.Key), b.Secrets.SecretboxEncryptionSecret, string(b.Certs.K8sServiceAccount.Key)} {
				g.Expect(strings.Contains(string(whole), secret)).To(BeFalse())
			}
			g.Expect(string(whole)).To(ContainSubstring("kubelet:v1.35.1"))
		})
	}
}
