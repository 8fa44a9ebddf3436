// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// volumeKinds are documents about disks that are not the system's. They are one machine's own where they name a single disk.
var volumeKinds = []string{"ExistingVolumeConfig", "LVMVolumeGroupConfig", "RAIDArrayConfig", "RawVolumeConfig", "SwapVolumeConfig", "UserVolumeConfig"}

// logicalKind is a volume on a group of the kind groupKind.
const (
	logicalKind = "LVMLogicalVolumeConfig"
	groupKind   = "LVMVolumeGroupConfig"
)

// systemVolumeKind is the document about a volume that every machine has. Without a selector it is on the system's disk.
const systemVolumeKind = "VolumeConfig"

// oneDisk is what a selector names that picks one disk of one machine.
var oneDisk = regexp.MustCompile(`\b(serial|wwid|dev_path|parent_dev_path|uuid|partition_uuid|symlinks)\b`)

// vipKinds are documents of addresses that control planes share.
var vipKinds = []string{"HCloudVIPConfig", "Layer2VIPConfig"}

// perMachine are arguments whose value is one machine's own, whatever it says.
var perMachine = []place{
	field(mainKind, "machine.kubelet.extraArgs.provider-id"), field("KubeletConfig", "extraArgs.provider-id"),
	field(mainKind, "machine.kubelet.extraArgs.node-ip"), field("KubeletConfig", "extraArgs.node-ip"),
	field(mainKind, "machine.kubelet.extraArgs.hostname-override"), field("KubeletConfig", "extraArgs.hostname-override"),
	field(mainKind, "cluster.apiServer.extraArgs.advertise-address"), field("KubeAPIServerConfig", "extraArgs.advertise-address"),
	field(mainKind, "cluster.etcd.extraArgs.advertise-client-urls"), field(mainKind, "cluster.etcd.extraArgs.initial-advertise-peer-urls"),
}

// everybodys are fields that say of the cluster, or of others, what holds on every machine: who is named there is not the machine itself. The
// new machine's own name is looked at by itself, and so is what is installed there.
var everybodys = slices.Concat(ownNames, []place{
	field(mainKind, "cluster.clusterName"), field(mainKind, "cluster.controlPlane"), field(mainKind, "cluster.network"),
	field(mainKind, "cluster.inlineManifests"), field(mainKind, "cluster.extraManifests"), field(mainKind, "cluster.discovery"),
	field(mainKind, "machine.network.extraHostEntries"), field(mainKind, "machine.network.nameservers"), field(mainKind, "machine.time"),
	field(mainKind, "machine.registries"), field(mainKind, "machine.install"), field(mainKind, "machine.network.hostname"),
})

// everybodysKinds are documents of that sort.
var everybodysKinds = []string{
	"DiscoveryServiceConfig", "KubeClusterConfig", "KubeExternalManifestConfig", "KubeInlineManifestConfig", "KubeNetworkConfig",
	"RegistryAuthConfig", "RegistryMirrorConfig", "RegistryTLSConfig", "ResolverConfig", "StaticHostConfig", "TimeSyncConfig",
	hostnameKind, installKind,
}

// beginsEtcd are arguments with which an etcd begins by itself, or counts on members that are named there.
const beginsEtcd = "initial-cluster"

// forgetDisks leaves out what names disks that only the model has, and says what that is. What all siblings have as well is the role's.
func forgetDisks(documents []document, siblings [][]document) (made []document, left []string) {
	groups := map[string]bool{}
	for _, d := range documents {
		switch {
		case slices.Contains(volumeKinds, d.kind) && namesDisk(d.tree) && !everySibling(siblings, d):
			left = append(left, d.id())
			groups[d.name] = groups[d.name] || d.kind == groupKind
			continue
		case d.kind == systemVolumeKind && namesDisk(at(d.tree, []string{"provisioning", "diskSelector"})) && !everySibling(siblings, d):
			left = append(left, "the disk of "+d.id())
			d.tree = copyOf(d.tree, 0)
			set(d.tree, []string{"provisioning", "diskSelector"}, nil)
			d.raw = written(d.tree)
		}
		made = append(made, d)
	}
	return slices.DeleteFunc(made, func(d document) bool {
		group := at(d.tree, []string{"volumeGroup"})
		return d.kind == logicalKind && group != nil && groups[group.Value]
	}), left
}

func namesDisk(tree *yaml.Node) bool {
	return slices.ContainsFunc(leavesOf(tree), func(l leaf) bool { return oneDisk.MatchString(l.value()) })
}

// everySibling says whether there are siblings, and all have a document as it is.
func everySibling(siblings [][]document, d document) bool {
	return len(siblings) > 0 && !slices.ContainsFunc(siblings, func(other []document) bool {
		theirs, there := withID(other, d.id())
		return !there || !equal(theirs.tree, d.tree)
	})
}

// sharedAddresses are the virtual IPs in a config: they go with its network, which is not taken over.
func sharedAddresses(documents []document) []string {
	var list []string
	for _, d := range documents {
		if slices.Contains(vipKinds, d.kind) {
			list = append(list, "virtual IP "+d.name)
		}
		if d.kind != mainKind {
			continue
		}
		for _, l := range leavesOf(at(d.tree, []string{"machine", "network", "interfaces"})) {
			if keys := l.path.keys(); slices.Contains(keys, "vip") && l.path.last() == "ip" {
				list = append(list, "virtual IP "+l.value())
			}
		}
	}
	return list
}

