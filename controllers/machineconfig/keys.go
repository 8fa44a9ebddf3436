// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config"
	machinery "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/types/k8s"
	"github.com/siderolabs/talos/pkg/machinery/config/types/meta"
	"go.yaml.in/yaml/v4"
)

// Keys of the main document that documents of Talos 1.14 stand for. A config that has both is refused.
var (
	serviceAccountField = []string{"cluster", "serviceAccount"}
	secretboxField      = []string{"cluster", "secretboxEncryptionSecret"}
	aescbcField         = []string{"cluster", "aescbcEncryptionSecret"}
)

// ServiceAccount is what a config says of the keys of service accounts.
type ServiceAccount struct {
	// Issuer is the private key that signs tokens, in PEM.
	Issuer string

	// Accepted are the public keys, in PEM, whose tokens are taken beside those of the issuer.
	Accepted []string

	// Document says that this is in a document of its own, which can hold more than one key.
	Document bool
}

// ServiceAccountOf reads what the config of a control plane says of the keys of service accounts.
func ServiceAccountOf(data []byte) (ServiceAccount, error) {
	documents, provider, err := read(data)
	if err != nil {
		return ServiceAccount{}, err
	}
	return serviceAccountOf(documents, provider)
}

func serviceAccountOf(documents []document, provider config.Provider) (ServiceAccount, error) {
	found := provider.K8sServiceAccountConfig()
	if found == nil || found.IssuingKey() == nil {
		return ServiceAccount{}, errors.New("the machine config has no key of service accounts, or no endpoint of the cluster that goes with it")
	}
	account := ServiceAccount{Issuer: string(found.IssuingKey().Key)}
	own, err := serviceAccountDocument(provider)
	if err != nil || own == nil {
		return account, err
	}
	account.Document, account.Accepted = hasKind(documents, k8s.KubeServiceAccountConfig), slices.Clone(own.ServiceAccepted.PublicKeys)
	return account, nil
}

// ForeignIssuer is the URL at which tokens are verified by the config of a control plane, if it is not that of the cluster: somebody else
// publishes the keys there.
func ForeignIssuer(data []byte) (string, error) {
	_, provider, err := read(data)
	if err != nil {
		return "", err
	}
	found, cluster := provider.K8sServiceAccountConfig(), provider.K8sClusterConfig()
	if found == nil || cluster == nil || cluster.ClusterEndpoint() == nil {
		return "", errors.New("the machine config has no key of service accounts, or no endpoint of the cluster that goes with it")
	}
	issuer, err := url.Parse(found.IssuerURL())
	if err != nil {
		return "", errors.New("the issuer of tokens in the machine config is no URL")
	}
	if issuer.Host == cluster.ClusterEndpoint().Host {
		return "", nil
	}
	return issuer.Redacted(), nil
}

// WithServiceAccount is the config with other keys of service accounts, in a document of its own. Issuers, audiences and everything else
// stay what they are.
func WithServiceAccount(data []byte, account ServiceAccount) ([]byte, error) {
	documents, provider, err := read(data)
	if err != nil {
		return nil, err
	}
	now, err := serviceAccountOf(documents, provider)
	if err != nil {
		return nil, err
	}
	own, err := serviceAccountDocument(provider)
	if err != nil {
		return nil, err
	}
	if own == nil {
		if own, err = newServiceAccountDocument(provider.K8sServiceAccountConfig()); err != nil {
			return nil, err
		}
	}
	if now.Document && now.Issuer == account.Issuer && slices.Equal(now.Accepted, account.Accepted) {
		return data, nil
	}
	own.ServiceIssuer.PrivateKey, own.ServiceAccepted.PublicKeys = account.Issuer, account.Accepted
	return replace(documents, own, serviceAccountField)
}

// serviceAccountDocument is a copy of the document; nil if there is none.
func serviceAccountDocument(provider config.Provider) (*k8s.KubeServiceAccountConfigV1Alpha1, error) {
	return documentOf[*k8s.KubeServiceAccountConfigV1Alpha1](provider)
}

