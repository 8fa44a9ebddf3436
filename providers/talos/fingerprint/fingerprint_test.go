// SPDX-License-Identifier: Apache-2.0

package fingerprint_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/talos/fingerprint"
)

func sum(data []byte) string {
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:])
}

func decoded(t *testing.T, text string) []byte {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return data
}

// configOf is the machine config of a control plane that a version of Talos generates.
func configOf(t *testing.T, bundle *secrets.Bundle, contract *config.VersionContract) []byte {
	t.Helper()
	g := NewWithT(t)
	input, err := generate.NewInput("c", "https://10.0.0.1:6443", "1.36.3", generate.WithVersionContract(contract), generate.WithSecretsBundle(bundle))
	g.Expect(err).NotTo(HaveOccurred())
	made, err := input.Config(machine.TypeControlPlane)
	g.Expect(err).NotTo(HaveOccurred())
	data, err := made.Bytes()
	g.Expect(err).NotTo(HaveOccurred())
	return data
}

// The same keys have the same fingerprints, in whichever form a version of Talos writes them down.
func TestKeysOfBothForms(t *testing.T) {
	g := NewWithT(t)
	bundle, err := secrets.NewBundle(secrets.NewClock(), config.TalosVersion1_13, secrets.WithECDSAServiceAccountKey())
	g.Expect(err).NotTo(HaveOccurred())
	ca, _ := pem.Decode(bundle.Certs.K8s.Crt)
	pair, err := bundle.Certs.K8sServiceAccount.GetECDSAKey()
	g.Expect(err).NotTo(HaveOccurred())
	public, _ := pem.Decode(pair.PublicKeyPEM)
	_, err = x509.ParsePKIXPublicKey(public.Bytes)
	g.Expect(err).NotTo(HaveOccurred())
	want := v1alpha1.SnapshotKeys{
		KubernetesCA: sum(ca.Bytes), ServiceAccount: sum(public.Bytes),
		Encryption: []v1alpha1.SnapshotEncryptionKey{{Provider: "secretbox", Name: "key2", Fingerprint: sum(decoded(t, bundle.Secrets.SecretboxEncryptionSecret))}},
	}
	for _, contract := range []*config.VersionContract{config.TalosVersion1_12, config.TalosVersion1_13, config.TalosVersion1_14} {
		t.Run(contract.String(), func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(fingerprint.Keys(configOf(t, bundle, contract))).To(Equal(want))
		})
	}
}

const encryption = `apiVersion: v1alpha1
kind: KubeEtcdEncryptionConfig
config:
  resources:
    - resources: [secrets]
      providers:
        - secretbox: {keys: [{name: new, secret: bmV3}, {name: old, secret: b2xk}]}
        - kms: {name: k, endpoint: unix:///k}
        - identity: {}
    - resources: [configmaps]
      providers:
        - secretbox: {keys: [{name: new, secret: bmV3}]}
`

func TestEveryKeyThatMayHaveEncrypted(t *testing.T) {
	g := NewWithT(t)
	keys, err := fingerprint.Keys([]byte(encryption))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(keys.Encryption).To(HaveLen(3))
	g.Expect(keys.Encryption[:2]).To(Equal([]v1alpha1.SnapshotEncryptionKey{
		{Provider: "secretbox", Name: "new", Fingerprint: sum([]byte("new"))}, {Provider: "secretbox", Name: "old", Fingerprint: sum([]byte("old"))},
	}))
	g.Expect(keys.Encryption[2].Provider).To(Equal("kms"))
}

func TestAConfigThatCannotBeReadIsNotQuoted(t *testing.T) {
	g := NewWithT(t)
	_, err := fingerprint.Keys([]byte("secret: [very"))
	g.Expect(err).To(MatchError("the machine config cannot be read"))
	g.Expect(fmt.Sprint(err)).NotTo(ContainSubstring("very"))
}
