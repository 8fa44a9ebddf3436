// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
)

// forms are the configs of a control plane in both forms, on Talos that knows either.
func forms(t *testing.T) map[string][]byte {
	t.Helper()
	return map[string][]byte{"v1alpha1": generated(t, v13, machine.TypeControlPlane), "documents": generated(t, v14, machine.TypeControlPlane)}
}

// asTalosReadsIt is what machinery's own parser makes of the keys in a config, and it finds no fault with the whole.
func asTalosReadsIt(g Gomega, data []byte) (accepted []string, signs, issuer, encryption string) {
	provider, err := configloader.NewFromBytes(data)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = provider.ValidateAsClient(installed{})
	g.Expect(err).NotTo(HaveOccurred())
	account := provider.K8sServiceAccountConfig()
	for _, key := range account.AcceptedKeys() {
		accepted = append(accepted, string(key.Key))
	}
	return accepted, string(account.IssuingKey().Key), account.IssuerURL(), encryptionAsTalosReadsIt(g, data)
}

// encryptionAsTalosReadsIt is what it makes of the keys that encrypt, in documents; nothing where there is none.
func encryptionAsTalosReadsIt(g Gomega, data []byte) string {
	provider, err := configloader.NewFromBytes(data)
	g.Expect(err).NotTo(HaveOccurred())
	own := provider.K8sEtcdEncryptionConfig()
	if own == nil {
		return ""
	}
	text, err := json.Marshal(own.EtcdEncryptionConfig())
	g.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

func newKey(g Gomega) (private, public string) {
	key, err := x509.NewECDSAKey()
	g.Expect(err).NotTo(HaveOccurred())
	return string(key.KeyPEM), string(key.PublicKeyPEM)
}

// A config that moves into documents means what it meant: provider, name and secret, issuer and key.
func TestMigrationChangesNothingByEffect(t *testing.T) {
	g := NewWithT(t)
	before := forms(t)["v1alpha1"]
	acceptedBefore, signsBefore, issuerBefore, none := asTalosReadsIt(g, before)
	g.Expect(none).To(BeEmpty())

	account, err := ServiceAccountOf(before)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(account.Document).To(BeFalse())
	encryption, err := EncryptionOf(before)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(encryption.Document).To(BeFalse())
	g.Expect(encryption.Obstacle()).To(BeEmpty())

	after, err := WithServiceAccount(before, account)
	g.Expect(err).NotTo(HaveOccurred())
	after, err = WithEncryption(after, encryption)
	g.Expect(err).NotTo(HaveOccurred())

	accepted, signs, issuer, text := asTalosReadsIt(g, after)
	g.Expect(accepted).To(Equal(acceptedBefore))
	g.Expect(signs).To(Equal(signsBefore))
	g.Expect(issuer).To(Equal(issuerBefore))
	secret := bundle().Secrets.SecretboxEncryptionSecret
	g.Expect(text).To(Equal(`{"resources":[{"providers":[{"secretbox":{"keys":[{"name":"key2","secret":"`+secret+
		`"}]}},{"identity":{}}],"resources":["secrets"]}]}`), "as Talos makes of the field")
	for _, field := range []string{"serviceAccount:", "secretboxEncryptionSecret", "aescbcEncryptionSecret"} {
		g.Expect(string(after)).NotTo(ContainSubstring(field), "a field and its document exclude each other")
	}

	moved, err := ServiceAccountOf(after)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(moved.Document).To(BeTrue())
	g.Expect(WithServiceAccount(after, moved)).To(Equal(after), "what is in a document already stays, to the byte")
	again, err := EncryptionOf(after)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.Equal(encryption)).To(BeTrue())
	g.Expect(WithEncryption(after, again)).To(Equal(after))
}

// A legacy key of aescbc keeps its provider: what it has encrypted is read by that and by no other.
func TestMigrationKeepsAESCBC(t *testing.T) {
	g := NewWithT(t)
	secret := bundle().Secrets.SecretboxEncryptionSecret
	before := bytes.Replace(forms(t)["v1alpha1"], []byte("secretboxEncryptionSecret: "), []byte("aescbcEncryptionSecret: "), 1)
	encryption, err := EncryptionOf(before)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(encryption.Keys()).To(Equal([]EncryptionKey{{"aescbc", "key1", secret}}))
	after, err := WithEncryption(before, encryption)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(encryptionAsTalosReadsIt(g, after)).To(ContainSubstring(`[{"aescbc":{"keys":[{"name":"key1","secret":"` + secret + `"}]}},{"identity":{}}]`))
}

