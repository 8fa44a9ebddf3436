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

// Joining is what the config of a machine that joins a cluster is made from.
type Joining struct {
	// Model is the config in force on a machine of the same role, and Siblings those on the others of it. What they have in common is the
	// role's; the versions, keys and authorities are the cluster's as they are now.
	Model    []byte
	Siblings [][]byte

	// Own are the addresses and names of the model itself.
	Own []string

	// Patches are those of the cluster that are for the machine, in order.
	Patches []v1alpha1.MachineConfigPatch

	// Hostname is what the machine is called; empty leaves that to Talos.
	Hostname string

	// Disk is where Talos is installed, and Image the installer.
	Disk, Image string
}

// networkKinds are documents that say which network a machine has. They are one machine's own.
var networkKinds = []string{
	"BGPInstanceConfig", "BlackholeRouteConfig", "BondConfig", "BridgeConfig", "DHCPv4Config", "DHCPv6Config", "DummyLinkConfig", "EthernetConfig",
	"HCloudVIPConfig", "Layer2VIPConfig", "LinkAliasConfig", "LinkConfig", "RoutingRuleConfig", "VLANConfig", "VRFConfig", "VethConfig",
	"WireguardConfig",
}

// installKind is the document in which Talos 1.14 has what is installed where.
const installKind = "UnattendedInstallConfig"

// hostnameKind is the document in which Talos 1.12 and later have the name of a machine.
const hostnameKind = "HostnameConfig"

// ownFields are fields of the main document that are one machine's own.
var ownFields = [][]string{
	{"machine", "network", "hostname"}, {"machine", "network", "interfaces"}, {"machine", "disks"}, {"machine", "install", "diskSelector"},
}

// sharedMaps are fields whose entries are the role's where all machines of it have them, and else one machine's own.
var sharedMaps = []place{
	field(mainKind, "machine.nodeLabels"), field(mainKind, "machine.nodeAnnotations"), field(mainKind, "machine.nodeTaints"),
	field("KubeNodeConfig", "labels"), field("KubeNodeConfig", "annotations"), field("KubeNodeConfig", "taints"),
}

// ownNames are lists that may have the addresses and names of one machine in them.
var ownNames = []place{field(mainKind, "machine.certSANs"), field(mainKind, "cluster.apiServer.certSANs"), field("KubeAPIServerConfig", "certExtraSANs")}

// Join returns the base of a machine that joins, and the whole config that it shall have: the base with the patches over it, and with the
// versions, keys and authorities that the model has.
func Join(in Joining) (base, whole []byte, err error) {
	own, err := split(in.Model)
	if err != nil {
		return nil, nil, fmt.Errorf("the config of the model: %w", err)
	}
	documents := withoutOwn(own, in)
	if documents, err = named(documents, own, in.Hostname); err != nil {
		return nil, nil, err
	}
	if documents, err = onto(documents, in.Disk, in.Image); err != nil {
		return nil, nil, err
	}
	base = join(documents)
	active, err := normal(own)
	if err != nil {
		return nil, nil, fmt.Errorf("the config of the model: %w", err)
	}
	r := rendered{active: active}
	if err := r.patch(Input{Base: base, Patches: in.Patches, Active: in.Model}); err != nil {
		return nil, nil, err
	}
	if r.now, err = installing(r.now, in.Image); err != nil { // The model's own was followed.
		return nil, nil, err
	}
	if objection := validate(r.now); objection != nil {
		if before := validate(active); before == nil || before.Error() != objection.Error() { // The model lives with it.
			return nil, nil, fmt.Errorf("refused by Talos: %w", objection)
		}
	}
	return base, join(r.now), nil
}

// withoutOwn is what is left of a config once everything is taken out that is the model's own.
func withoutOwn(documents []document, in Joining) []document {
	siblings := make([][]document, 0, len(in.Siblings))
	for _, sibling := range in.Siblings {
		if other, err := split(sibling); err == nil {
			siblings = append(siblings, other)
		}
	}
	var made []document
	for _, d := range documents {
		if slices.Contains(networkKinds, d.kind) || d.kind == hostnameKind {
			continue
		}
		tree := copyOf(d.tree, 0)
		if d.kind == mainKind {
			for _, path := range ownFields {
				set(tree, path, nil)
			}
		}
		for _, p := range sharedMaps {
			if p.kind == d.kind {
				keepShared(tree, p, siblings)
			}
		}
		for _, p := range ownNames {
			if p.kind == d.kind {
				leaveOut(tree, p.path, in.Own)
			}
		}
		if !equal(tree, d.tree) {
			d.tree, d.raw = tree, written(tree)
		}
		made = append(made, d)
	}
	return made
}

