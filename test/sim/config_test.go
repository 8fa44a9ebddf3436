// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	. "github.com/onsi/gomega"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
)

const (
	liveChange   = `{"machine":{"sysctls":{"vm.max_map_count":"262144"}}}`
	rebootChange = `{"machine":{"udev":{"rules":["SUBSYSTEM==\"block\""]}}}`
)

// patched is a node's config with a patch applied.
func patched(t *testing.T, n *sim.Node, patch string) []byte {
	t.Helper()
	g := NewWithT(t)
	active, _ := n.Config()
	patches, err := configpatcher.LoadPatches([]string{patch})
	g.Expect(err).NotTo(HaveOccurred())
	out, err := configpatcher.Apply(configpatcher.WithConfig(active), patches)
	g.Expect(err).NotTo(HaveOccurred())
	data, err := out.Bytes()
	g.Expect(err).NotTo(HaveOccurred())
	return data
}

func apply(ctx context.Context, c *client.Client, req *machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfiguration, error) {
	resp, err := c.ApplyConfiguration(ctx, req)
	if err != nil {
		return nil, err
	}
	return resp.GetMessages()[0], nil
}

// inForce says which of the two changes a config has.
func inForce(n *sim.Node) (live, disruptive bool) {
	active, _ := n.Config()
	return active.Machine().Sysctls()["vm.max_map_count"] != "", len(active.Machine().Udev().Rules()) > 0
}

// TestConfigModes has a row for what a mode does of a change, and in which words.
func TestConfigModes(t *testing.T) {
	const (
		reboots   = "Applied configuration with a reboot"
		noReboot  = "Applied configuration without a reboot"
		staged    = "Staged configuration to be applied after the next reboot"
		immediate = "this config change can't be applied in immediate mode"
	)
	for _, tt := range []struct {
		version, change string
		mode            machineapi.ApplyConfigurationRequest_Mode
		applied         machineapi.ApplyConfigurationRequest_Mode
		details         string
		code            codes.Code
	}{
		{version: "v1.13.6", change: liveChange, mode: machineapi.ApplyConfigurationRequest_AUTO, applied: machineapi.ApplyConfigurationRequest_NO_REBOOT, details: noReboot},
		{version: "v1.13.6", change: rebootChange, mode: machineapi.ApplyConfigurationRequest_AUTO, applied: machineapi.ApplyConfigurationRequest_REBOOT, details: reboots + ": " + immediate},
		{version: "v1.13.6", change: rebootChange, mode: machineapi.ApplyConfigurationRequest_NO_REBOOT, details: immediate, code: codes.InvalidArgument},
		{version: "v1.13.6", change: rebootChange, mode: machineapi.ApplyConfigurationRequest_TRY, details: immediate, code: codes.InvalidArgument},
		{version: "v1.13.6", change: liveChange, mode: machineapi.ApplyConfigurationRequest_REBOOT, applied: machineapi.ApplyConfigurationRequest_REBOOT, details: reboots},
		{version: "v1.13.6", change: rebootChange, mode: machineapi.ApplyConfigurationRequest_STAGED, applied: machineapi.ApplyConfigurationRequest_STAGED, details: staged},
		{version: "v1.14.1", change: rebootChange, mode: machineapi.ApplyConfigurationRequest_AUTO, applied: machineapi.ApplyConfigurationRequest_NO_REBOOT, details: noReboot},
		{version: "v1.14.1", change: rebootChange, mode: machineapi.ApplyConfigurationRequest_NO_REBOOT, applied: machineapi.ApplyConfigurationRequest_NO_REBOOT, details: noReboot},
		{version: "v1.14.1", change: liveChange, mode: machineapi.ApplyConfigurationRequest_REBOOT, details: "the REBOOT mode is not supported", code: codes.Unimplemented},
	} {
		t.Run(tt.version+" "+tt.mode.String()+" "+tt.change, func(t *testing.T) {
			g := NewWithT(t)
			timings := sim.DefaultTimings().Scaled(fast)
			timings.Stop = 500 * time.Millisecond // Long enough for an answer and a second call, even on a busy machine.
			s := startWith(t, sim.Options{Dir: t.TempDir(), Timings: &timings, Clusters: []sim.ClusterSpec{
				{Name: "a", ControlPlanes: 1, Workers: 1, TalosVersion: tt.version},
			}})
			worker := s.Cluster("a").Node("worker-1")
			c := talosClient(t, s.Cluster("a").Talosconfig())
			ctx := client.WithNode(within(t), worker.Address())
			req := &machineapi.ApplyConfigurationRequest{Data: patched(t, worker, tt.change), Mode: tt.mode}

			got, err := apply(ctx, c, req)
			if tt.code != codes.OK {
				g.Expect(err).To(And(haveCode(tt.code), MatchError(ContainSubstring(tt.details))))
				g.Expect(inForce(worker)).To(BeFalse())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got.GetMode()).To(Equal(tt.applied))
			g.Expect(got.GetModeDetails()).To(HavePrefix(tt.details))
			live, disruptive := inForce(worker)
			g.Expect(live || disruptive).To(Equal(tt.applied == machineapi.ApplyConfigurationRequest_NO_REBOOT))
			if tt.applied == machineapi.ApplyConfigurationRequest_REBOOT {
				_, err = apply(ctx, c, req)
				g.Expect(err).To(And(haveCode(codes.FailedPrecondition), MatchError(ContainSubstring("node is rebooting"))))
			} else {
				reboot(t, s, c, worker)
			}
			awaitEvent(t, s, worker, "ready", 0)
			live, disruptive = inForce(worker)
			g.Expect(live || disruptive).To(BeTrue(), "a boot brings it in force")
		})
	}
}

