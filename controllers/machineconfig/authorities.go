// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strconv"

	machinery "github.com/siderolabs/talos/pkg/machinery/config"
	"go.yaml.in/yaml/v4"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Authorities are the certificate authorities of one API, as a machine config has them. All are PEM.
type Authorities struct {
	// Issuing is the certificate of the authority that signs; empty where the config of a worker names only those that it accepts.
	Issuing []byte

	// Key is the key of the issuing authority; empty on a worker.
	Key []byte

	// Accepted are those that are accepted beside the issuing one.
	Accepted [][]byte
}

// kubeCAKind is the document in which Talos 1.14 has the authorities of the Kubernetes API.
const kubeCAKind = "KubeAPIServerCAConfig"

// form is how a config writes authorities: where, under which keys, and whether as base64.
type form struct {
	kind                      string
	issuing, accepted         []string
	certificate, key          string
	base64, acceptedAsMapping bool
}

var (
	talosForm = form{
		kind: mainKind, issuing: []string{"machine", "ca"}, accepted: []string{"machine", "acceptedCAs"},
		certificate: "crt", key: "key", base64: true, acceptedAsMapping: true,
	}
	clusterForm = form{
		kind: mainKind, issuing: []string{"cluster", "ca"}, accepted: []string{"cluster", "acceptedCAs"},
		certificate: "crt", key: "key", base64: true, acceptedAsMapping: true,
	}
	documentForm = form{kind: kubeCAKind, issuing: []string{"issuingCA"}, accepted: []string{"acceptedCAs"}, certificate: "cert", key: "key"}
)

// errNoAuthorities means that a config has no authorities of an API.
var errNoAuthorities = errors.New("it names no certificate authority of that API")

// ReadAuthorities says which authorities of an API a machine config has, in whichever form it has them.
func ReadAuthorities(config []byte, of v1alpha1.CAAuthority) (Authorities, error) {
	_, at, form, err := findAuthorities(config, of)
	if err != nil {
		return Authorities{}, err
	}
	return form.read(at)
}

// WithAuthorities is a machine config with other authorities of an API, in the form that it has already, and nothing else.
func WithAuthorities(config []byte, of v1alpha1.CAAuthority, authorities Authorities) ([]byte, error) {
	documents, tree, form, err := findAuthorities(config, of)
	if err != nil {
		return nil, err
	}
	made := copyOf(tree, 0)
	form.write(made, authorities)
	for i := range documents {
		if documents[i].kind == form.kind {
			documents[i].tree, documents[i].raw = made, written(made)
		}
	}
	return join(documents), nil
}

// findAuthorities finds the document that has the authorities of an API.
func findAuthorities(config []byte, of v1alpha1.CAAuthority) ([]document, *yaml.Node, form, error) {
	documents, err := split(config)
	if err != nil {
		return nil, nil, form{}, fmt.Errorf("the machine config: %w", err)
	}
	forms := []form{talosForm}
	if of == v1alpha1.KubernetesCA {
		forms = []form{documentForm, clusterForm}
	}
	for _, form := range forms {
		for _, d := range documents {
			if d.kind == form.kind && (at(d.tree, form.issuing) != nil || at(d.tree, form.accepted) != nil) {
				return documents, d.tree, form, nil
			}
		}
	}
	return nil, nil, form{}, fmt.Errorf("the machine config: authority %s: %w", of, errNoAuthorities)
}

func (f form) read(tree *yaml.Node) (Authorities, error) {
	var found Authorities
	var err error
	if found.Issuing, err = f.decode(append(slices.Clip(f.issuing), f.certificate), at(tree, append(slices.Clip(f.issuing), f.certificate))); err != nil {
		return Authorities{}, err
	}
	if found.Key, err = f.decode(append(slices.Clip(f.issuing), f.key), at(tree, append(slices.Clip(f.issuing), f.key))); err != nil {
		return Authorities{}, err
	}
	list := at(tree, f.accepted)
	if list == nil || list.Kind != yaml.SequenceNode {
		return found, nil
	}
	for _, item := range list.Content {
		if f.acceptedAsMapping {
			item = find(item, f.certificate)
		}
		certificate, err := f.decode(f.accepted, resolve(item))
		if err != nil {
			return Authorities{}, err
		}
		if len(certificate) > 0 {
			found.Accepted = append(found.Accepted, certificate)
		}
	}
	return found, nil
}

// decode is what a scalar says; nothing if there is none. The error quotes no value: it may be a key.
func (f form) decode(path []string, node *yaml.Node) ([]byte, error) {
	if node == nil || node.Kind != yaml.ScalarNode || node.Value == "" {
		return nil, nil
	}
	if !f.base64 {
		return []byte(node.Value), nil
	}
	decoded, err := base64.StdEncoding.DecodeString(node.Value)
	if err != nil {
		return nil, fmt.Errorf("the machine config: %s is not base64", place{f.kind, path})
	}
	return decoded, nil
}

