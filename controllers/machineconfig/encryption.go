// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/k8s"
	"go.yaml.in/yaml/v4"
)

// Names of providers in the configuration by which an API server encrypts what it writes to etcd.
const (
	SecretboxProvider = "secretbox"
	identityProvider  = "identity"
	aescbcProvider    = "aescbc"
)

// keyed are the providers that have keys of their own.
var keyed = []string{SecretboxProvider, aescbcProvider, "aesgcm"}

// Names of the keys that Talos gives to those of the main document.
const (
	legacySecretboxName = "key2"
	legacyAESCBCName    = "key1"
)

// EncryptionKey is a key of a provider. An API server writes the names of both before what it encrypts.
type EncryptionKey struct {
	Provider string `json:"provider"`
	Name     string `json:"name"`

	// Secret is the key itself, in base64.
	Secret string `json:"secret"`
}

// Encryption is the configuration by which an API server encrypts what it writes to etcd.
type Encryption struct {
	blocks []encryptionBlock

	// Document says that it is in a document of its own, as a whole. The fields of the main document hold one key of each of two providers.
	Document bool
}

// encryptionBlock says how some resources are encrypted: by the first key of the first provider, and read by any.
type encryptionBlock struct {
	Resources []string             `json:"resources"`
	Providers []encryptionProvider `json:"providers"`
}

// encryptionProvider is one provider, by its name, with its settings.
type encryptionProvider map[string]providerSettings

// providerSettings are the keys of a provider, and what else it is told. Nothing of that gets lost.
type providerSettings map[string]any

// name is the name of a provider.
func (p encryptionProvider) name() string {
	for name := range p {
		return name
	}
	return ""
}

// keys are those of a provider, in order.
func (p encryptionProvider) keys() []EncryptionKey {
	var keys []EncryptionKey
	list, _ := p[p.name()]["keys"].([]any)
	for _, item := range list {
		key, _ := item.(map[string]any)
		name, _ := key["name"].(string)
		secret, _ := key["secret"].(string)
		keys = append(keys, EncryptionKey{Provider: p.name(), Name: name, Secret: secret})
	}
	return keys
}

// withKeys is the provider with other keys.
func (p encryptionProvider) withKeys(keys []EncryptionKey) encryptionProvider {
	var list []any
	for _, key := range keys {
		list = append(list, map[string]any{"name": key.Name, "secret": key.Secret})
	}
	settings := providerSettings{}
	for name, value := range p[p.name()] {
		settings[name] = value
	}
	settings["keys"] = list
	return encryptionProvider{p.name(): settings}
}

// EncryptionOf reads how the API server of a control plane is told to encrypt.
func EncryptionOf(data []byte) (Encryption, error) {
	_, provider, err := read(data)
	if err != nil {
		return Encryption{}, err
	}
	return encryptionOf(provider)
}

func encryptionOf(provider config.Provider) (Encryption, error) {
	own := provider.K8sEtcdEncryptionConfig()
	if own == nil {
		return legacyEncryption(provider)
	}
	data, err := json.Marshal(map[string]any{"resources": own.EtcdEncryptionConfig()["resources"]})
	if err != nil {
		return Encryption{}, errUnknownEncryption
	}
	found, err := ParseEncryption(data)
	found.Document = true
	return found, err
}

// errUnknownEncryption means that a configuration is none that an API server would take.
var errUnknownEncryption = errors.New("the encryption configuration is none that this hub can read")

// legacyEncryption is what Talos makes of the fields of the main document, in its order and with its names. The last provider reads what was
// written before anything was encrypted.
func legacyEncryption(provider config.Provider) (Encryption, error) {
	var providers []encryptionProvider
	for _, key := range []EncryptionKey{
		{SecretboxProvider, legacySecretboxName, provider.Cluster().SecretboxEncryptionSecret()},
		{aescbcProvider, legacyAESCBCName, provider.Cluster().AESCBCEncryptionSecret()},
	} {
		if key.Secret != "" {
			providers = append(providers, encryptionProvider{key.Provider: nil}.withKeys([]EncryptionKey{key}))
		}
	}
	if len(providers) == 0 {
		return Encryption{}, errors.New("the machine config has no key that encrypts Secrets in etcd")
	}
	providers = append(providers, encryptionProvider{identityProvider: providerSettings{}})
	return Encryption{blocks: []encryptionBlock{{Resources: []string{"secrets"}, Providers: providers}}}, nil
}

