// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v4"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// surrounding is what a machine has to know of its surroundings before it can so much as pull an image: in the fields of the main document,
// or in documents of its own.
type surrounding struct {
	fields [][]string
	kinds  []string

	// always is set where it counts that the model has none.
	always bool
}

// surroundings are what a first worker takes over from a control plane.
var surroundings = []surrounding{
	{fields: [][]string{{"machine", "registries"}}, kinds: []string{"RegistryMirrorConfig", "RegistryAuthConfig", "RegistryTLSConfig"}},
	{kinds: []string{"TrustedRootsConfig"}},
	{fields: [][]string{{"machine", "time"}}, kinds: []string{"TimeSyncConfig"}},
	{fields: [][]string{{"machine", "env"}}, kinds: []string{"EnvironmentConfig"}},
	{fields: [][]string{{"machine", "network", "nameservers"}}, kinds: []string{"ResolverConfig"}},
	{fields: [][]string{{"machine", "network", "extraHostEntries"}}, kinds: []string{"StaticHostConfig"}},
	{fields: [][]string{{"machine", "network", "kubespan"}}, kinds: []string{"KubeSpanConfig"}},
	{fields: [][]string{{"cluster", "discovery"}}, kinds: []string{"DiscoveryServiceConfig"}, always: true},
}

// FirstWorker makes the config of a worker for a cluster that has none, whose model is a control plane: what Talos generates from the secrets
// of the cluster, with its network, and with the authorities that it has now.
func FirstWorker(controlPlane []byte, version string) ([]byte, error) {
	_, provider, err := read(controlPlane)
	if err != nil {
		return nil, err
	}
	generated, err := generatedWorker(provider, version)
	if err != nil {
		return nil, err
	}
	for _, authority := range []v1alpha1.CAAuthority{v1alpha1.TalosCA, v1alpha1.KubernetesCA} {
		have, err := ReadAuthorities(controlPlane, authority)
		if err != nil {
			return nil, err
		}
		if generated, err = acceptingLike(generated, authority, have); err != nil {
			return nil, err
		}
	}
	return like(generated, controlPlane)
}

// like is a config with the kubelet that another one has, and with what that one knows of its surroundings.
func like(config, other []byte) ([]byte, error) {
	documents, err := split(config)
	if err != nil {
		return nil, err
	}
	model, err := split(other)
	if err != nil {
		return nil, err
	}
	if documents, err = kubeletLike(documents, model); err != nil {
		return nil, err
	}
	for _, s := range surroundings {
		if documents, err = surroundedLike(documents, model, s); err != nil {
			return nil, err
		}
	}
	return join(documents), nil
}

// surroundedLike are documents with what the model has of its surroundings in place of their own.
func surroundedLike(documents, model []document, s surrounding) ([]document, error) {
	isOne := func(d document) bool { return slices.Contains(s.kinds, d.kind) }
	values := make([]*yaml.Node, len(s.fields))
	has := slices.ContainsFunc(model, isOne)
	for i, path := range s.fields {
		values[i] = valueAt(model, []place{{mainKind, path}})
		has = has || values[i] != nil
	}
	if !has && !s.always {
		return documents, nil
	}
	made := slices.DeleteFunc(slices.Clone(documents), isOne)
	for i, path := range s.fields {
		var err error
		if made, err = valued(made, place{mainKind, path}, values[i]); err != nil {
			return nil, err
		}
	}
	for _, d := range model {
		if isOne(d) {
			made = append(made, d)
		}
	}
	return made, nil
}

// acceptingLike is a config that accepts the authorities which a control plane has, and signs by none.
func acceptingLike(config []byte, of v1alpha1.CAAuthority, have Authorities) ([]byte, error) {
	now, err := ReadAuthorities(config, of)
	if err != nil {
		return nil, err
	}
	if len(now.Issuing) == 0 { // The form in which workers only accept.
		have.Accepted, have.Issuing = append([][]byte{have.Issuing}, have.Accepted...), nil
	}
	have.Key = nil
	return WithAuthorities(config, of, have)
}

// kubeletLike are documents with the kubelet that the model has.
func kubeletLike(documents, model []document) ([]document, error) {
	kubelet := followed[0]
	image := valueAt(model, kubelet)
	if image == nil {
		return documents, nil
	}
	return valued(documents, targetOf(documents, nil, kubelet), image)
}

// errNoEndpoint means that a config does not say what a worker has to know.
var errNoEndpoint = errors.New("the config of the control plane does not say at which endpoint the cluster is")

func generatedWorker(provider config.Provider, version string) ([]byte, error) {
	cluster, network := provider.K8sClusterConfig(), provider.K8sNetworkConfig()
	if cluster == nil || cluster.ClusterEndpoint() == nil || network == nil {
		return nil, errNoEndpoint
	}
	contract, err := config.ParseContractFromVersion(version)
	if err != nil {
		return nil, fmt.Errorf("the version of Talos %q: %w", version, err)
	}
	bundle, err := secrets.NewBundleFromConfig(secrets.NewClock(), provider)
	if err != nil {
		return nil, errors.New("the secrets of the cluster cannot be taken from the config of the control plane") // Its words may quote them.
	}
	input, err := generate.NewInput(cluster.ClusterName(), cluster.ClusterEndpoint().String(), constants.DefaultKubernetesVersion,
		generate.WithVersionContract(contract), generate.WithSecretsBundle(bundle), generate.WithDNSDomain(network.DNSDomain()))
	if err != nil {
		return nil, errors.New("no config of a worker can be made from that of the control plane")
	}
	input.PodNet, input.ServiceNet = texts(network.PodCIDRs()), texts(network.ServiceCIDRs())
	made, err := input.Config(machine.TypeWorker)
	if err != nil {
		return nil, errors.New("no config of a worker can be made from that of the control plane")
	}
	documents, err := encode(made)
	if err != nil {
		return nil, err
	}
	return join(documents), nil
}

func texts(prefixes []netip.Prefix) []string {
	list := make([]string, len(prefixes))
	for i, prefix := range prefixes {
		list[i] = prefix.String()
	}
	return list
}
