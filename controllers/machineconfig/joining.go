// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Joining is what the config of a machine that joins a cluster is made from.
type Joining struct {
	// Model is the config in force on a machine of the same role, and Siblings those on the others of it. What they have in common is the
	// role's; the versions, keys and authorities are the cluster's as they are now.
	Model    []byte
	Siblings [][]byte

	// Base is the config to which patches are applied on the model; empty where nobody knows it, and then Model stands for it. What patches
	// have brought there is not in it: some of them may be for the model alone, and others may be taken away.
	Base []byte

	// Own are the addresses and names of the model itself, beside those in its config.
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

// Joined is what Join makes.
type Joined struct {
	// Base is the base of the machine, and Whole the config that it shall have: the base with the patches over it, and with the versions, keys
	// and authorities that the model has.
	Base, Whole []byte

	// Left is what the model has and the machine does not get, as far as somebody may miss it.
	Left []string
}

// Join makes the config of a machine that joins.
func Join(in Joining) (Joined, error) {
	own, err := split(in.Model)
	if err != nil {
		return Joined{}, fmt.Errorf("the config of the model: %w", err)
	}
	from := own
	if len(in.Base) > 0 {
		if from, err = split(in.Base); err != nil {
			return Joined{}, fmt.Errorf("the base config of the model: %w", err)
		}
	}
	if err := in.knowModel(own); err != nil {
		return Joined{}, err
	}
	siblings := in.siblings()
	documents, left := forgetDisks(withoutOwn(from, in, siblings), siblings)
	for _, step := range []func([]document) ([]document, error){
		func(d []document) ([]document, error) { return named(d, slices.Concat(from, own), in.Hostname) },
		func(d []document) ([]document, error) { return onto(d, in.Disk, in.Image) },
		joinsEtcd,
	} {
		if documents, err = step(documents); err != nil {
			return Joined{}, err
		}
	}
	now, err := in.over(documents, own)
	if err != nil {
		return Joined{}, err
	}
	if err := leftOver(documents, now, in, siblings); err != nil {
		return Joined{}, err
	}
	return Joined{Base: join(documents), Whole: join(now), Left: append(left, sharedAddresses(own)...)}, nil
}

// knowModel takes from the config of the model by what else it is known.
func (in *Joining) knowModel(own []document) error {
	names, err := NamesIn(in.Model)
	if err != nil {
		return err
	}
	in.Own = slices.Concat(in.Own, names, ownAddresses(own))
	return nil
}

// siblings are those that can be read.
func (in *Joining) siblings() [][]document {
	siblings := make([][]document, 0, len(in.Siblings))
	for _, sibling := range in.Siblings {
		if other, err := split(sibling); err == nil {
			siblings = append(siblings, other)
		}
	}
	return siblings
}

// over is what the patches make of a base, with what the model has of the fields that operations of their own change.
func (in *Joining) over(base, own []document) ([]document, error) {
	active, err := normal(own)
	if err != nil {
		return nil, fmt.Errorf("the config of the model: %w", err)
	}
	r := rendered{active: active}
	if err := r.patch(Input{Base: join(base), Patches: in.Patches, Active: in.Model}); err != nil {
		return nil, err
	}
	if r.now, err = installing(r.now, in.Image); err != nil { // The model's own was followed.
		return nil, err
	}
	if r.now, err = joinsEtcd(r.now); err != nil { // Likewise.
		return nil, err
	}
	if err := noEtcdOfItsOwn(r.now); err != nil {
		return nil, err
	}
	if objection := validate(r.now); objection != nil {
		if before := validate(active); before == nil || before.Error() != objection.Error() { // The model lives with it.
			return nil, fmt.Errorf("refused by Talos: %w", objection)
		}
	}
	return r.now, nil
}

// withoutOwn is what is left of a config once everything is taken out that is the model's own.
func withoutOwn(documents []document, in Joining, siblings [][]document) []document {
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

// scalarsOf are the scalars of a value that hold something: arguments are one, or a list.
func scalarsOf(value *yaml.Node) []leaf {
	return slices.DeleteFunc(leavesOf(value), func(l leaf) bool { return l.value() == "" })
}

// NamesIn are the names that a config gives its machine and its node; none where it leaves that to Talos.
func NamesIn(config []byte) ([]string, error) {
	documents, err := split(config)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, where := range [][]place{
		{field(mainKind, "machine.network.hostname"), field(hostnameKind, "hostname")},
		{field(mainKind, "machine.kubelet.extraArgs.hostname-override"), field("KubeletConfig", "extraArgs.hostname-override")},
	} {
		for _, name := range scalarsOf(valueAt(documents, where)) {
			names = append(names, name.value())
		}
	}
	return names, nil
}

// InstallerIn is the installer that a config names, if it names one.
func InstallerIn(config []byte) string {
	documents, err := split(config)
	if err != nil {
		return ""
	}
	if image := valueAt(documents, installers); image != nil {
		return image.Value
	}
	return ""
}

// installers is where a config names the installer.
var installers = []place{field(mainKind, "machine.install.image"), field(installKind, "installer.image")}

// InstalledBy says which disk, and which installer, a config that Join made names.
func InstalledBy(config []byte) (disk, image string, err error) {
	documents, err := split(config)
	if err != nil {
		return "", "", err
	}
	disks := valueAt(documents, []place{field(mainKind, "machine.install.disk"), field(installKind, "provisioning.diskSelector.match")})
	images := valueAt(documents, installers)
	if disks == nil || images == nil {
		return "", "", errors.New("the machine config does not say where Talos is installed, and which")
	}
	disk = disks.Value
	if _, err := fmt.Sscanf(disk, "disk.dev_path == %q", &disk); err != nil {
		disk = disks.Value
	}
	return disk, images.Value, nil
}