func TestConfigThatIsRefused(t *testing.T) {
	s := start(t, small)
	worker := s.Cluster("small").Node("worker-1")
	c := talosClient(t, s.Cluster("small").Talosconfig())
	ctx := client.WithNode(within(t), worker.Address())
	for what, tt := range map[string]struct{ data, says string }{
		"no YAML":               {data: "machine: [", says: "yaml"},
		"an unknown field":      {data: "version: v1alpha1\nmachine:\n  colour: red\n", says: "colour"},
		"no main document":      {data: "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: a\n", says: "doesn't contain v1alpha1 config"},
		"nothing that is valid": {data: "version: v1alpha1\nmachine:\n  type: worker\ncluster: {}\n", says: "error"},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := apply(ctx, c, &machineapi.ApplyConfigurationRequest{Data: []byte(tt.data), DryRun: true})
			NewWithT(t).Expect(err).To(And(haveCode(codes.InvalidArgument), MatchError(ContainSubstring(tt.says))))
		})
	}
}

// TestDryRun changes nothing, and is no change in the journal.
func TestDryRun(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	worker := s.Cluster("small").Node("worker-1")
	c := talosClient(t, s.Cluster("small").Talosconfig())
	ctx := client.WithNode(within(t), worker.Address())
	got, err := apply(ctx, c, &machineapi.ApplyConfigurationRequest{
		Data: patched(t, worker, rebootChange), Mode: machineapi.ApplyConfigurationRequest_AUTO, DryRun: true,
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.GetModeDetails()).To(And(
		HavePrefix("Dry run summary:\nApplied configuration with a reboot (skipped in dry-run).\nConfig diff:\n\n"), ContainSubstring("+    udev:"),
	))
	g.Expect(inForce(worker)).To(BeFalse())
	g.Expect(s.Journal().Reads()).To(HaveKeyWithValue("small/worker-1/MachineService/ApplyConfiguration", BeEquivalentTo(1)))
}

func TestTryConfig(t *testing.T) {
	for version, ends := range map[string]bool{"v1.13.6": true, "v1.14.1": false} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, Workers: 1, TalosVersion: version})
			worker := s.Cluster("a").Node("worker-1")
			c := talosClient(t, s.Cluster("a").Talosconfig())
			ctx := client.WithNode(within(t), worker.Address())
			before, _ := worker.Config()
			try := &machineapi.ApplyConfigurationRequest{
				Data: patched(t, worker, liveChange), Mode: machineapi.ApplyConfigurationRequest_TRY,
				TryModeTimeout: durationpb.New(50 * time.Millisecond),
			}
			got, err := apply(ctx, c, try)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got.GetModeDetails()).To(HaveSuffix("automatically reverted back in 50ms"))
			g.Eventually(func() bool { active, _ := worker.Config(); return active == before }).Should(BeTrue(), "it is reverted")

			try.TryModeTimeout = durationpb.New(time.Second)
			_, err = apply(ctx, c, try)
			g.Expect(err).NotTo(HaveOccurred())
			_, err = apply(ctx, c, &machineapi.ApplyConfigurationRequest{
				Data: patched(t, worker, liveChange), Mode: machineapi.ApplyConfigurationRequest_AUTO, DryRun: true,
			})
			g.Expect(err).NotTo(HaveOccurred())
			stays := func() bool { live, _ := inForce(worker); return live }
			if ends {
				g.Consistently(stays, 1500*time.Millisecond).Should(BeTrue(), "before 1.14 a dry run makes a trial last")
			} else {
				g.Eventually(stays, 5*time.Second).Should(BeFalse())
			}
		})
	}
}

