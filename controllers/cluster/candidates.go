// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/cluster/identity"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// lookupTimeout bounds the question what the name of an endpoint means.
const lookupTimeout = 2 * time.Second

// shared knows the addresses that stand for the whole cluster: a virtual IP that wanders from machine to machine, a load balancer.
type shared struct {
	hosts  []string
	lookup func(ctx context.Context, host string) ([]string, error)
}

// endpointHosts are the hosts of the Kubernetes API of a target.
func endpointHosts(server string, cluster *v1alpha1.TalosCluster) []string {
	var hosts []string
	if parsed, err := url.Parse(server); err == nil && parsed.Hostname() != "" {
		hosts = append(hosts, parsed.Hostname())
	}
	if cluster.Spec.ControlPlaneEndpoint != nil {
		hosts = append(hosts, cluster.Spec.ControlPlaneEndpoint.Host)
	}
	return hosts
}

// addresses resolves what is a name. A name service that is away leaves out what it would have told.
func (s shared) addresses(ctx context.Context) map[string]bool {
	all := map[string]bool{}
	for _, host := range s.hosts {
		if address, ok := identity.Address(host); ok {
			all[address] = true
			continue
		}
		asked, cancel := context.WithTimeout(ctx, lookupTimeout)
		resolved, err := s.lookup(asked, host)
		cancel()
		if err != nil {
			continue
		}
		for _, address := range identity.Addresses(resolved) {
			all[address] = true
		}
	}
	return all
}

// candidate is a machine that somebody tells of.
type candidate struct {
	host      string
	addresses []string // Usable ones, in the order of who tells.
	role      v1alpha1.MachineRole
}

// candidates are the addresses to ask, with roles: one per machine. Talos' discovery may be off, and then the Nodes tell.
type candidates struct {
	roles       map[string]v1alpha1.MachineRole
	unaddressed []string

	known []candidate
	// literal are the addresses of the endpoints as far as they are written as such.
	literal map[string]bool
}

func newCandidates(ctx context.Context, endpoints shared, recorded []v1alpha1.TalosMachine, members []talos.Member, nodes []kube.Node) *candidates {
	c := &candidates{roles: map[string]v1alpha1.MachineRole{}, literal: map[string]bool{}}
	for _, address := range identity.Addresses(endpoints.hosts) {
		c.literal[address] = true
	}
	for i := range recorded {
		if machine := &recorded[i]; machine.Spec.Address != "" { // As it is: people may know better.
			address, _ := identity.Address(machine.Spec.Address)
			c.known = append(c.known, candidate{machine.Status.NodeName, []string{cmp.Or(address, machine.Spec.Address)}, machine.Spec.Role})
			c.roles[machine.Spec.Address] = machine.Spec.Role
		}
	}
	// What the endpoints mean is asked when it matters: for a machine that is new.
	var taken map[string]bool
	avoid := func() map[string]bool {
		if taken == nil {
			taken = endpoints.addresses(ctx)
		}
		return taken
	}
	c.add(fromMembers(members), avoid)
	c.add(fromNodes(nodes), avoid)
	return c
}

func fromMembers(members []talos.Member) []candidate {
	list := make([]candidate, 0, len(members))
	for _, member := range members {
		list = append(list, candidate{member.Hostname, identity.Addresses(member.Addresses), roleOf(member.ControlPlane)})
	}
	return list
}

func fromNodes(nodes []kube.Node) []candidate {
	list := make([]candidate, 0, len(nodes))
	for _, node := range nodes {
		if node.RunsTalos() && len(node.Addresses) > 0 {
			list = append(list, candidate{node.Name, identity.Addresses(node.Addresses), roleOf(node.ControlPlane)})
		}
	}
	return list
}

// add adds what one source tells, and leaves out the machines that others have told of.
func (c *candidates) add(source []candidate, avoid func() map[string]bool) {
	var added []candidate
	for _, one := range source {
		if c.tells(source, one) {
			continue
		}
		address := own(one, source, avoid())
		if address == "" {
			if one.host != "" {
				c.unaddressed = append(c.unaddressed, one.host)
			}
			continue
		}
		c.roles[address] = one.role
		added = append(added, one)
	}
	c.known = append(c.known, added...)
	slices.Sort(c.unaddressed)
}

// tells says whether a machine is known, by any of its addresses or by its name, and notes what is new about it. A name means something
// only if one machine has it, here and there.
func (c *candidates) tells(source []candidate, one candidate) bool {
	byAddress := slices.IndexFunc(c.known, func(k candidate) bool { return overlap(k.addresses, one.addresses) })
	if byAddress >= 0 {
		c.learn(byAddress, source, one)
		return true
	}
	byName := -1
	for i, k := range c.known {
		if !identity.SameHost(k.host, one.host) {
			continue
		}
		if byName >= 0 {
			return false
		}
		byName = i
	}
	namesakes := 0
	for _, other := range source {
		if identity.SameHost(other.host, one.host) {
			namesakes++
		}
	}
	if byName < 0 || namesakes > 1 {
		return false
	}
	c.learn(byName, source, one)
	return true
}

// learn adds the addresses that a source tells of a known machine, but for those that say nothing about it.
func (c *candidates) learn(known int, source []candidate, one candidate) {
	for _, address := range alone(one, source) {
		if !c.literal[address] {
			c.known[known].addresses = append(c.known[known].addresses, address)
		}
	}
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(address string) bool { return slices.Contains(b, address) })
}

// own is the first address that no other machine of the source has and that does not stand for the whole cluster. A machine that has no
// other may be reached at the endpoint: that is what a cluster with one control plane looks like.
func own(one candidate, source []candidate, avoid map[string]bool) string {
	addresses := alone(one, source)
	for _, address := range addresses {
		if !avoid[address] {
			return address
		}
	}
	if len(addresses) > 0 {
		return addresses[0]
	}
	return ""
}

// alone are the addresses that no other machine of the source has.
func alone(one candidate, source []candidate) []string {
	return slices.DeleteFunc(slices.Clone(one.addresses), func(address string) bool {
		owners := 0
		for _, other := range source {
			if slices.Contains(other.addresses, address) {
				owners++
			}
		}
		return owners > 1
	})
}
