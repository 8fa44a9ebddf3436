// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"go.yaml.in/yaml/v4"
)

// What stands in the place of secrets.
const (
	// Mask stands for a secret.
	Mask = "(secret)"

	// MaskChanged stands for a secret that is another one than before.
	MaskChanged = "(secret, changed)"
)

// marker is what machinery puts in the place of the secrets that it knows of. No config has it.
const marker = "ichor:this-is-a-secret"

// hidden are the fields, beyond those that machinery calls secret, whose content may hold secrets and is nobody's business in a diff: what is
// in files, manifests, headers and environments. The names of those stay. The first element is the kind of the document.
var hidden = []string{
	"v1alpha1.machine.env", "v1alpha1.machine.files.content", "v1alpha1.machine.registries.config.*.auth", "v1alpha1.cluster.id",
	"v1alpha1.cluster.inlineManifests.contents", "v1alpha1.cluster.extraManifestHeaders",
	"v1alpha1.cluster.apiServer.env", "v1alpha1.cluster.controllerManager.env", "v1alpha1.cluster.scheduler.env",
	"KubeAPIServerConfig.env", "KubeControllerManagerConfig.env", "KubeSchedulerConfig.env",
	"KubeExternalManifestConfig.headers", "KubeInlineManifestConfig.contents", "KubeInlineManifestConfig.manifest", "KubeEtcdEncryptionConfig.config",
	"EnvironmentConfig.variables", "ExtensionServiceConfig.environment", "ExtensionServiceConfig.configFiles.content", "ContainerConfig.environment",
	"EtcFileConfig.contents", "CRICustomizationConfig.content", "RegistryAuthConfig.password", "RegistryAuthConfig.auth",
	"RegistryAuthConfig.identityToken", "RegistryAuthConfig.username", "DiscoveryIdentityConfig.clusterID",
}

var (
	// secretName is how the names of fields look that hold secrets, in any document.
	secretName = regexp.MustCompile(`(?i)secret|token|password|passwd|passphrase|credential|private_?-?key|api_?-?key|access_?-?key|auth_?-?key|bearer|^key$|keydata|^psk$|presharedkey|jointoken`)

	// inURL finds who signs in, and with what, within an address.
	inURL = regexp.MustCompile(`(?i)://[^/\s@]+@|[?&;][a-z_-]*(token|secret|password|key|sig|signature|auth)[a-z_-]*=`)

	// inArgument finds a secret within an argument, such as of the kernel.
	inArgument = regexp.MustCompile(`(?i)(secret|token|password|passphrase|private.?key|api.?key)[a-z_.-]*[=:]`)
)

// notSecret are fields whose names look like those of secrets and that hold none.
var notSecret = []string{"v1alpha1.cluster.apiServer.certSANs", "v1alpha1.machine.certSANs"}

// rules say which scalars of a document are masked.
type rules struct {
	kind string

	// redacted are the paths of what machinery calls secret.
	redacted map[string]bool
}

// rulesOf are the rules of a document. What machinery does not know of is left to the names of fields.
func rulesOf(d document) rules {
	r := rules{kind: d.kind, redacted: map[string]bool{}}
	if !d.known {
		return r
	}
	provider, err := configloader.NewFromBytes(d.raw, configloader.WithNoValidation())
	if err != nil {
		return r
	}
	redacted, err := encode(provider.RedactSecrets(marker))
	if err != nil {
		return r
	}
	for _, other := range redacted {
		for _, leaf := range leavesOf(other.tree) {
			if strings.Contains(leaf.value(), marker) || strings.Contains(decoded(leaf.value()), marker) {
				r.redacted[leaf.path.String()] = true
			}
		}
	}
	return r
}

// masks says whether a scalar is masked.
func (r rules) masks(l leaf) bool {
	if l.node.Kind != yaml.ScalarNode || l.value() == "" || l.node.ShortTag() == "!!bool" || l.node.ShortTag() == "!!null" {
		return false
	}
	keys := append([]string{r.kind}, l.path.keys()...)
	switch {
	case slices.ContainsFunc(notSecret, func(pattern string) bool { return matches(keys, pattern) }):
		return false
	case r.redacted[l.path.String()], slices.ContainsFunc(hidden, func(pattern string) bool { return matches(keys, pattern) }):
		return true
	case slices.ContainsFunc(keys[1:], secretName.MatchString):
		return true
	case strings.EqualFold(l.path.last(), "value") && slices.Contains(keys, "env"): // Of a container in a static pod.
		return true
	}
	return looksSecret(l.value())
}

// looksSecret says whether a text is a secret whatever field it is in: a private key, or an address or argument that carries one.
func looksSecret(text string) bool {
	return strings.Contains(text, "PRIVATE KEY") || strings.Contains(decoded(text), "PRIVATE KEY") || inURL.MatchString(text) || inArgument.MatchString(text)
}

// decoded is what a text of base64 says, or nothing.
func decoded(text string) string {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return ""
	}
	return string(data)
}

// masked is a document with its secrets masked. Those that differ from the ones in before, at the same place, are told as changed.
func masked(d document, before map[string]string) document {
	rules, tree := rulesOf(d), copyOf(d.tree, 0)
	for _, l := range leavesOf(tree) {
		if !rules.masks(l) {
			continue
		}
		text := Mask
		if old, there := before[l.path.String()]; before != nil && there && old != l.value() {
			text = MaskChanged
		}
		l.node.Value, l.node.Tag, l.node.Style = text, "!!str", 0
		l.node.LineComment, l.node.HeadComment, l.node.FootComment = "", "", ""
	}
	d.tree = tree
	return d
}

// values are the scalars of a document, by path.
func values(d document) map[string]string {
	all := map[string]string{}
	for _, l := range leavesOf(d.tree) {
		all[l.path.String()] = l.value()
	}
	return all
}

// copyOf is a copy of a tree without anchors and comments: a comment may say anything.
func copyOf(node *yaml.Node, depth int) *yaml.Node {
	node = resolve(node)
	if node == nil || depth > mostDepth {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
	}
	made := &yaml.Node{Kind: node.Kind, Tag: node.Tag, Value: node.Value, Style: node.Style}
	for _, child := range node.Content {
		made.Content = append(made.Content, copyOf(child, depth+1))
	}
	return made
}