// TestConfigIsKept over a restart of the simulator: the one on disk and the one in force, which differ here.
func TestConfigIsKept(t *testing.T) {
	g := NewWithT(t)
	o := sim.Options{Dir: t.TempDir(), Speed: fast, Clusters: []sim.ClusterSpec{small}}
	s := startWith(t, o)
	worker := s.Cluster("small").Node("worker-1")
	c := talosClient(t, s.Cluster("small").Talosconfig())
	ctx := client.WithNode(within(t), worker.Address())
	_, err := apply(ctx, c, &machineapi.ApplyConfigurationRequest{
		Data: patched(t, worker, liveChange), Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
	})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = apply(ctx, c, &machineapi.ApplyConfigurationRequest{
		Data: patched(t, worker, rebootChange), Mode: machineapi.ApplyConfigurationRequest_STAGED,
	})
	g.Expect(err).NotTo(HaveOccurred())
	active, persistent := worker.Config()
	g.Expect(active).NotTo(BeIdenticalTo(persistent))
	_, err = apply(ctx, c, &machineapi.ApplyConfigurationRequest{
		Data: patched(t, worker, `{"machine":{"sysctls":{"vm.max_map_count":"1"}}}`), Mode: machineapi.ApplyConfigurationRequest_TRY,
	})
	g.Expect(err).NotTo(HaveOccurred(), "a trial is not kept")
	s.Stop()

	again := startWith(t, o).Cluster("small")
	activeNow, persistentNow := again.Node("worker-1").Config()
	g.Expect(activeNow.Bytes()).To(Equal(must(active.Bytes())))
	g.Expect(persistentNow.Bytes()).To(Equal(must(persistent.Bytes())))
	untouched, _ := again.Node("cp-1").Config()
	g.Expect(untouched.Machine().Sysctls()).To(BeEmpty())
}

func must(data []byte, _ error) []byte { return data }

func TestRestartOfTheKubelet(t *testing.T) {
	g := NewWithT(t)
	timings := sim.DefaultTimings().Scaled(fast)
	timings.Kubelet = time.Second // Long enough to be seen, even on a busy machine.
	s := startWith(t, sim.Options{Dir: t.TempDir(), Timings: &timings, Clusters: []sim.ClusterSpec{small}})
	worker := s.Cluster("small").Node("worker-1")
	c := talosClient(t, s.Cluster("small").Talosconfig())
	ctx := client.WithNode(within(t), worker.Address())
	kubelet := func() *machineapi.ServiceInfo {
		list, err := c.ServiceInfo(ctx, "kubelet")
		g.Expect(err).NotTo(HaveOccurred())
		return list[0].Service
	}
	before := kubelet()
	g.Expect(before.GetState()).To(Equal("Running"))

	_, err := c.ServiceRestart(ctx, "kubelet")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(kubelet().GetState()).To(Equal("Stopping"))
	status, err := safe.StateGetByID[*runtime.MachineStatus](ctx, c.COSI, runtime.MachineStatusID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.TypedSpec().Stage).To(Equal(runtime.MachineStageRunning))
	g.Expect(status.TypedSpec().Status.Ready).To(BeFalse())
	g.Expect(worker.State().KubeletReady).To(BeTrue(), "Kubernetes grants more silence than that")

	g.Eventually(worker.State, 10*time.Second).Should(HaveField("Ready", BeTrue()))
	after := kubelet()
	g.Expect(after.GetState()).To(Equal("Running"))
	last := func(i *machineapi.ServiceInfo) time.Time { return i.GetHealth().GetLastChange().AsTime() }
	g.Expect(last(after)).To(BeTemporally(">", last(before)), "which is how a client tells that it has happened")
	g.Expect(s.Journal().Entries(journal.Filter{Method: "event restart"})).To(HaveLen(1))
}

// TestConfigThatBreaksTheBoot keeps a machine away that boots another config, and no other machine and no other boot.
func TestConfigThatBreaksTheBoot(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	worker := s.Cluster("small").Node("worker-1")
	c := talosClient(t, s.Cluster("small").Talosconfig())
	ctx := client.WithNode(within(t), worker.Address())
	id := order(t, s, 0, fault.ConfigBreaksBoot, "worker-1")
	boots := func() int {
		return len(s.Journal().Entries(journal.Filter{Node: "worker-1", Method: "event boot"}))
	}
	g.Expect(c.Reboot(ctx)).To(Succeed())
	awaitEvent(t, s, worker, "ready", 0)
	g.Expect(boots()).To(Equal(1), "its config is the same")

	_, err := apply(ctx, c, &machineapi.ApplyConfigurationRequest{Data: patched(t, worker, rebootChange), Mode: machineapi.ApplyConfigurationRequest_STAGED})
	g.Expect(err).NotTo(HaveOccurred())
	last := s.Journal().Last()
	g.Expect(c.Reboot(ctx)).To(Succeed())
	awaitEvent(t, s, worker, "down", last)
	g.Consistently(boots, 200*time.Millisecond).Should(Equal(1))
	g.Expect(s.Clear(id)).To(BeTrue())
	awaitEvent(t, s, worker, "ready", last)
	_, disruptive := inForce(worker)
	g.Expect(disruptive).To(BeTrue())
}