func (f form) write(tree *yaml.Node, a Authorities) {
	if len(a.Issuing) > 0 {
		set(tree, append(slices.Clip(f.issuing), f.certificate), f.encode(a.Issuing))
		if len(a.Key) > 0 || at(tree, append(slices.Clip(f.issuing), f.key)) != nil {
			set(tree, append(slices.Clip(f.issuing), f.key), f.encode(a.Key))
		}
	}
	var list *yaml.Node
	if len(a.Accepted) > 0 {
		list = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	}
	for _, certificate := range a.Accepted {
		item := f.encode(certificate)
		if f.acceptedAsMapping {
			item = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{
				{Kind: yaml.ScalarNode, Tag: "!!str", Value: f.certificate}, item,
			}}
		}
		list.Content = append(list.Content, item)
	}
	set(tree, f.accepted, list)
}

func (f form) encode(data []byte) *yaml.Node {
	if f.base64 {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: base64.StdEncoding.EncodeToString(data)}
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: string(data), Style: yaml.LiteralStyle}
}

// Fingerprint is the SHA-256 of the first certificate of a PEM, in hexadecimal; empty if there is none. Two texts of one certificate have the
// same.
func Fingerprint(certificate []byte) string {
	for rest := certificate; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return ""
		}
		if block.Type == "CERTIFICATE" {
			sum := sha256.Sum256(block.Bytes)
			return hex.EncodeToString(sum[:])
		}
	}
}

// SameCertificate says whether two PEM texts begin with the same certificate.
func SameCertificate(a, b []byte) bool {
	one := Fingerprint(a)
	return one != "" && one == Fingerprint(b)
}

// Issues says whether an authority is the one that signs.
func (a Authorities) Issues(certificate []byte) bool { return SameCertificate(a.Issuing, certificate) }

// Accepts says whether what an authority has signed is accepted.
func (a Authorities) Accepts(certificate []byte) bool {
	return a.Issues(certificate) || slices.ContainsFunc(a.Accepted, func(other []byte) bool { return SameCertificate(other, certificate) })
}

// Accepting is what accepts an authority beside what it accepts already. One that it accepts is not added again.
func (a Authorities) Accepting(certificate []byte) Authorities {
	if a.Accepts(certificate) {
		return a
	}
	a.Accepted = append(slices.Clone(a.Accepted), bytes.Clone(certificate))
	return a
}

// Dropping is what does not accept an authority any more, unless that is the one which signs.
func (a Authorities) Dropping(certificate []byte) Authorities {
	a.Accepted = slices.DeleteFunc(slices.Clone(a.Accepted), func(other []byte) bool { return SameCertificate(other, certificate) })
	if len(a.Accepted) == 0 {
		a.Accepted = nil
	}
	return a
}

// IssuingBy is what signs by another authority and accepts the one before. A config without an issuing authority, as of a worker, accepts
// both; one without a key gets none.
func (a Authorities) IssuingBy(certificate, key []byte) Authorities {
	switch before := a.Issuing; {
	case len(before) == 0:
		return a.Accepting(certificate)
	case a.Issues(certificate):
		return a
	default:
		controlPlane := len(a.Key) > 0
		a.Issuing, a.Key = bytes.Clone(certificate), nil
		if controlPlane {
			a.Key = bytes.Clone(key)
		}
		return a.Dropping(certificate).Accepting(before)
	}
}

// defaultAPIServerPort is where the API server of a control plane listens, unless its config says otherwise.
const defaultAPIServerPort = 6443

// apiServerPorts are where a config says otherwise.
var apiServerPorts = []place{field("KubeAPIServerConfig", "apiPort"), field(mainKind, "cluster.controlPlane.localAPIServerPort")}

// APIServerPort is the port at which the API server of a control plane listens on the machine itself.
func APIServerPort(config []byte) (int, error) {
	documents, err := split(config)
	if err != nil {
		return 0, fmt.Errorf("the machine config: %w", err)
	}
	for _, d := range documents {
		for _, p := range apiServerPorts {
			if d.kind != p.kind {
				continue
			}
			if value := at(d.tree, p.path); value != nil && value.Value != "" && value.Value != "0" {
				port, err := strconv.ParseUint(value.Value, 10, 16)
				if err != nil {
					return 0, fmt.Errorf("the machine config: %s is %q, and not a port from 1 to 65535", p, value.Value)
				}
				return int(port), nil
			}
		}
	}
	return defaultAPIServerPort, nil
}

// Load has machinery read a machine config, as far as it knows the documents of it.
func Load(config []byte) (machinery.Provider, error) {
	documents, err := split(config)
	if err != nil {
		return nil, fmt.Errorf("the machine config: %w", err)
	}
	known, _ := part(documents)
	return load(known)
}
