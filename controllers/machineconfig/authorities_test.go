// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"bytes"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// anAuthority is another authority than that of the bundle.
func anAuthority(g *WithT) (certificate, key []byte) {
	made, err := secrets.NewKubernetesCA(time.Now(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	return made.CrtPEM, made.KeyPEM
}

// known are the authorities of a config as machinery reads them: the one that signs, and all that are accepted.
func known(g *WithT, data []byte, of v1alpha1.CAAuthority) (issuing *x509.PEMEncodedCertificateAndKey, accepted []string) {
	provider, err := configloader.NewFromBytes(data)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = provider.ValidateAsClient(metal{})
	g.Expect(err).NotTo(HaveOccurred())
	var list []*x509.PEMEncodedCertificate
	if of == v1alpha1.TalosCA {
		issuing, list = provider.Machine().Security().IssuingCA(), provider.Machine().Security().AcceptedCAs()
	} else {
		issuing, list = provider.K8sAPIServerCAConfig().IssuingCA(), provider.K8sAPIServerCAConfig().AcceptedCAs()
	}
	for _, certificate := range list {
		accepted = append(accepted, Fingerprint(certificate.Crt))
	}
	return issuing, accepted
}

// metal is the mode in which configs are validated.
type metal struct{}

func (metal) String() string        { return "metal" }
func (metal) RequiresInstall() bool { return false }
func (metal) InContainer() bool     { return false }

// In every form of a config, of control planes and of workers, an authority goes its whole way, and machinery reads what was meant.
func TestAuthoritiesGoTheirWay(t *testing.T) {
	for _, version := range []string{v12, v13, v14} {
		for _, role := range []machine.Type{machine.TypeControlPlane, machine.TypeWorker} {
			for _, of := range []v1alpha1.CAAuthority{v1alpha1.TalosCA, v1alpha1.KubernetesCA} {
				t.Run(version+"/"+role.String()+"/"+string(of), func(t *testing.T) { goTheWay(t, generated(t, version, role), of) })
			}
		}
	}
}

func goTheWay(t *testing.T, before []byte, of v1alpha1.CAAuthority) {
	g := NewWithT(t)
	certificate, key := anAuthority(g)
	have, err := ReadAuthorities(before, of)
	g.Expect(err).NotTo(HaveOccurred())
	old := map[v1alpha1.CAAuthority][]byte{v1alpha1.TalosCA: bundle().Certs.OS.Crt, v1alpha1.KubernetesCA: bundle().Certs.K8s.Crt}[of]
	g.Expect(have.Accepts(old)).To(BeTrue())
	g.Expect(have.Accepts(certificate)).To(BeFalse())
	signs := len(have.Key) > 0

	accepting := write(g, before, of, have.Accepting(certificate))
	issuing, accepted := known(g, accepting, of)
	g.Expect(accepted).To(ContainElement(Fingerprint(certificate)))
	if issuing != nil {
		g.Expect(Fingerprint(issuing.Crt)).To(Equal(Fingerprint(old)))
	}
	again, err := ReadAuthorities(accepting, of)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(write(g, accepting, of, again.Accepting(certificate))).To(Equal(accepting), "an authority that is there is not added again")

	swapped := write(g, accepting, of, again.IssuingBy(certificate, key))
	issuing, accepted = known(g, swapped, of)
	if issuing != nil {
		g.Expect(Fingerprint(issuing.Crt)).To(Equal(Fingerprint(certificate)))
		g.Expect(bytes.TrimSpace(issuing.Key)).To(Equal(map[bool][]byte{true: bytes.TrimSpace(key)}[signs]))
	}
	g.Expect(append(accepted, Fingerprint(certificate))).To(ContainElements(Fingerprint(certificate), Fingerprint(old)))

	last, err := ReadAuthorities(swapped, of)
	g.Expect(err).NotTo(HaveOccurred())
	dropped := write(g, swapped, of, last.Dropping(old))
	_, accepted = known(g, dropped, of)
	g.Expect(accepted).NotTo(ContainElement(Fingerprint(old)))
	end, err := ReadAuthorities(dropped, of)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(end.Accepts(certificate)).To(BeTrue())
	g.Expect(end.Accepts(old)).To(BeFalse())
	other := map[v1alpha1.CAAuthority]v1alpha1.CAAuthority{v1alpha1.TalosCA: v1alpha1.KubernetesCA, v1alpha1.KubernetesCA: v1alpha1.TalosCA}[of]
	was, err := ReadAuthorities(before, other)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ReadAuthorities(dropped, other)).To(Equal(was), "the other authority stays as it was")
}

func write(g *WithT, data []byte, of v1alpha1.CAAuthority, authorities Authorities) []byte {
	made, err := WithAuthorities(data, of, authorities)
	g.Expect(err).NotTo(HaveOccurred())
	return made
}

// Everything but the authorities stays, documents that this hub does not know byte for byte.
func TestAuthoritiesLeaveTheRest(t *testing.T) {
	g := NewWithT(t)
	strange := "---\napiVersion: v1alpha1\nkind: NobodyKnowsConfig\n# a comment\nvalue:   1\n"
	before := append(generated(t, v14, machine.TypeControlPlane), strange...)
	certificate, key := anAuthority(g)
	have, err := ReadAuthorities(before, v1alpha1.KubernetesCA)
	g.Expect(err).NotTo(HaveOccurred())
	after := write(g, before, v1alpha1.KubernetesCA, have.IssuingBy(certificate, key))
	g.Expect(string(after)).To(ContainSubstring("# a comment\nvalue:   1\n"))
	back := write(g, after, v1alpha1.KubernetesCA, have)
	g.Expect(Hash(back)).To(Equal(Hash(before)))
}

func TestAuthoritiesThatAreNotThere(t *testing.T) {
	for name, row := range map[string]struct{ config, want string }{
		"no config":       {"\tx: [", "the machine config: it is not YAML"},
		"none":            {"version: v1alpha1\nmachine:\n  type: worker\n", "the machine config: authority Talos: it names no certificate authority of that API"},
		"not base64":      {"version: v1alpha1\nmachine:\n  ca:\n    crt: hunter2-hunter2!\n", "the machine config: machine.ca.crt is not base64"},
		"a key, not that": {"version: v1alpha1\nmachine:\n  ca:\n    crt: aGk=\n    key: hunter2-hunter2!\n", "the machine config: machine.ca.key is not base64"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadAuthorities([]byte(row.config), v1alpha1.TalosCA)
			NewWithT(t).Expect(err).To(MatchError(row.want))
		})
	}
}

