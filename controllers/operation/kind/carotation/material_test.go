// SPDX-License-Identifier: Apache-2.0

package carotation

import (
	"crypto/x509/pkix"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	rotationplan "ichor.maesh.dev/hub/controllers/operation/kind/carotation/plan"
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
	g.Expect(credentials.SignedBy(m.OldProof.Certificate, m.Old.Certificate)).To(BeTrue())
	g.Expect(credentials.Subject(m.OldProof.Certificate)).To(HaveField("Organization", admin.Organization))
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
	g.Expect(m.handover(trustOld, now.AddDate(2, 0, 0)).Client.Empty()).To(BeTrue())
}

// The client certificate of the credentials may be about to end when a rotation begins. What proves machines is not, and takes its place on a way
// back.
func TestMaterialOutlivesTheClient(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	old := must(credentials.NewAuthority(v1alpha1.TalosCA, now.AddDate(-1, 0, 0)))
	m := must(makeMaterial(v1alpha1.TalosCA, old, must(old.Client(admin, now.AddDate(-1, 0, 1))), now))
	later := now.AddDate(0, 0, 7)
	g.Expect(credentials.Ended(m.OldClient.Certificate, now)).To(BeFalse())
	g.Expect(credentials.Ended(m.OldClient.Certificate, later)).To(BeTrue())
	g.Expect(credentials.Ended(m.OldProof.Certificate, later)).To(BeFalse())
	g.Expect(proofOf(rotationplan.Drop, m).not.Client).To(Equal(m.OldProof))
	for _, trust := range []string{trustBoth, trustOld} {
		g.Expect(m.handover(trust, now).Client).To(Equal(m.OldClient))
		g.Expect(m.handover(trust, later).Client).To(Equal(m.OldProof))
	}
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
