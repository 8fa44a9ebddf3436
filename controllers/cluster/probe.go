// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

// probe is one look at a whole target, for its conditions and for discovery. Two probes of the same state are equal.
type probe struct {
	// credentials says why a credential cannot be used; nothing if both can.
	credentials credentialTrouble

	// expires is when the first of the two client certificates ends.
	expires time.Time

	// kubernetesVersion and nodes are what the Kubernetes API tells; kubeTrouble says why it tells nothing.
	kubernetesVersion string
	nodes             []kube.Node
	kubeTrouble       string

	// machines are the machines that were found, by address; talosTrouble says why Talos told of none.
	machines     map[string]found
	talosTrouble string

	// owner is who manages the target, as far as it is written down there.
	owner ownership
}

// credentialTrouble is what is wrong with a credential.
type credentialTrouble struct{ reason, message string }

// found is a machine that discovery came upon.
type found struct {
	address string
	role    v1alpha1.MachineRole
	facts   talos.Machine
	etcd    *talos.Etcd
	// trouble says why facts are not known; etcdTrouble why etcd is not.
	trouble, etcdTrouble string
}

// prober takes probes.
type prober struct {
	credentials *credentials.Store
	talos       talos.Provider
	kube        kube.Provider
}

func (p prober) probe(ctx context.Context, facts targets.Facts) probe {
	t := facts.Target()
	var seen probe
	p.checkCredentials(ctx, t, &seen)
	if seen.credentials.reason != "" {
		return seen
	}
	p.askKubernetes(ctx, t, &seen)
	if seen.kubeTrouble == "" {
		seen.owner = p.askOwner(ctx, t, facts.Cluster)
	} else {
		seen.owner.trouble = seen.kubeTrouble
	}
	p.askTalos(ctx, t, facts.Machines, &seen)
	return seen
}

func (p prober) checkCredentials(ctx context.Context, t target.Target, seen *probe) {
	kubeconfig, err := p.credentials.Kubeconfig(ctx, t)
	if err != nil {
		seen.credentials = troubleWith(err)
		return
	}
	talosconfig, err := p.credentials.Talosconfig(ctx, t)
	if err != nil {
		seen.credentials = troubleWith(err)
		return
	}
	seen.expires = talosconfig.Expires
	if !kubeconfig.Expires.IsZero() && kubeconfig.Expires.Before(seen.expires) {
		seen.expires = kubeconfig.Expires
	}
}

func troubleWith(err error) credentialTrouble {
	if errors.Is(err, credentials.ErrMissing) {
		return credentialTrouble{v1alpha1.CredentialsMissingReason, err.Error()}
	}
	return credentialTrouble{v1alpha1.CredentialsInvalidReason, err.Error()}
}

func (p prober) askKubernetes(ctx context.Context, t target.Target, seen *probe) {
	reader, err := p.kube.Reader(ctx, t)
	if err != nil {
		seen.kubeTrouble = kube.Trouble(err)
		return
	}
	if seen.kubernetesVersion, err = reader.Version(ctx); err != nil {
		seen.kubeTrouble = kube.Trouble(err)
		return
	}
	if seen.nodes, err = reader.Nodes(ctx); err != nil {
		seen.kubeTrouble = kube.Trouble(err)
	}
}

// askTalos asks every machine that is recorded, that Talos' discovery knows, or that has a Node.
func (p prober) askTalos(ctx context.Context, t target.Target, recorded []v1alpha1.TalosMachine, seen *probe) {
	reader, err := p.talos.Reader(ctx, t)
	if err != nil {
		seen.talosTrouble = talos.Trouble(err)
		return
	}
	members, err := reader.Members(ctx)
	if err != nil {
		seen.talosTrouble = talos.Trouble(err)
	}
	candidates := candidates(recorded, members, seen.nodes)
	seen.machines = make(map[string]found, len(candidates))
	var mu sync.Mutex
	var group sync.WaitGroup
	for address, role := range candidates {
		group.Go(func() {
			machine := ask(ctx, reader, address, role)
			mu.Lock()
			defer mu.Unlock()
			seen.machines[address] = machine
		})
	}
	group.Wait()
}

func ask(ctx context.Context, reader talos.Reader, address string, role v1alpha1.MachineRole) found {
	machine := found{address: address, role: role}
	var err error
	if machine.facts, err = reader.Machine(ctx, address); err != nil {
		machine.trouble = talos.Trouble(err)
		return machine
	}
	if role != v1alpha1.ControlPlaneRole {
		return machine
	}
	etcd, err := reader.Etcd(ctx, address)
	if err != nil {
		machine.etcdTrouble = talos.Trouble(err)
		return machine
	}
	machine.etcd = &etcd
	return machine
}

// candidates are the addresses to ask, with roles: one per machine. Talos' discovery may be off, and then the Nodes tell.
func candidates(recorded []v1alpha1.TalosMachine, members []talos.Member, nodes []kube.Node) map[string]v1alpha1.MachineRole {
	roles := map[string]v1alpha1.MachineRole{}
	known := map[string]bool{} // By any address or host name.
	add := func(role v1alpha1.MachineRole, host string, addresses []string) {
		names := slices.Clone(addresses)
		if host != "" { // A record whose status is lost has none, and two of those are two machines.
			names = append(names, strings.ToLower(host))
		}
		if slices.ContainsFunc(names, func(name string) bool { return known[name] }) {
			return
		}
		for _, name := range names {
			known[name] = true
		}
		roles[addresses[0]] = role
	}
	for i := range recorded {
		if machine := &recorded[i]; machine.Spec.Address != "" {
			add(machine.Spec.Role, machine.Status.NodeName, []string{machine.Spec.Address})
		}
	}
	for _, member := range members {
		if len(member.Addresses) > 0 {
			add(roleOf(member.ControlPlane), member.Hostname, member.Addresses)
		}
	}
	for _, node := range nodes {
		if len(node.Addresses) > 0 {
			add(roleOf(node.ControlPlane), node.Name, node.Addresses)
		}
	}
	return roles
}

func roleOf(controlPlane bool) v1alpha1.MachineRole {
	if controlPlane {
		return v1alpha1.ControlPlaneRole
	}
	return v1alpha1.WorkerRole
}
