// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"fmt"

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

// EncryptionKeys are the prefixes in etcd of what the API server can read of Secrets, such as "k8s:enc:secretbox:v1:key2:"; it writes
// with the first one. The empty prefix is plain text.
func (f *Files) EncryptionKeys() ([]string, error) {
	config := apiserverv1.EncryptionConfiguration{}
	if err := yaml.Unmarshal(f.Content[EncryptionConfig], &config); err != nil {
		return nil, fmt.Errorf("%s: %w", EncryptionConfig, err)
	}
	var keys []string
	for _, r := range config.Resources {
		for _, provider := range r.Providers {
			keys = append(keys, prefixes(provider)...)
		}
	}
	return keys, nil
}

// prefixes are those of one provider.
func prefixes(p apiserverv1.ProviderConfiguration) []string {
	named := func(provider string, keys []apiserverv1.Key) []string {
		var list []string
		for _, key := range keys {
			list = append(list, "k8s:enc:"+provider+":v1:"+key.Name+":")
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
		return []string{""}
	}
	return nil
}
