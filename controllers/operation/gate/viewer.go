// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"sync"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

// Viewer looks at whole targets.
type Viewer struct {
	Talos talos.Provider
	Kube  kube.Provider
}

// View asks the Kubernetes API for the Nodes and the hub's record, and every control plane for its etcd member, all at the same time. What does not answer
// before ctx ends is part of the view.
func (v Viewer) View(ctx context.Context, t target.Target, machines []*v1alpha1.TalosMachine) View {
	view := View{Etcd: map[string]EtcdView{}}
	var mu sync.Mutex
	var group sync.WaitGroup
	group.Go(func() { view.Nodes, view.NodesTrouble = v.nodes(ctx, t) })
	group.Go(func() { view.Record, view.RecordTrouble = v.record(ctx, t) })
	for _, machine := range controlPlanes(machines) {
		group.Go(func() {
			seen := v.etcd(ctx, t, machine.Spec.Address)
			mu.Lock()
			defer mu.Unlock()
			view.Etcd[machine.Name] = seen
		})
	}
	group.Wait()
	return view
}

func (v Viewer) nodes(ctx context.Context, t target.Target) (map[string]kube.Node, string) {
	reader, err := v.Kube.Reader(ctx, t)
	if err != nil {
		return nil, kube.Trouble(err)
	}
	list, err := reader.Nodes(ctx)
	if err != nil {
		return nil, kube.Trouble(err)
	}
	nodes := make(map[string]kube.Node, len(list))
	for _, node := range list {
		nodes[node.Name] = node
	}
	return nodes, ""
}

func (v Viewer) record(ctx context.Context, t target.Target) (kube.Record, string) {
	reader, err := v.Kube.Reader(ctx, t)
	if err != nil {
		return kube.Record{}, kube.Trouble(err)
	}
	record, err := reader.Record(ctx)
	if err != nil {
		return kube.Record{}, kube.Trouble(err)
	}
	return record, ""
}

func (v Viewer) etcd(ctx context.Context, t target.Target, address string) EtcdView {
	reader, err := v.Talos.Reader(ctx, t)
	if err != nil {
		return EtcdView{Trouble: talos.Trouble(err)}
	}
	etcd, err := reader.Etcd(ctx, address)
	if err != nil {
		return EtcdView{Trouble: talos.Trouble(err)}
	}
	return EtcdView{Etcd: etcd}
}