// Everything else of a config stays as it is, to the byte, documents that nobody knows among it.
func TestOtherDocumentsStay(t *testing.T) {
	g := NewWithT(t)
	const strange = "apiVersion: v1beta9\nkind: FromTheFuture # a comment\nx:   [1,2]\n"
	for name, config := range forms(t) {
		t.Run(name, func(*testing.T) {
			config := append(bytes.TrimSuffix(config, []byte("\n")), []byte("\n---\n"+strange)...)
			account, err := ServiceAccountOf(config)
			g.Expect(err).NotTo(HaveOccurred())
			_, public := newKey(g)
			account, err = account.Accepting(public)
			g.Expect(err).NotTo(HaveOccurred())
			after, err := WithServiceAccount(config, account)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(after)).To(ContainSubstring(strange))
			was, err := split(config)
			g.Expect(err).NotTo(HaveOccurred())
			is, err := split(after)
			g.Expect(err).NotTo(HaveOccurred())
			for _, d := range was {
				if now, there := withID(is, d.id()); d.kind != mainKind && d.kind != "KubeServiceAccountConfig" {
					g.Expect(there).To(BeTrue(), d.id())
					g.Expect(string(now.raw)).To(Equal(string(d.raw)), d.id())
				}
			}
		})
	}
}

// The passes of the key of service accounts, in both forms, as machinery reads them. Each of them made twice is made once.
func TestServiceAccountPasses(t *testing.T) {
	for name, config := range forms(t) {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			account, err := ServiceAccountOf(config)
			g.Expect(err).NotTo(HaveOccurred())
			oldPrivate := account.Issuer
			oldPublic, err := PublicKey(oldPrivate)
			g.Expect(err).NotTo(HaveOccurred())
			private, public := newKey(g)
			foreignPrivate, foreign := newKey(g)
			g.Expect(foreignPrivate).NotTo(BeEmpty())
			account, err = account.Accepting(foreign) // Of another cluster, on purpose.
			g.Expect(err).NotTo(HaveOccurred())
			config, err = WithServiceAccount(config, account)
			g.Expect(err).NotTo(HaveOccurred())
			for _, pass := range []struct {
				name     string
				make     func(ServiceAccount) (ServiceAccount, error)
				signs    string
				accepted []string
			}{
				{"accept", func(s ServiceAccount) (ServiceAccount, error) { return s.Accepting(public) }, oldPrivate, []string{oldPublic, foreign, public}},
				{"swap", func(s ServiceAccount) (ServiceAccount, error) { return s.Issuing(private) }, private, []string{public, foreign, oldPublic}},
				{"drop", func(s ServiceAccount) (ServiceAccount, error) { return s.Dropping(oldPublic) }, private, []string{public, foreign}},
			} {
				before := config
				for range 2 {
					account, err := ServiceAccountOf(config)
					g.Expect(err).NotTo(HaveOccurred())
					account, err = pass.make(account)
					g.Expect(err).NotTo(HaveOccurred())
					config, err = WithServiceAccount(config, account)
					g.Expect(err).NotTo(HaveOccurred())
					accepted, signs, issuer, _ := asTalosReadsIt(g, config)
					g.Expect(signs).To(Equal(pass.signs), pass.name)
					g.Expect(accepted).To(Equal(pass.accepted), pass.name)
					g.Expect(issuer).To(Equal("https://10.0.0.1:6443"))
				}
				g.Expect(Hash(config)).NotTo(Equal(Hash(before)), pass.name)
			}
		})
	}
}

// What is asked of an encryption: keys as provider/name, the one that writes first; blocks are divided by a bar.
func shape(e Encryption) string {
	var blocks []string
	for _, block := range e.blocks {
		var words []string
		for _, provider := range block.Providers {
			if keys := provider.keys(); len(keys) > 0 {
				for _, key := range keys {
					words = append(words, key.Provider+"/"+key.Name)
				}
				continue
			}
			words = append(words, provider.name())
		}
		blocks = append(blocks, strings.Join(words, " "))
	}
	return strings.Join(blocks, " | ")
}

