// SPDX-License-Identifier: Apache-2.0

package carotation

import (
	"crypto/x509/pkix"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/credentials"
)

// admin is whom the credentials of a cluster name.
var admin = pkix.Name{CommonName: "admin", Organization: []string{"os:admin"}}

// What is kept comes back as it was, and the successor of a client certificate is for the same user.
func TestMaterialIsKept(t *testing.T) {
	g := NewWithT(t)
	m := aRotation()
	data := map[string][]byte{}
	m.store(v1alpha1.TalosCA, data)
	g.Expect(data).To(HaveLen(10))
	g.Expect(data).To(HaveKey("talos-new.key"))
	g.Expect(materialOf(v1alpha1.TalosCA, data)).To(Equal(m))
	_, err := materialOf(v1alpha1.KubernetesCA, data)
	g.Expect(err).To(MatchError("it lacks a certificate of authority Kubernetes"))

	g.Expect(credentials.SignedBy(m.NewClient.Certificate, m.New.Certificate)).To(BeTrue())
	g.Expect(credentials.SignedBy(m.NewClient.Certificate, m.Old.Certificate)).To(BeFalse())
	subject, err := credentials.Subject(m.NewClient.Certificate)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(subject.Organization).To(Equal(admin.Organization))
	g.Expect(m.OldProof).To(Equal(m.OldClient))
}

// Credentials with a token keep it. What proves API servers then is a certificate that is nobody's credential.
func TestMaterialOfATokenHasProofsAlone(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	old := must(credentials.NewAuthority(v1alpha1.KubernetesCA, now))
	m, err := makeMaterial(v1alpha1.KubernetesCA, old, credentials.KeyPair{}, now)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.OldClient.Empty()).To(BeTrue())
	g.Expect(credentials.SignedBy(m.OldProof.Certificate, old.Certificate)).To(BeTrue())
	for _, proof := range []credentials.KeyPair{m.OldProof, m.NewClient} {
		subject, err := credentials.Subject(proof.Certificate)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(subject.CommonName).To(Equal("ichor-hub"))
		g.Expect(subject.Organization).To(BeEmpty(), "it is told a version, and no more")
	}
	g.Expect(m.handover(trustOld).Client.Empty()).To(BeTrue())
}

// A client certificate of some other authority is none of the rotation's.
func TestMaterialLeavesForeignClients(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	old := must(credentials.NewAuthority(v1alpha1.KubernetesCA, now))
	foreign := must(another().Client(admin, now))
	m, err := makeMaterial(v1alpha1.KubernetesCA, old, foreign, now)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.OldClient.Empty()).To(BeTrue())
}