// ownAddresses are the addresses that a config gives its machine.
func ownAddresses(documents []document) []string {
	var list []string
	for _, d := range documents {
		tree := d.tree
		switch {
		case d.kind == mainKind:
			tree = at(tree, []string{"machine", "network", "interfaces"})
		case !slices.Contains(networkKinds, d.kind):
			continue
		}
		for _, l := range leavesOf(tree) {
			if keys := l.path.keys(); !slices.Contains(keys, "addresses") && !slices.Contains(keys, "cidr") {
				continue
			}
			if prefix, err := netip.ParsePrefix(l.value()); err == nil {
				list = append(list, prefix.Addr().String())
			} else if address, err := netip.ParseAddr(l.value()); err == nil {
				list = append(list, address.String())
			}
		}
	}
	return list
}

// leftOver refuses a config in which something is left that is the model's own: what the base of the new machine has of it, and no patch has
// replaced.
func leftOver(base, now []document, in Joining, siblings [][]document) error {
	before, err := normal(base)
	if err != nil {
		return err
	}
	own := slices.DeleteFunc(slices.Clone(in.Own), func(name string) bool { return !strings.ContainsAny(name, "0123456789.-:") }) // A mere word may be anything.
	endpoint := endpointOf(now)
	for _, d := range now {
		old, there := withID(before, d.id())
		if !there || slices.Contains(everybodysKinds, d.kind) || slices.Contains(followedDocuments, d.kind) {
			continue
		}
		was := byPath(leavesOf(old.tree))
		for _, l := range leavesOf(d.tree) {
			of, there := was[l.path.String()]
			if !there || !same(l, of) || isEverybodys(d.kind, l.path.keys()) || everySiblingHas(siblings, d, l) {
				continue
			}
			where := strings.TrimPrefix(d.id()+" "+l.path.String(), mainKind+" ")
			switch value := strings.ReplaceAll(l.value(), endpoint, ""); {
			case within(perMachine, d.kind, l.path.keys()) && !unspecified(value):
				return fmt.Errorf("%s is one machine's own, and that of the machine on which the config is modelled is not for another: set it in a patch for the new machine", where)
			case mentioned(value, own) != "":
				return fmt.Errorf("%s names %s, the machine on which the config is modelled: set it in a patch for the new machine", where, mentioned(value, own))
			}
		}
	}
	return nil
}

func isEverybodys(kind string, keys []string) bool {
	return within(everybodys, kind, keys) || slices.ContainsFunc(followed, func(places []place) bool { return within(places, kind, keys) })
}

// within says whether a path is at one of the places, or below.
func within(places []place, kind string, keys []string) bool {
	return slices.ContainsFunc(places, func(p place) bool {
		return p.kind == kind && len(keys) >= len(p.path) && slices.Equal(keys[:len(p.path)], p.path)
	})
}

func everySiblingHas(siblings [][]document, d document, l leaf) bool {
	return len(siblings) > 0 && !slices.ContainsFunc(siblings, func(other []document) bool {
		theirs, there := withID(other, d.id())
		if !there {
			return true
		}
		value, there := byPath(leavesOf(theirs.tree))[l.path.String()]
		return !there || !same(l, value)
	})
}

// endpointOf is the endpoint of the cluster, which may be the address of a control plane.
func endpointOf(documents []document) string {
	if node := valueAt(documents, []place{field(mainKind, "cluster.controlPlane.endpoint"), field("KubeClusterConfig", "endpoint")}); node != nil && node.Value != "" {
		return node.Value
	}
	return "\x00" // Nothing to leave out.
}

func unspecified(value string) bool {
	address, err := netip.ParseAddr(value)
	return err == nil && address.IsUnspecified()
}

// mentioned is the first of some addresses and names that a text has in it as a whole.
func mentioned(text string, names []string) string {
	for _, name := range names {
		for from := 0; name != ""; {
			i := strings.Index(text[from:], name)
			if i < 0 {
				break
			}
			from += i
			if !goesOn(name, before(text, from)) && !goesOn(name, after(text, from+len(name))) {
				return name
			}
			from++
		}
	}
	return ""
}

func before(text string, i int) byte {
	if i == 0 {
		return 0
	}
	return text[i-1]
}

// after is the next character. A dot that ends nothing but a sentence, or that a domain follows, is none.
func after(text string, i int) byte {
	switch {
	case i >= len(text):
		return 0
	case text[i] == '.' && (i+1 == len(text) || text[i+1] < '0' || text[i+1] > '9'):
		return 0
	}
	return text[i]
}

// goesOn says whether an address or name may go on with a character: then it is another one.
func goesOn(name string, c byte) bool {
	switch {
	case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '-', c == '.':
		return true
	}
	return c == ':' && strings.Contains(name, ":")
}

// joinsEtcd makes of a machine that begins an etcd of its own one that joins that of the others.
func joinsEtcd(documents []document) ([]document, error) {
	where := field(mainKind, "machine.type")
	if kind := valueAt(documents, []place{where}); kind == nil || kind.Value != "init" {
		return documents, nil
	}
	return valued(documents, where, scalar("controlplane"))
}

// noEtcdOfItsOwn refuses arguments that make an etcd begin by itself, or look for members that are not the cluster's.
func noEtcdOfItsOwn(documents []document) error {
	args := valueAt(documents, []place{field(mainKind, "cluster.etcd.extraArgs")})
	if args == nil {
		return nil
	}
	for _, arg := range pairsOf(args) {
		if strings.HasPrefix(arg.key, beginsEtcd) {
			return fmt.Errorf("cluster.etcd.extraArgs.%s says with whom an etcd begins, and this one joins another: take it away", arg.key)
		}
	}
	return nil
}
