// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// place is a field of a kind of document.
type place struct {
	kind string
	path []string
}

func (p place) String() string {
	if p.kind == mainKind {
		return strings.Join(p.path, ".")
	}
	return p.kind + "." + strings.Join(p.path, ".")
}

func field(kind, dotted string) place { return place{kind, strings.Split(dotted, ".")} }

// followed are what a roll-out of configs never changes: a machine keeps its own, whatever its base and the patches say. These are the
// versions of what runs, which operations of their own change, and the keys and authorities of the cluster, which a rotation changes. A field
// is listed in all the documents that may hold it.
var followed = [][]place{
	{field(mainKind, "machine.kubelet.image"), field("KubeletConfig", "image")},
	{field(mainKind, "machine.install.image"), field("UnattendedInstallConfig", "image")},
	{field(mainKind, "cluster.apiServer.image"), field("KubeAPIServerConfig", "image")},
	{field(mainKind, "cluster.controllerManager.image"), field("KubeControllerManagerConfig", "image")},
	{field(mainKind, "cluster.scheduler.image"), field("KubeSchedulerConfig", "image")},
	{field(mainKind, "cluster.proxy.image"), field("KubeProxyConfig", "image")},
	{field(mainKind, "cluster.etcd.image")},
	{field(mainKind, "machine.type")},
	{field(mainKind, "machine.token")},
	{field(mainKind, "machine.ca")},
	{field(mainKind, "machine.acceptedCAs")},
	{field(mainKind, "cluster.id")},
	{field(mainKind, "cluster.secret")},
	{field(mainKind, "cluster.token")},
	{field(mainKind, "cluster.secretboxEncryptionSecret")},
	{field(mainKind, "cluster.aescbcEncryptionSecret")},
	{field(mainKind, "cluster.ca")},
	{field(mainKind, "cluster.acceptedCAs")},
	{field(mainKind, "cluster.aggregatorCA")},
	{field(mainKind, "cluster.serviceAccount")},
	{field(mainKind, "cluster.etcd.ca")},
}

// followedDocuments are documents that hold nothing but keys and authorities.
var followedDocuments = []string{
	"KubeAPIServerCAConfig", "KubeAggregatorCAConfig", "KubeServiceAccountConfig", "KubeEtcdEncryptionConfig", "DiscoveryIdentityConfig",
}

// follow gives documents what the machine's own have in the followed fields, and says which of these it had to take back. All are in normal
// form.
func follow(documents, own []document) (made []document, kept []string) {
	made, kept = followDocuments(documents, own)
	for _, places := range followed {
		value := valueAt(own, places)
		target := targetOf(made, own, places)
		for i, d := range made {
			for _, p := range places {
				if p.kind != d.kind {
					continue
				}
				wanted := value
				if !slices.Equal(p.path, target.path) || p.kind != target.kind {
					wanted = nil
				}
				if equal(at(d.tree, p.path), wanted) {
					continue
				}
				kept = append(kept, p.String())
				d.tree = copyOf(d.tree, 0)
				set(d.tree, p.path, wanted)
				d.raw = written(d.tree)
				made[i] = d
			}
		}
	}
	return made, kept
}

// valueAt is what the machine has of a field, wherever it has it.
func valueAt(own []document, places []place) *yaml.Node {
	for _, p := range places {
		for _, d := range own {
			if value := at(d.tree, p.path); d.kind == p.kind && value != nil {
				return value
			}
		}
	}
	return nil
}

// targetOf is where a field goes: where the documents have it, else where the machine has it.
func targetOf(documents, own []document, places []place) place {
	for _, list := range [][]document{documents, own} {
		for _, p := range places {
			if slices.ContainsFunc(list, func(d document) bool { return d.kind == p.kind && at(d.tree, p.path) != nil }) {
				return p
			}
		}
	}
	return places[0]
}

func followDocuments(documents, own []document) (made []document, kept []string) {
	whole := func(d document) bool { return slices.Contains(followedDocuments, d.kind) }
	for _, d := range documents {
		if !whole(d) {
			made = append(made, d)
			continue
		}
		if now, there := withID(own, d.id()); !there || !equal(d.tree, now.tree) {
			kept = append(kept, d.id())
		}
	}
	for _, d := range own {
		if whole(d) {
			made = append(made, d)
		}
	}
	return made, kept
}

// equal says whether two trees say the same.
func equal(a, b *yaml.Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	before, after := leavesOf(a), byPath(leavesOf(b))
	if len(before) != len(after) {
		return false
	}
	return !slices.ContainsFunc(before, func(l leaf) bool {
		other, there := after[l.path.String()]
		return !there || !same(l, other)
	})
}

// set puts a value at a path of keys, or takes away what is there. Mappings on the way are made, and left out where nothing is left in them.
func set(tree *yaml.Node, keys []string, value *yaml.Node) {
	if len(keys) == 1 {
		put1(tree, keys[0], value)
		return
	}
	next := find(tree, keys[0])
	if next == nil || next.Kind != yaml.MappingNode {
		if value == nil {
			return
		}
		next = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		put1(tree, keys[0], next)
	}
	set(next, keys[1:], value)
	if len(next.Content) == 0 {
		put1(tree, keys[0], nil)
	}
}

// put1 puts a value at a key of a mapping, or takes the key away.
func put1(mapping *yaml.Node, key string, value *yaml.Node) {
	if len(mapping.Content) == 0 {
		mapping.Style = 0 // What was written as {} holds lines now.
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		switch {
		case mapping.Content[i].Value != key:
		case value == nil:
			mapping.Content = slices.Delete(mapping.Content, i, i+2)
			return
		default:
			mapping.Content[i+1] = copyOf(value, 0)
			return
		}
	}
	if value == nil {
		return
	}
	if value.Kind != yaml.MappingNode || len(value.Content) > 0 {
		value = copyOf(value, 0)
	}
	mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, value)
}