func TestAPIServerPort(t *testing.T) {
	for name, row := range map[string]struct {
		config string
		want   int
	}{
		"nothing said":   {"version: v1alpha1\n", 6443},
		"one document":   {"version: v1alpha1\ncluster:\n  controlPlane:\n    localAPIServerPort: 7443\n", 7443},
		"zero":           {"version: v1alpha1\ncluster:\n  controlPlane:\n    localAPIServerPort: 0\n", 6443},
		"its own":        {"version: v1alpha1\n---\napiVersion: v1alpha1\nkind: KubeAPIServerConfig\napiPort: 8443\n", 8443},
		"not as it says": {"version: v1alpha1\ncluster:\n  controlPlane:\n    endpoint: https://10.0.0.1:9443\n", 6443},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(APIServerPort([]byte(row.config))).To(Equal(row.want))
		})
	}
	_, err := APIServerPort([]byte("cluster:\n  controlPlane:\n    localAPIServerPort: many\n"))
	NewWithT(t).Expect(err).To(MatchError(`the machine config: cluster.controlPlane.localAPIServerPort is "many", and not a port from 1 to 65535`))
}

func TestLoadLeavesOutWhatItDoesNotKnow(t *testing.T) {
	g := NewWithT(t)
	loaded, err := Load(append(generated(t, v14, machine.TypeControlPlane), "---\napiVersion: v1alpha1\nkind: NobodyKnowsConfig\n"...))
	g.Expect(err).NotTo(HaveOccurred())
	made, err := secrets.NewBundleFromConfig(secrets.NewClock(), loaded)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(made.Certs.K8s.Key).To(Equal(bundle().Certs.K8s.Key))
}