func TestEncryptionPasses(t *testing.T) {
	const secretbox = `{"secretbox":{"keys":[{"name":"key2","secret":"b2xk"}]}}`
	const aescbc = `{"aescbc":{"keys":[{"name":"key1","secret":"b2xkZXI="}]}}`
	const identity = `{"identity":{}}`
	const kms = `{"kms":{"apiVersion":"v2","name":"vault","endpoint":"unix:///x"}}`
	key := EncryptionKey{"secretbox", "new", "bmV3"}
	for name, row := range map[string]struct {
		config                 string
		accepted, swapped, one string
		without                string
	}{
		"as Talos makes it": {
			`[{"resources":["secrets"],"providers":[` + secretbox + `,` + identity + `]}]`,
			"secretbox/key2 secretbox/new identity", "secretbox/new secretbox/key2 identity", "secretbox/new identity", "secretbox/key2 identity",
		},
		"of old": {
			`[{"resources":["secrets"],"providers":[` + aescbc + `,` + identity + `]}]`,
			"aescbc/key1 secretbox/new identity", "secretbox/new aescbc/key1 identity", "secretbox/new identity", "aescbc/key1 identity",
		},
		"two keys": {
			`[{"resources":["secrets"],"providers":[` + secretbox + `,` + aescbc + `]}]`,
			"secretbox/key2 secretbox/new aescbc/key1", "secretbox/new secretbox/key2 aescbc/key1", "secretbox/new", "secretbox/key2 aescbc/key1",
		},
		"two blocks, one of them not ours": {
			`[{"resources":["secrets"],"providers":[` + secretbox + `]},{"resources":["configmaps"],"providers":[` + kms + `,` + secretbox + `]},{"resources":["events"],"providers":[` + aescbc + `]}]`,
			"secretbox/key2 secretbox/new | kms secretbox/key2 | aescbc/key1 secretbox/new", "secretbox/new secretbox/key2 | kms secretbox/key2 | secretbox/new aescbc/key1",
			"secretbox/new | kms secretbox/key2 | secretbox/new", "secretbox/key2 | kms secretbox/key2 | aescbc/key1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before, err := ParseEncryption([]byte(`{"resources":` + row.config + `}`))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(before.Obstacle()).To(BeEmpty())
			first := shape(before)
			accepted := before.Accepting(key)
			g.Expect(shape(accepted)).To(Equal(row.accepted))
			g.Expect(accepted.Reads(key)).To(BeTrue())
			g.Expect(accepted.WritesWith(key)).To(BeFalse())
			g.Expect(accepted.Accepting(key).Equal(accepted)).To(BeTrue(), "twice is once")
			swapped := accepted.Writing(key)
			g.Expect(shape(swapped)).To(Equal(row.swapped))
			g.Expect(swapped.WritesWith(key)).To(BeTrue())
			g.Expect(swapped.Writing(key).Equal(swapped)).To(BeTrue(), "twice is once")
			g.Expect(shape(swapped.Accepting(key))).To(Equal(row.accepted), "the way back")
			one := swapped.Only(key)
			g.Expect(shape(one)).To(Equal(row.one))
			g.Expect(one.Only(key).Equal(one)).To(BeTrue(), "twice is once")
			g.Expect(one.Accepting(key).Equal(one)).To(BeTrue(), "there is no other to write with")
			g.Expect(shape(accepted.Without(key))).To(Equal(row.without), "the way back")
			g.Expect(accepted.Without(key).Equal(before)).To(BeTrue())
			g.Expect(shape(before)).To(Equal(first), "what it was made from stays")
		})
	}
}

func TestObstacles(t *testing.T) {
	for name, row := range map[string]struct{ config, obstacle string }{
		"kms":            {`[{"resources":["secrets"],"providers":[{"kms":{"name":"x"}}]}]`, `Secrets are encrypted by provider "kms" first`},
		"identity first": {`[{"resources":["secrets"],"providers":[{"identity":{}},{"secretbox":{"keys":[{"name":"a","secret":"eA=="}]}}]}]`, `by provider "identity" first`},
		"no Secrets":     {`[{"resources":["configmaps"],"providers":[{"secretbox":{"keys":[{"name":"a","secret":"eA=="}]}}]}]`, "does not encrypt Secrets"},
		"any kind": {
			`[{"resources":["secrets","*.apps"],"providers":[{"secretbox":{"keys":[{"name":"a","secret":"eA=="}]}}]}]`,
			`resources: "*.apps" names no kind`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e, err := ParseEncryption([]byte(`{"resources":` + row.config + `}`))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(e.Obstacle()).To(ContainSubstring(row.obstacle))
			g.Expect(len(e.Obstacle())).To(BeNumerically("<=", 256))
		})
	}
	for _, config := range []string{"", "[1", "resources: 7", "resources: []", `{"resources":[{"providers":[{"a":{},"b":{}}]}]}`} {
		_, err := ParseEncryption([]byte(config))
		NewWithT(t).Expect(err).To(HaveOccurred(), config)
	}
}

