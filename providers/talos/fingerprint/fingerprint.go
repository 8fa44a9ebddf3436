// SPDX-License-Identifier: Apache-2.0

// Package fingerprint tells the keys of a machine config from others, and tells nothing of them.
package fingerprint

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	crypto "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Keys are fingerprints of the keys in the machine config of a control plane without which the data of its etcd is of no use.
func Keys(data []byte) (v1alpha1.SnapshotKeys, error) {
	c, err := configloader.NewFromBytes(data)
	if err != nil { // Its text may quote the config.
		return v1alpha1.SnapshotKeys{}, errors.New("the machine config cannot be read")
	}
	var keys v1alpha1.SnapshotKeys
	if ca := c.K8sAPIServerCAConfig(); ca != nil && ca.IssuingCA() != nil {
		if keys.KubernetesCA, err = certificate(ca.IssuingCA().Crt); err != nil {
			return keys, fmt.Errorf("the Kubernetes CA in the machine config: %w", err)
		}
	}
	if account := c.K8sServiceAccountConfig(); account != nil && account.IssuingKey() != nil {
		if keys.ServiceAccount, err = publicKey(account.IssuingKey()); err != nil {
			return keys, fmt.Errorf("the key of service accounts in the machine config: %w", err)
		}
	}
	keys.Encryption, err = encryption(c)
	return keys, err
}

func sum(data []byte) string {
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:])
}

func certificate(text []byte) (string, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return "", errors.New("no PEM")
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", errors.New("no certificate")
	}
	return sum(parsed.Raw), nil
}

// publicKey is the fingerprint of the public half of a key pair.
func publicKey(pair *crypto.PEMEncodedKey) (string, error) {
	key, err := pair.GetKey()
	if err != nil {
		return "", errors.New("no private key")
	}
	block, _ := pem.Decode(key.GetPublicKeyPEM())
	if block == nil {
		return "", errors.New("no public key")
	}
	return sum(block.Bytes), nil
}

// Names that Talos gives to the keys of a machine config which does not name them.
const (
	secretboxName = "key2"
	aescbcName    = "key1"
)

// encryption are the keys that encrypt Secrets in etcd. From Talos 1.14 on the configuration of the API server may be in the machine config
// as it is; before, there is at most one key of each of two kinds, and Talos puts secretbox first.
func encryption(c config.Provider) ([]v1alpha1.SnapshotEncryptionKey, error) {
	if own := c.K8sEtcdEncryptionConfig(); own != nil {
		return configured(own.EtcdEncryptionConfig())
	}
	var keys []v1alpha1.SnapshotEncryptionKey
	if c.Cluster() == nil {
		return nil, nil
	}
	for _, one := range []struct{ provider, name, secret string }{
		{"secretbox", secretboxName, c.Cluster().SecretboxEncryptionSecret()}, {"aescbc", aescbcName, c.Cluster().AESCBCEncryptionSecret()},
	} {
		if one.secret != "" {
			keys = append(keys, v1alpha1.SnapshotEncryptionKey{Provider: one.provider, Name: one.name, Fingerprint: secret(one.secret)})
		}
	}
	return keys, nil
}

// secret is the fingerprint of a key in base64. Keys are random, so nobody finds one by trying.
func secret(text string) string {
	if data, err := base64.StdEncoding.DecodeString(text); err == nil {
		return sum(data)
	}
	return sum([]byte(text))
}

// resources is the part of an EncryptionConfiguration that says how Secrets are encrypted.
type resources struct {
	Resources []struct {
		Providers []map[string]json.RawMessage `json:"providers"`
	} `json:"resources"`
}

// identity is the provider that does not encrypt.
const identity = "identity"

// mostKeys is how many keys are told of.
const mostKeys = 16

// configured are the keys of an EncryptionConfiguration.
func configured(object map[string]any) ([]v1alpha1.SnapshotEncryptionKey, error) {
	data, err := json.Marshal(object)
	var parsed resources
	if err != nil || json.Unmarshal(data, &parsed) != nil {
		return nil, errors.New("the encryption configuration in the machine config cannot be read")
	}
	var keys []v1alpha1.SnapshotEncryptionKey
	for _, resource := range parsed.Resources {
		for _, provider := range resource.Providers {
			for name, settings := range provider {
				for _, key := range keysOf(name, settings) {
					if len(keys) < mostKeys && !slices.Contains(keys, key) {
						keys = append(keys, key)
					}
				}
			}
		}
	}
	return keys, nil
}

func keysOf(provider string, settings json.RawMessage) []v1alpha1.SnapshotEncryptionKey {
	if provider == identity {
		return nil
	}
	var with struct {
		Keys []struct {
			Name   string `json:"name"`
			Secret string `json:"secret"`
		} `json:"keys"`
	}
	if json.Unmarshal(settings, &with) != nil || len(with.Keys) == 0 {
		return []v1alpha1.SnapshotEncryptionKey{{Provider: provider, Fingerprint: sum(settings)}}
	}
	var keys []v1alpha1.SnapshotEncryptionKey
	for _, key := range with.Keys {
		keys = append(keys, v1alpha1.SnapshotEncryptionKey{Provider: provider, Name: key.Name, Fingerprint: secret(key.Secret)})
	}
	return keys
}