// ParseEncryption reads a configuration as an API server is given it, in JSON or YAML.
func ParseEncryption(data []byte) (Encryption, error) {
	tree, err := treeOf(data)
	if err != nil || tree == nil {
		return Encryption{}, errUnknownEncryption
	}
	var object map[string]any
	if yaml.Unmarshal(data, &object) != nil {
		return Encryption{}, errUnknownEncryption
	}
	plain, err := json.Marshal(object)
	var parsed struct {
		Resources []encryptionBlock `json:"resources"`
	}
	if err != nil || json.Unmarshal(plain, &parsed) != nil || len(parsed.Resources) == 0 {
		return Encryption{}, errUnknownEncryption
	}
	for _, block := range parsed.Resources {
		for _, provider := range block.Providers {
			if len(provider) != 1 {
				return Encryption{}, errUnknownEncryption
			}
			if provider[provider.name()] == nil {
				provider[provider.name()] = providerSettings{}
			}
		}
	}
	return Encryption{blocks: parsed.Resources}, nil
}

// WithEncryption is the config with another encryption of what is in etcd, in a document of its own.
func WithEncryption(data []byte, encryption Encryption) ([]byte, error) {
	documents, provider, err := read(data)
	if err != nil {
		return nil, err
	}
	now, err := encryptionOf(provider)
	if err != nil {
		return nil, err
	}
	if now.Document && now.Equal(encryption) {
		return data, nil
	}
	own, err := documentOf[*k8s.KubeEtcdEncryptionConfigV1Alpha1](provider)
	if err != nil {
		return nil, err
	}
	if own == nil {
		own = k8s.NewKubeEtcdEncryptionConfigV1Alpha1()
	}
	object, err := encryption.object()
	if err != nil {
		return nil, err
	}
	if own.Config.Object == nil {
		own.Config.Object = map[string]any{}
	}
	own.Config.Object["resources"] = object
	return replace(documents, own, secretboxField, aescbcField)
}

// object is the configuration as documents hold it.
func (e Encryption) object() (any, error) {
	data, err := json.Marshal(e.blocks)
	if err != nil {
		return nil, errUnknownEncryption
	}
	var object []any
	if json.Unmarshal(data, &object) != nil {
		return nil, errUnknownEncryption
	}
	return object, nil
}