// keepShared leaves of a map the entries that all siblings have as well.
func keepShared(tree *yaml.Node, where place, siblings [][]document) {
	entries := at(tree, where.path)
	if entries == nil || entries.Kind != yaml.MappingNode {
		return
	}
	for _, entry := range pairsOf(entries) {
		path := append(slices.Clip(where.path), entry.key)
		shared := !slices.ContainsFunc(siblings, func(other []document) bool {
			return !equal(valueAt(other, []place{{where.kind, path}}), entry.value)
		})
		if !shared {
			set(tree, path, nil)
		}
	}
}

// leaveOut leaves entries out of a list, and the list where nothing is left of it.
func leaveOut(tree *yaml.Node, path, entries []string) {
	list := at(tree, path)
	if list == nil || list.Kind != yaml.SequenceNode {
		return
	}
	kept := slices.DeleteFunc(slices.Clone(list.Content), func(item *yaml.Node) bool { return slices.Contains(entries, resolve(item).Value) })
	if len(kept) == len(list.Content) {
		return
	}
	if len(kept) == 0 {
		set(tree, path, nil)
		return
	}
	left := *list
	left.Content = kept
	set(tree, path, &left)
}

func scalar(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

// named gives the machine its name, in the form that the model has.
func named(documents, model []document, hostname string) ([]document, error) {
	form := slices.IndexFunc(model, func(d document) bool { return d.kind == hostnameKind })
	switch {
	case hostname == "" && form < 0:
		return documents, nil
	case form < 0:
		return valued(documents, place{mainKind, []string{"machine", "network", "hostname"}}, scalar(hostname))
	}
	text := "apiVersion: v1alpha1\nkind: " + hostnameKind + "\nauto: stable\n"
	if hostname != "" {
		text = "apiVersion: v1alpha1\nkind: " + hostnameKind + "\nhostname: " + hostname + "\n"
	}
	d, err := parse([]byte(text))
	if err != nil {
		return nil, err
	}
	return append(slices.Clone(documents), d), nil
}

// onto says on which disk Talos is installed.
func onto(documents []document, disk, image string) ([]document, error) {
	where := place{mainKind, []string{"machine", "install", "disk"}}
	value := disk
	if hasKind(documents, installKind) {
		where, value = place{installKind, []string{"provisioning", "diskSelector", "match"}}, fmt.Sprintf("disk.dev_path == %q", disk)
	}
	documents, err := valued(documents, where, scalar(value))
	if err != nil {
		return nil, err
	}
	return installing(documents, image)
}

// installing says which installer installs it.
func installing(documents []document, image string) ([]document, error) {
	where := place{mainKind, []string{"machine", "install", "image"}}
	if hasKind(documents, installKind) {
		where = place{installKind, []string{"installer", "image"}}
	}
	return valued(documents, where, scalar(image))
}

// valued are documents with another value at a place.
func valued(documents []document, where place, value *yaml.Node) ([]document, error) {
	i := slices.IndexFunc(documents, func(d document) bool { return d.kind == where.kind })
	if i < 0 {
		return nil, errNoMain
	}
	made := slices.Clone(documents)
	made[i].tree = copyOf(made[i].tree, 0)
	set(made[i].tree, where.path, value)
	made[i].raw = written(made[i].tree)
	return made, nil
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
	return kubeletLike(generated, controlPlane)
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

// kubeletLike is a config with the kubelet that another one has.
func kubeletLike(config, other []byte) ([]byte, error) {
	documents, err := split(config)
	if err != nil {
		return nil, err
	}
	model, err := split(other)
	if err != nil {
		return nil, err
	}
	kubelet := followed[0]
	image := valueAt(model, kubelet)
	if image == nil {
		return config, nil
	}
	where := targetOf(documents, nil, kubelet)
	if documents, err = valued(documents, where, image); err != nil {
		return nil, err
	}
	return join(documents), nil
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

// InstalledBy says which disk, and which installer, a config that Join made names.
func InstalledBy(config []byte) (disk, image string, err error) {
	documents, err := split(config)
	if err != nil {
		return "", "", err
	}
	disks := valueAt(documents, []place{field(mainKind, "machine.install.disk"), field(installKind, "provisioning.diskSelector.match")})
	images := valueAt(documents, []place{field(mainKind, "machine.install.image"), field(installKind, "installer.image")})
	if disks == nil || images == nil {
		return "", "", errors.New("the machine config does not say where Talos is installed, and which")
	}
	disk = disks.Value
	if _, err := fmt.Sscanf(disk, "disk.dev_path == %q", &disk); err != nil {
		disk = disks.Value
	}
	return disk, images.Value, nil
}
