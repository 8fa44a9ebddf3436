// SPDX-License-Identifier: Apache-2.0

// Package verify opens a target with credentials that nobody has stored yet, and says what is wrong with them.
package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// timeout bounds the whole of it: a control plane that is away costs the attempts to connect to it.
const timeout = 20 * time.Second

// Found is what a look at a target told beyond that it can be opened.
type Found struct {
	// OwnerID is the identity under which a hub manages the target already; empty if none does.
	OwnerID string
}

// Live opens a target from here with both credentials. It returns an error unless the API server and at least one endpoint answer, both
// are of the same cluster, and somebody knows of a control plane there.
func Live(ctx context.Context, kubeconfig *credentials.Kubeconfig, talosconfig *credentials.Talosconfig) (Found, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	nodes, record, err := askKubernetes(ctx, kubeconfig)
	if err != nil {
		return Found{}, err
	}
	views, err := askTalos(ctx, talosconfig)
	if err != nil {
		return Found{}, err
	}
	return Found{OwnerID: record.OwnerID}, judge(nodes, views)
}

func askKubernetes(ctx context.Context, kubeconfig *credentials.Kubeconfig) ([]kube.Node, kube.Record, error) {
	reader, closeReader, err := kube.Open(kubeconfig)
	if err != nil {
		return nil, kube.Record{}, fmt.Errorf("kubeconfig: %w", err)
	}
	defer closeReader()
	nodes, err := reader.Nodes(ctx)
	if err != nil {
		return nil, kube.Record{}, fmt.Errorf("kubeconfig: %s does not open the Kubernetes API: %s", kubeconfig.Config.Host, kube.Trouble(err))
	}
	record, err := reader.Record(ctx)
	if err != nil {
		return nil, kube.Record{}, fmt.Errorf("kubeconfig: %w", err)
	}
	return nodes, record, nil
}

// view is what one endpoint of a talosconfig tells.
type view struct {
	endpoint string
	machine  talos.Machine
	members  []talos.Member
	err      error
}

// askTalos asks every endpoint by itself: a call that any of them may answer says nothing about the others. One that is away is left to
// its fate, but one that belongs to somebody else is not.
func askTalos(ctx context.Context, talosconfig *credentials.Talosconfig) ([]view, error) {
	views := make([]view, len(talosconfig.Context.Endpoints))
	var group sync.WaitGroup
	for i, endpoint := range talosconfig.Context.Endpoints {
		group.Go(func() { views[i] = askEndpoint(ctx, talosconfig, endpoint) })
	}
	group.Wait()
	var answering []view
	var silent []string
	for _, v := range views {
		switch {
		case v.err == nil:
			answering = append(answering, v)
		case talos.Rejected(v.err):
			return nil, fmt.Errorf("talosconfig: endpoint %s does not open: %s", v.endpoint, talos.Trouble(v.err))
		default:
			silent = append(silent, v.endpoint+": "+talos.Trouble(v.err))
		}
	}
	if len(answering) == 0 {
		return nil, fmt.Errorf("talosconfig: no endpoint opens the Talos API: %s", strings.Join(silent, "; "))
	}
	return answering, nil
}

func askEndpoint(ctx context.Context, talosconfig *credentials.Talosconfig, endpoint string) view {
	seen := view{endpoint: endpoint}
	only, chosen := *talosconfig, *talosconfig.Context
	chosen.Endpoints = []string{endpoint}
	only.Context = &chosen
	reader, closeReader, err := talos.Open(&only)
	if err != nil {
		seen.err = err
		return seen
	}
	defer closeReader()
	if seen.machine, seen.err = reader.Machine(ctx, ""); seen.err == nil {
		seen.members, seen.err = reader.Members(ctx)
	}
	return seen
}

// judge needs a Node and a machine that are the same: by the ID of the boot or of the hardware, since clusters share names.
func judge(nodes []kube.Node, views []view) error {
	if controlPlanes(nodes, views) == 0 {
		return errors.New("neither the Nodes nor Talos' discovery tell of a control plane: nothing could be done there")
	}
	var strangers []string
	for _, v := range views {
		if !slices.ContainsFunc(nodes, func(n kube.Node) bool { return same(n, v.machine) }) {
			strangers = append(strangers, fmt.Sprintf("%s (%s)", v.endpoint, v.machine.NodeName))
		}
	}
	if len(strangers) > 0 {
		return fmt.Errorf("the kubeconfig and the talosconfig are of different clusters: no Node is the machine at %s", strings.Join(strangers, ", "))
	}
	return nil
}

func controlPlanes(nodes []kube.Node, views []view) int {
	count := 0
	for _, node := range nodes {
		if node.ControlPlane {
			count++
		}
	}
	for _, v := range views {
		for _, member := range v.members {
			if member.ControlPlane {
				count++
			}
		}
	}
	return count
}

func same(node kube.Node, machine talos.Machine) bool {
	return machine.BootID != "" && strings.EqualFold(node.BootID, machine.BootID) || machine.UUID != "" && strings.EqualFold(node.UUID, machine.UUID)
}
