// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig/bases"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

// probe is one look at a whole target, for its conditions and for discovery. Two probes of the same state are equal.
type probe struct {
	// kubeconfig and talosconfig say what is wrong with the two credentials.
	kubeconfig, talosconfig credential

	// kubernetesVersion and nodes are what the Kubernetes API tells; kubeTrouble says why it tells nothing.
	kubernetesVersion string
	nodes             []kube.Node
	kubeTrouble       string

	// machines are the machines that were found, by address; talosTrouble says why Talos told of none.
	machines     map[string]found
	talosTrouble string

	// unaddressed are the machines that have no address of their own.
	unaddressed []string

	// owner is who manages the target, as far as it is written down there.
	owner ownership

	// configHash is the hash of the patches that configs were compared with.
	configHash string
}

// found is a machine that discovery came upon.
type found struct {
	address string
	role    v1alpha1.MachineRole
	facts   talos.Machine
	etcd    *talos.Etcd
	// trouble says why facts are not known; etcdTrouble why etcd is not.
	trouble, etcdTrouble string
	// rejected is true if the trouble is with the credentials.
	rejected bool

	// config is how its machine config stands to the one that is asked for; nil where that was not looked at.
	config *configLook
}

// kubernetesPart is which part of a probe's time the Kubernetes API gets, so that a silent one leaves the rest for the machines.
const kubernetesPart = 3

// prober takes probes.
type prober struct {
	credentials *credentials.Store
	talos       talos.Provider
	kube        kube.Provider
	clock       clock.PassiveClock
	lookup      func(ctx context.Context, host string) ([]string, error)

	// configs compares machine configs; nil compares none.
	configs *bases.Comparer
}

func (p prober) probe(ctx context.Context, facts targets.Facts) probe {
	t := facts.Target()
	seen := probe{configHash: facts.Cluster.MachineConfigHash()}
	server := p.checkCredentials(ctx, t, &seen)
	p.askKubernetesAndOwner(ctx, t, facts.Cluster, &seen)
	if !seen.talosconfig.unusable {
		p.askTalos(ctx, t, facts, shared{hosts: endpointHosts(server, facts.Cluster), lookup: p.lookup}, &seen)
	}
	return seen
}

func (p prober) askKubernetesAndOwner(ctx context.Context, t target.Target, cluster *v1alpha1.TalosCluster, seen *probe) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/kubernetesPart)
		defer cancel()
	}
	if !seen.kubeconfig.unusable {
		p.askKubernetes(ctx, t, seen)
	}
	if seen.kubeTrouble == "" && !seen.kubeconfig.unusable {
		seen.owner = p.askOwner(ctx, t, cluster)
	} else {
		seen.owner.trouble = cmp.Or(seen.kubeTrouble, unusableKubeconfig)
	}
}

func (p prober) askKubernetes(ctx context.Context, t target.Target, seen *probe) {
	reader, err := p.kube.Reader(ctx, t)
	if err != nil {
		seen.kubeTrouble = kube.Trouble(err)
		return
	}
	if seen.kubernetesVersion, err = reader.Version(ctx); err == nil {
		seen.nodes, err = reader.Nodes(ctx)
	}
	switch {
	case kube.Rejected(err):
		seen.kubeconfig = credential{v1alpha1.KubeconfigRejectedReason, "kubeconfig: " + kube.Trouble(err), true}
	case err != nil:
		seen.kubeTrouble = kube.Trouble(err)
	}
}

// askTalos asks every machine that is recorded, that Talos' discovery knows, or that has a Node.
func (p prober) askTalos(ctx context.Context, t target.Target, facts targets.Facts, endpoints shared, seen *probe) {
	reader, err := p.talos.Reader(ctx, t)
	if err != nil {
		seen.talosTrouble = talos.Trouble(err)
		return
	}
	members, err := reader.Members(ctx)
	if err != nil {
		seen.talosTrouble = talos.Trouble(err)
	}
	candidates := newCandidates(ctx, endpoints, facts.Machines, members, seen.nodes)
	seen.unaddressed = candidates.unaddressed
	seen.machines = make(map[string]found, len(candidates.roles))
	var mu sync.Mutex
	var group sync.WaitGroup
	for address, role := range candidates.roles {
		group.Go(func() {
			machine := ask(ctx, reader, address, role)
			machine.config = p.askConfig(ctx, reader, facts, machine)
			mu.Lock()
			defer mu.Unlock()
			seen.machines[address] = machine
		})
	}
	group.Wait()
	forgetBlank(facts, seen.machines)
	if talos.Rejected(err) && allRejected(seen.machines) {
		seen.talosconfig = credential{v1alpha1.TalosconfigRejectedReason, "talosconfig: " + seen.talosTrouble, true}
	}
}

// forgetBlank leaves out the machines that are to join and are none of the cluster yet: that they do not answer as such says nothing.
func forgetBlank(facts targets.Facts, machines map[string]found) {
	for i := range facts.Machines {
		if machine := &facts.Machines[i]; machine.Joining() && machines[machine.Spec.Address].trouble != "" {
			delete(machines, machine.Spec.Address)
		}
	}
}

// allRejected says whether no machine told anything but that it does not accept the credentials.
func allRejected(machines map[string]found) bool {
	for _, machine := range machines {
		if !machine.rejected {
			return false
		}
	}
	return true
}

func ask(ctx context.Context, reader talos.Reader, address string, role v1alpha1.MachineRole) found {
	machine := found{address: address, role: role}
	var err error
	if machine.facts, err = reader.Machine(ctx, address); err != nil {
		machine.trouble, machine.rejected = talos.Trouble(err), talos.Rejected(err)
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

func roleOf(controlPlane bool) v1alpha1.MachineRole {
	if controlPlane {
		return v1alpha1.ControlPlaneRole
	}
	return v1alpha1.WorkerRole
}