// Equal says whether two configurations say the same. Where they are written does not count.
func (e Encryption) Equal(other Encryption) bool {
	a, errA := json.Marshal(e.blocks)
	b, errB := json.Marshal(other.blocks)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// Obstacle says what of the configuration keeps its keys from being rotated; nothing if nothing does.
func (e Encryption) Obstacle() string {
	secrets := false
	for _, block := range e.blocks {
		if !block.rotates() {
			if slices.Contains(block.Resources, "secrets") {
				return fmt.Sprintf("Secrets are encrypted by provider %q first, which has no key that this hub rotates: it takes %v", block.first(), keyed)
			}
			continue
		}
		secrets = secrets || slices.Contains(block.Resources, "secrets")
		for _, resource := range block.Resources {
			if strings.HasPrefix(resource, "*") {
				return fmt.Sprintf("resources: %q names no kind, and all that is encrypted has to be written anew: name the kinds one by one", resource)
			}
		}
	}
	if !secrets {
		return "the encryption configuration does not encrypt Secrets"
	}
	return ""
}

// first is the name of the provider that writes.
func (b encryptionBlock) first() string {
	if len(b.Providers) == 0 {
		return ""
	}
	return b.Providers[0].name()
}

// rotates says whether what a block is about is written by a key that can be replaced.
func (b encryptionBlock) rotates() bool { return slices.Contains(keyed, b.first()) }

// Resources are the kinds whose key is rotated, such as secrets or deployments.apps.
func (e Encryption) Resources() []string {
	var all []string
	for _, block := range e.blocks {
		for _, resource := range block.Resources {
			if block.rotates() && !slices.Contains(all, resource) {
				all = append(all, resource)
			}
		}
	}
	return all
}

// Keys are all keys, each once, the one that writes Secrets first.
func (e Encryption) Keys() []EncryptionKey {
	var all []EncryptionKey
	for _, block := range e.blocks {
		for _, provider := range block.Providers {
			for _, key := range provider.keys() {
				if !slices.Contains(all, key) {
					all = append(all, key)
				}
			}
		}
	}
	return all
}

// WritesWith says whether a key is the one that writes all of what is rotated.
func (e Encryption) WritesWith(key EncryptionKey) bool {
	return e.all(func(block encryptionBlock) bool {
		keys := block.Providers[0].keys()
		return len(keys) > 0 && keys[0] == key
	})
}

// Reads says whether a key reads all of what is rotated.
func (e Encryption) Reads(key EncryptionKey) bool {
	return e.all(func(block encryptionBlock) bool {
		return slices.ContainsFunc(block.Providers, func(p encryptionProvider) bool { return slices.Contains(p.keys(), key) })
	})
}

func (e Encryption) all(is func(encryptionBlock) bool) bool {
	some := false
	for _, block := range e.blocks {
		if !block.rotates() {
			continue
		}
		if some = true; !is(block) {
			return false
		}
	}
	return some
}

// each changes the blocks whose keys are rotated, in a copy.
func (e Encryption) each(change func([]encryptionProvider) []encryptionProvider) Encryption {
	made := Encryption{Document: e.Document}
	for _, block := range e.blocks {
		if block.rotates() {
			block.Providers = change(slices.Clone(block.Providers))
		}
		made.blocks = append(made.blocks, block)
	}
	return made
}

// Accepting reads with one more key, and writes with the first of the others.
func (e Encryption) Accepting(key EncryptionKey) Encryption {
	return e.each(func(providers []encryptionProvider) []encryptionProvider {
		others := withoutKey(providers, key)
		switch {
		case len(others) == 0 || !slices.Contains(keyed, others[0].name()):
			return providers // There is no other key that could write.
		case others[0].name() == key.Provider:
			others[0] = others[0].withKeys(slices.Insert(others[0].keys(), 1, key))
			return others
		}
		return slices.Insert(others, 1, providerWith(key))
	})
}

// Writing writes with a key, and reads with all that it read with.
func (e Encryption) Writing(key EncryptionKey) Encryption {
	return e.each(func(providers []encryptionProvider) []encryptionProvider {
		providers = withoutKey(providers, key)
		if len(providers) > 0 && providers[0].name() == key.Provider {
			providers[0] = providers[0].withKeys(slices.Insert(providers[0].keys(), 0, key))
			return providers
		}
		return slices.Insert(providers, 0, providerWith(key))
	})
}

// Only has no other key. What is not encrypted at all is read as before.
func (e Encryption) Only(key EncryptionKey) Encryption {
	return e.each(func(providers []encryptionProvider) []encryptionProvider {
		providers = slices.DeleteFunc(providers, func(p encryptionProvider) bool { return slices.Contains(keyed, p.name()) })
		return slices.Insert(providers, 0, providerWith(key))
	})
}

// Without has all but a key.
func (e Encryption) Without(key EncryptionKey) Encryption {
	return e.each(func(providers []encryptionProvider) []encryptionProvider { return withoutKey(providers, key) })
}

// providerWith is a provider with one key.
func providerWith(key EncryptionKey) encryptionProvider {
	return encryptionProvider{key.Provider: nil}.withKeys([]EncryptionKey{key})
}

// withoutKey are providers without a key. One that has no other goes with it.
func withoutKey(providers []encryptionProvider, key EncryptionKey) []encryptionProvider {
	var made []encryptionProvider
	for _, provider := range providers {
		keys := provider.keys()
		if i := slices.Index(keys, key); i >= 0 {
			if len(keys) == 1 {
				continue
			}
			provider = provider.withKeys(slices.Delete(keys, i, i+1))
		}
		made = append(made, provider)
	}
	return made
}

// NewSecretboxKey makes a key of provider secretbox. Its name is in all that it encrypts, so it says which key it is.
func NewSecretboxKey() (EncryptionKey, error) {
	secret := make([]byte, secretboxSize)
	if _, err := rand.Read(secret); err != nil {
		return EncryptionKey{}, fmt.Errorf("making a key: %w", err)
	}
	key := EncryptionKey{Provider: SecretboxProvider, Secret: base64.StdEncoding.EncodeToString(secret)}
	key.Name = "key-" + key.Fingerprint()[:nameLength]
	return key, nil
}

const (
	// secretboxSize is how many bytes a key of provider secretbox has.
	secretboxSize = 32

	// nameLength is how much of a fingerprint is in a name.
	nameLength = 8
)

// Fingerprint tells a key from others, as snapshots of etcd do.
func (k EncryptionKey) Fingerprint() string {
	data, err := base64.StdEncoding.DecodeString(k.Secret)
	if err != nil {
		data = []byte(k.Secret)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
