// SPDX-License-Identifier: Apache-2.0

package deep_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/test/sim"
)

// wipe resets a machine's data and lets it boot.
func wipe(ctx context.Context, api *client.Client, n *sim.Node) error {
	return api.ResetGeneric(at(ctx, n), &machineapi.ResetRequest{
		Reboot: true, SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: constants.EphemeralPartitionLabel, Wipe: true}},
	})
}

// etcdState is the state of a machine's service etcd.
func etcdState(ctx context.Context, api *client.Client, n *sim.Node) (string, error) {
	list, err := api.ServiceList(at(ctx, n))
	if err != nil {
		return "", err
	}
	for _, s := range list.GetMessages()[0].GetServices() {
		if s.GetId() == "etcd" {
			return s.GetState(), nil
		}
	}
	return "", nil
}

func bootstrap(ctx context.Context, api *client.Client, n *sim.Node) codes.Code {
	return status.Code(api.Bootstrap(at(ctx, n), &machineapi.BootstrapRequest{RecoverEtcd: true}))
}

// restoreCluster does what a restore of etcd does to machines, by hand: all lose their data, the first begins anew with the snapshot,
// and the others join it.
func restoreCluster(t *testing.T, cluster *sim.Cluster, api *client.Client, data []byte) {
	t.Helper()
	g := NewWithT(t)
	ctx, controlPlanes := within(t), cluster.Nodes()[:cluster.Spec().ControlPlanes]
	first := controlPlanes[0]
	for _, n := range controlPlanes {
		g.Expect(wipe(ctx, api, n)).To(Succeed())
	}
	for _, n := range controlPlanes {
		g.Eventually(ctx, etcdState).WithArguments(ctx, api, n).WithPolling(poll).Should(Equal("Preparing"), n.Name())
	}
	g.Expect(cluster.Processes(first.Name())).To(BeEmpty())
	_, err := api.EtcdRecover(at(ctx, first), bytes.NewReader(data))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bootstrap(ctx, api, first)).To(Equal(codes.OK))
	names := make([]string, 0, len(controlPlanes))
	for _, n := range controlPlanes {
		names = append(names, n.Name())
	}
	g.Eventually(ctx, voters).WithArguments(ctx, api, first).WithPolling(poll).Should(ConsistOf(names))
	g.Expect(bootstrap(ctx, api, first)).To(Equal(codes.AlreadyExists))
	for _, n := range cluster.Nodes() {
		g.Eventually(ctx, n.State).WithPolling(poll).Should(HaveField("Ready", true), n.Name())
	}
}

func TestDeepRestore(t *testing.T) {
	for name, spec := range map[string]sim.ClusterSpec{
		"one control plane":    {Name: "c", ControlPlanes: 1, Workers: 1},
		"three control planes": {Name: "c", ControlPlanes: 3},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := start(t, options(t, t.TempDir(), spec)).Cluster("c")
			k, api, ctx := kubeClient(t, cluster), talosClient(t, cluster), within(t)
			first := cluster.Nodes()[0]
			g.Expect(bootstrap(ctx, api, first)).To(Equal(codes.AlreadyExists), "it has data")
			g.Expect(put(ctx, k, "before")).To(Succeed())
			data, err := snapshot(ctx, api, first)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(put(ctx, k, "after")).To(Succeed())
			g.Expect(names(ctx, k)).To(ConsistOf("before", "after"))

			restoreCluster(t, cluster, api, data)

			g.Eventually(within(t), names).WithArguments(t.Context(), k).WithPolling(poll).Should(ConsistOf("before"))
			g.Eventually(within(t), readyNodes).WithArguments(t.Context(), k).WithPolling(poll).Should(HaveLen(len(cluster.Nodes())))
			g.Expect(put(t.Context(), k, "again")).To(Succeed())
		})
	}
}

func TestDeepRestoreOfACorruptSnapshot(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	cluster := start(t, options(t, dir, sim.ClusterSpec{Name: "c", ControlPlanes: 1})).Cluster("c")
	api, ctx := talosClient(t, cluster), within(t)
	only := cluster.Nodes()[0]
	data, err := snapshot(ctx, api, only)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(wipe(ctx, api, only)).To(Succeed())
	g.Eventually(ctx, etcdState).WithArguments(ctx, api, only).WithPolling(poll).Should(Equal("Preparing"))

	spoiled := bytes.Clone(data)
	spoiled[len(spoiled)-1] ^= 1 // The hash.
	_, err = api.EtcdRecover(at(ctx, only), bytes.NewReader(spoiled))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bootstrap(ctx, api, only)).To(Equal(codes.OK), "the answer comes before the recovery")
	log := filepath.Join(dir, "c", "disks", only.Name(), "recover.log")
	g.Eventually(ctx, os.ReadFile).WithArguments(log).WithPolling(poll).Should(ContainSubstring("error recovering from the snapshot: expected sha256"))

	// etcd leaves what it has begun with, so that the machine has to be wiped before it takes another snapshot.
	again := func() codes.Code {
		_, err := api.EtcdRecover(at(ctx, only), bytes.NewReader(data))
		g.Expect(status.Code(err)).To(BeElementOf(codes.OK, codes.FailedPrecondition, codes.Unavailable))
		return bootstrap(ctx, api, only)
	}
	g.Expect(again()).To(Equal(codes.AlreadyExists))
	g.Expect(wipe(ctx, api, only)).To(Succeed())
	g.Eventually(ctx, again).WithPolling(poll).Should(Equal(codes.OK))
	g.Eventually(ctx, voters).WithArguments(ctx, api, only).WithPolling(poll).Should(ConsistOf("cp-1"))
}