// The kinds that have to be written again are those whose key goes.
func TestResources(t *testing.T) {
	g := NewWithT(t)
	e, err := ParseEncryption([]byte(`
resources:
- resources: [secrets, deployments.apps]
  providers: [{secretbox: {keys: [{name: a, secret: eA==}]}}]
- resources: [configmaps]
  providers: [{identity: }]
- resources: [secrets, events]
  providers: [{aesgcm: {keys: [{name: b, secret: eQ==}]}}]
`))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(e.Resources()).To(Equal([]string{"secrets", "deployments.apps", "events"}))
}

// The mark makes of a config another one for the API server alone, and goes without a trace.
func TestRestartMark(t *testing.T) {
	for name, config := range forms(t) {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(RestartMark(config)).To(BeEmpty())
			g.Expect(WithRestartMark(config, "")).To(Equal(config))
			marked, err := WithRestartMark(config, "a-1")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(RestartMark(marked)).To(Equal("a-1"))
			provider, err := configloader.NewFromBytes(marked)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(provider.K8sAPIServerConfig().Env()).To(HaveKeyWithValue("ICHOR_RESTARTED_FOR", "a-1"))
			g.Expect(Hash(marked)).NotTo(Equal(Hash(config)))
			back, err := WithRestartMark(marked, "")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(Hash(back)).To(Equal(Hash(config)))
			port, err := APIServerPort(config)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(port).To(Equal(6443))
		})
	}
}

// IDs are those that API servers publish, whichever form a key came in; fingerprints are those of snapshots.
// Whoever is told of another issuer than the cluster verifies tokens with keys that somebody publishes there.
func TestForeignIssuer(t *testing.T) {
	g := NewWithT(t)
	for form, config := range forms(t) {
		issuer, err := ForeignIssuer(config)
		g.Expect(err).NotTo(HaveOccurred(), form)
		g.Expect(issuer).To(BeEmpty(), form)
	}
	config := string(generated(t, v14, machine.TypeControlPlane))
	elsewhere := strings.Replace(config, "issuerURL: https://10.0.0.1:6443", "issuerURL: https://bucket.example/prod", 1)
	g.Expect(elsewhere).NotTo(Equal(config))
	g.Expect(ForeignIssuer([]byte(elsewhere))).To(Equal("https://bucket.example/prod"))
	_, err := ForeignIssuer([]byte("machine: {type: controlplane}"))
	g.Expect(err).To(HaveOccurred())
}

func TestKeyIDs(t *testing.T) {
	g := NewWithT(t)
	private, public := newKey(g)
	derived, err := PublicKey(private)
	g.Expect(err).NotTo(HaveOccurred())
	a, err := KeyID(public)
	g.Expect(err).NotTo(HaveOccurred())
	b, err := KeyID(derived)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(a).To(Equal(b))
	g.Expect(a).To(HaveLen(43))
	_, err = KeyID("no key")
	g.Expect(err).To(HaveOccurred())
	_, err = PublicKey(public)
	g.Expect(err).To(MatchError(Not(ContainSubstring(public))))
	like, err := NewServiceAccountKey(private)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(like).To(ContainSubstring("BEGIN EC PRIVATE KEY"))
	g.Expect(like).NotTo(Equal(private))
	key, err := NewSecretboxKey()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(key.Name).To(Equal("key-" + key.Fingerprint()[:8]))
	g.Expect(key.Secret).To(HaveLen(44))
}

// No error tells a key.
func TestErrorsTellNoKey(t *testing.T) {
	g := NewWithT(t)
	config := forms(t)["documents"]
	account, err := ServiceAccountOf(config)
	g.Expect(err).NotTo(HaveOccurred())
	account.Issuer = "-----BEGIN EC PRIVATE KEY-----\nc2VjcmV0LXNlY3JldA==\n-----END EC PRIVATE KEY-----\n"
	_, err = WithServiceAccount(config, account)
	g.Expect(err).To(MatchError(Not(ContainSubstring("c2VjcmV0"))))
	g.Expect(leaked(err.Error())).To(BeEmpty())
}
