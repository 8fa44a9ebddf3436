// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"
)

// Names of the keys that Talos makes from the older form of the config, which has room for one of each kind.
const (
	secretboxKey = "key2"
	aescbcKey    = "key1"
)

// encryptionConfig is the file that tells the API server how to encrypt Secrets.
func encryptionConfig(root *secrets.KubernetesRootSpec) ([]byte, error) {
	config := apiserverv1.EncryptionConfiguration{}
	if root.EtcdEncryptionConfig != nil {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(root.EtcdEncryptionConfig, &config, true); err != nil {
			return nil, fmt.Errorf("etcd encryption config: %w", err)
		}
	} else {
		config.Resources = []apiserverv1.ResourceConfiguration{{Resources: []string{"secrets"}, Providers: olderProviders(root)}}
	}
	config.TypeMeta = metav1.TypeMeta{Kind: "EncryptionConfig", APIVersion: apiserverv1.SchemeGroupVersion.Version}
	data, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("marshal the encryption config: %w", err)
	}
	return data, nil
}

// olderProviders are those of the older form: what is written is encrypted with the first, and plain text can be read.
func olderProviders(root *secrets.KubernetesRootSpec) []apiserverv1.ProviderConfiguration {
	var providers []apiserverv1.ProviderConfiguration
	if root.SecretboxEncryptionSecret != "" {
		providers = append(providers, apiserverv1.ProviderConfiguration{Secretbox: &apiserverv1.SecretboxConfiguration{
			Keys: []apiserverv1.Key{{Name: secretboxKey, Secret: root.SecretboxEncryptionSecret}},
		}})
	}
	if root.AESCBCEncryptionSecret != "" {
		providers = append(providers, apiserverv1.ProviderConfiguration{AESCBC: &apiserverv1.AESConfiguration{
			Keys: []apiserverv1.Key{{Name: aescbcKey, Secret: root.AESCBCEncryptionSecret}},
		}})
	}
	return append(providers, apiserverv1.ProviderConfiguration{Identity: &apiserverv1.IdentityConfiguration{}})
}

// EncryptionKey is a key of the API server for Secrets in etcd. The zero one is for those that it has not encrypted.
type EncryptionKey struct {
	// Prefix is what begins with it in etcd, such as "k8s:enc:secretbox:v1:key2:"; empty for plain text.
	Prefix string `json:"prefix"`
	// Fingerprint tells keys of one name apart.
	Fingerprint string `json:"fingerprint,omitempty"`
}

// EncryptionKeys are the keys with which the API server can read Secrets; it writes with the first one.
func (f *Files) EncryptionKeys() ([]EncryptionKey, error) {
	config := apiserverv1.EncryptionConfiguration{}
	if err := yaml.Unmarshal(f.Content[EncryptionConfig], &config); err != nil {
		return nil, fmt.Errorf("%s: %w", EncryptionConfig, err)
	}
	var keys []EncryptionKey
	for _, r := range config.Resources {
		if !slices.ContainsFunc(r.Resources, concernsSecrets) {
			continue
		}
		for _, provider := range r.Providers {
			keys = append(keys, keysOf(provider)...)
		}
		break // The API server takes the first that fits.
	}
	return keys, nil
}

func concernsSecrets(resource string) bool {
	return resource == "secrets" || resource == "*." || resource == "*.*"
}

// keysOf are those of one provider.
func keysOf(p apiserverv1.ProviderConfiguration) []EncryptionKey {
	named := func(provider string, keys []apiserverv1.Key) []EncryptionKey {
		list := make([]EncryptionKey, 0, len(keys))
		for _, key := range keys {
			sum := sha256.Sum256([]byte(key.Secret))
			list = append(list, EncryptionKey{Prefix: "k8s:enc:" + provider + ":v1:" + key.Name + ":", Fingerprint: hex.EncodeToString(sum[:4])})
		}
		return list
	}
	switch {
	case p.Secretbox != nil:
		return named("secretbox", p.Secretbox.Keys)
	case p.AESCBC != nil:
		return named("aescbc", p.AESCBC.Keys)
	case p.AESGCM != nil:
		return named("aesgcm", p.AESGCM.Keys)
	case p.Identity != nil:
		return []EncryptionKey{{}}
	}
	return nil
}