// newServiceAccountDocument says what the main document says.
func newServiceAccountDocument(old machinery.K8sServiceAccountConfig) (*k8s.KubeServiceAccountConfigV1Alpha1, error) {
	issuer, err := url.Parse(old.IssuerURL())
	if err != nil {
		return nil, errors.New("the endpoint of the cluster in the machine config is no URL")
	}
	made := k8s.NewKubeServiceAccountConfigV1Alpha1()
	made.ServiceIssuer.IssuerURL = meta.URL{URL: issuer}
	return made, nil
}

// read has machinery read the documents that it knows.
func read(data []byte) ([]document, config.Provider, error) {
	documents, err := split(data)
	if err != nil {
		return nil, nil, err
	}
	known, _ := part(documents)
	provider, err := load(known)
	return documents, provider, err
}

// documentOf is a copy of the document of a type; nil if there is none.
func documentOf[T machinery.Document](provider config.Provider) (none T, err error) {
	for _, found := range provider.Documents() {
		if typed, ok := found.(T); ok {
			clone, ok := typed.Clone().(T)
			if !ok {
				return none, fmt.Errorf("document %s cannot be copied", typed.Kind())
			}
			return clone, nil
		}
	}
	return none, nil
}

func hasKind(documents []document, kind string) bool {
	return slices.ContainsFunc(documents, func(d document) bool { return d.kind == kind })
}

// replace puts a document in the place of the one of its kind, or behind the others, and takes fields out of the main document that say the
// same. What else there is stays as it is, to the byte.
func replace(documents []document, with machinery.Document, fields ...[]string) ([]byte, error) {
	raw, err := encoder.NewEncoder(with, encoder.WithComments(encoder.CommentsDisabled)).Encode()
	if err != nil {
		return nil, words(err, documents)
	}
	made, err := parse(raw)
	if err != nil {
		return nil, err
	}
	now := without(documents, fields...)
	if i := slices.IndexFunc(now, func(d document) bool { return d.kind == made.kind }); i >= 0 {
		now[i] = made
	} else {
		now = append(now, made)
	}
	return checked(now, documents)
}

// without takes fields out of the main document.
func without(documents []document, fields ...[]string) []document {
	made := slices.Clone(documents)
	for i, d := range made {
		if d.kind != mainKind {
			continue
		}
		for _, path := range fields {
			if at(made[i].tree, path) == nil {
				continue
			}
			made[i].tree = copyOf(made[i].tree, 0)
			set(made[i].tree, path, nil)
			made[i].raw = written(made[i].tree)
		}
	}
	return made
}

// checked are documents that machinery finds no fault with, or none that it does not find with those from which they were made.
func checked(documents, before []document) ([]byte, error) {
	if objection := validate(documents); objection != nil {
		if old := validate(before); old == nil || old.Error() != objection.Error() {
			return nil, fmt.Errorf("refused by Talos: %w", objection)
		}
	}
	return join(documents), nil
}

// restartMark is a variable in the environment of the API server. Whoever changes it has Talos restart the API server, and nothing else.
const restartMark = "ICHOR_RESTARTED_FOR"

// marks are where the environment of the API server is.
var marks = []place{field(k8s.KubeAPIServerConfig, "env."+restartMark), field(mainKind, "cluster.apiServer.env."+restartMark)}

// RestartMark is the mark that a config has, or nothing.
func RestartMark(data []byte) string {
	documents, err := split(data)
	if err != nil {
		return ""
	}
	if value := valueAt(documents, marks); value != nil {
		return value.Value
	}
	return ""
}

// WithRestartMark is the config with another mark, or with none. An API server whose config is another one is restarted by Talos.
func WithRestartMark(data []byte, mark string) ([]byte, error) {
	if RestartMark(data) == mark {
		return data, nil
	}
	documents, err := split(data)
	if err != nil {
		return nil, err
	}
	where := marks[1]
	if hasKind(documents, k8s.KubeAPIServerConfig) {
		where = marks[0]
	}
	i := slices.IndexFunc(documents, func(d document) bool { return d.kind == where.kind })
	if i < 0 {
		return nil, errNoMain
	}
	var value *yaml.Node
	if mark != "" {
		value = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: mark}
	}
	made := slices.Clone(documents)
	made[i].tree = copyOf(made[i].tree, 0)
	set(made[i].tree, where.path, value)
	made[i].raw = written(made[i].tree)
	return checked(made, documents)
}
