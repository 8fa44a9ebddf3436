// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	. "github.com/onsi/gomega"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
)

func haveCode(code codes.Code) OmegaMatcher { return WithTransform(status.Code, Equal(code)) }

func TestDiscovery(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 3, Workers: 2, SecureBoot: true})
	c := talosClient(t, s.Cluster("a").Talosconfig())
	node := s.Cluster("a").Node("cp-2")
	ctx := client.WithNode(t.Context(), node.Address())

	members, err := safe.StateListAll[*cluster.Member](ctx, c.COSI)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(members.Len()).To(Equal(5))
	member := members.Get(1)
	g.Expect(member.TypedSpec().Hostname).To(Equal("cp-2"))
	g.Expect(member.TypedSpec().MachineType).To(Equal(machine.TypeControlPlane))
	g.Expect(member.TypedSpec().Addresses[0].String()).To(Equal(node.Address()))

	information, err := safe.StateGetByID[*hardware.SystemInformation](ctx, c.COSI, hardware.SystemInformationID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(information.TypedSpec().UUID).To(Equal(node.UUID()))
	name, err := safe.StateGetByID[*k8s.Nodename](ctx, c.COSI, k8s.NodenameID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(name.TypedSpec().Nodename).To(Equal("cp-2"))
	security, err := safe.StateGetByID[*runtime.SecurityState](ctx, c.COSI, runtime.SecurityStateID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(security.TypedSpec().SecureBoot).To(BeTrue())
	machineType, err := safe.StateGetByID[*config.MachineType](ctx, c.COSI, config.MachineTypeID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(machineType.MachineType()).To(Equal(machine.TypeControlPlane))
	active, err := safe.StateGetByID[*config.MachineConfig](ctx, c.COSI, config.ActiveID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(active.Config().Machine().Install().Image()).To(ContainSubstring(sim.VanillaSchematic))

	expectSameEtcdMember(ctx, t, c)
	_, err = safe.StateListAll[*runtime.BootID](ctx, c.COSI) // Talos 1.14 brought it.
	g.Expect(err).To(And(haveCode(codes.PermissionDenied), MatchError(ContainSubstring("is not supported"))))
}

func expectSameEtcdMember(ctx context.Context, t *testing.T, c *client.Client) {
	t.Helper()
	g := NewWithT(t)
	local, err := safe.StateGetByID[*etcd.Member](ctx, c.COSI, etcd.LocalMemberID)
	g.Expect(err).NotTo(HaveOccurred())
	own, err := c.EtcdStatus(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	id, err := etcd.ParseMemberID(local.TypedSpec().MemberID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(id).To(Equal(own.GetMessages()[0].GetMemberStatus().GetMemberId()))
}

func TestRoles(t *testing.T) {
	s := start(t, small)
	c := s.Cluster("small")
	worker := c.Node("worker-1").Address()

	type call func(context.Context, *client.Client) error
	calls := map[string]call{
		"version": func(ctx context.Context, c *client.Client) error { _, err := c.Version(ctx); return err },
		"read":    func(ctx context.Context, c *client.Client) error { _, err := bootID(ctx, c); return err },
		"pull": func(ctx context.Context, c *client.Client) error {
			_, err := pull(ctx, c, factoryImage+":v1.13.9")
			return err
		},
		"metawrite": func(ctx context.Context, c *client.Client) error { return c.MetaWrite(ctx, 12, []byte("x")) },
		"status": func(ctx context.Context, c *client.Client) error {
			_, err := safe.StateGetByID[*runtime.MachineStatus](ctx, c.COSI, runtime.MachineStatusID)
			return err
		},
		"config": func(ctx context.Context, c *client.Client) error {
			_, err := safe.StateGetByID[*config.MachineConfig](ctx, c.COSI, config.ActiveID)
			return err
		},
	}
	for _, tt := range []struct {
		role    string
		allowed []string
	}{
		{role: "os:admin", allowed: []string{"version", "read", "pull", "metawrite", "status", "config"}},
		{role: "os:operator", allowed: []string{"version", "pull", "status"}},
		{role: "os:reader", allowed: []string{"version", "status"}},
		{role: "os:meta:writer", allowed: []string{"metawrite"}},
		{role: "os:etcd:backup"},
	} {
		t.Run(tt.role, func(t *testing.T) {
			g := NewWithT(t)
			talosconfig, err := c.TalosconfigFor(tt.role)
			g.Expect(err).NotTo(HaveOccurred())
			api := talosClient(t, talosconfig)
			for name, call := range calls {
				err := call(client.WithNode(t.Context(), worker), api)
				if slices.Contains(tt.allowed, name) {
					g.Expect(err).NotTo(HaveOccurred(), name)
					continue
				}
				g.Expect(err).To(And(haveCode(codes.PermissionDenied), MatchError(ContainSubstring("not authorized"))), name)
			}
		})
	}
}

func TestForwarding(t *testing.T) {
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 2, Workers: 1})
	c := s.Cluster("a")
	worker, second := c.Node("worker-1"), c.Node("cp-2")
	api := talosClient(t, c.Talosconfig(), c.Node("cp-1").Address())

	t.Run("to one node, without its name in the answer", func(t *testing.T) {
		g := NewWithT(t)
		resp, err := api.MachineClient.Hostname(client.WithNode(t.Context(), second.Address()), nil)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(resp.GetMessages()[0].GetHostname()).To(Equal("cp-2"))
		g.Expect(resp.GetMessages()[0].GetMetadata()).To(BeNil())
	})
	t.Run("to a node by its name", func(t *testing.T) {
		resp, err := api.MachineClient.Hostname(client.WithNode(t.Context(), "cp-2"), nil)
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(resp.GetMessages()[0].GetHostname()).To(Equal("cp-2"))
	})
	t.Run("to several nodes, merged", func(t *testing.T) {
		g := NewWithT(t)
		resp, err := api.Version(client.WithNodes(t.Context(), second.Address(), worker.Address()))
		g.Expect(err).NotTo(HaveOccurred())
		var from []string
		for _, m := range resp.GetMessages() {
			from = append(from, m.GetMetadata().GetHostname())
			g.Expect(m.GetVersion().GetTag()).To(Equal("v1.13.6"))
		}
		g.Expect(from).To(ConsistOf(second.Address(), worker.Address()))
	})
	t.Run("not to several nodes where that is not possible", func(t *testing.T) {
		ctx := client.WithNodes(t.Context(), second.Address())
		_, err := safe.StateListAll[*cluster.Member](ctx, api.COSI)
		NewWithT(t).Expect(err).To(haveCode(codes.InvalidArgument))
	})
	t.Run("not to a port", func(t *testing.T) {
		_, err := api.Version(client.WithNode(t.Context(), second.Address()+":50000"))
		NewWithT(t).Expect(err).To(haveCode(codes.Internal))
	})
	t.Run("not from a worker", func(t *testing.T) {
		g := NewWithT(t)
		direct := talosClient(t, c.Talosconfig(), worker.Address())
		_, err := direct.Version(client.WithNode(t.Context(), worker.Address()))
		g.Expect(err).NotTo(HaveOccurred(), "itself is no forwarding")
		_, err = direct.Version(client.WithNode(t.Context(), second.Address()))
		g.Expect(err).To(And(haveCode(codes.PermissionDenied), MatchError(ContainSubstring("no request forwarding"))))
	})
	t.Run("and the journal knows the first caller's roles", func(t *testing.T) {
		g := NewWithT(t)
		entry, err := s.Journal().Wait(within(t), journal.Filter{Node: worker.Name(), Method: "MachineService/Version"})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(entry.Roles).To(Equal([]string{"os:admin"}))
	})
}

func TestUnreachable(t *testing.T) {
	s := start(t, small)
	c := s.Cluster("small")
	worker := c.Node("worker-1")
	api := talosClient(t, c.Talosconfig())
	ctx := client.WithNode(within(t), worker.Address())
	version := func() error { _, err := api.Version(ctx); return err }
	NewWithT(t).Expect(version()).To(Succeed())

	t.Run("refuse", func(t *testing.T) {
		g := NewWithT(t)
		id, err := s.Inject(fault.Fault{Name: fault.Unreachable, Node: worker.Name(), Params: map[string]string{fault.ParamAPI: "talos"}})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(version()).To(haveCode(codes.Unavailable))
		g.Expect(s.Clear(id)).To(BeTrue())
		g.Expect(version()).To(Succeed())
	})
	t.Run("black hole", func(t *testing.T) {
		g := NewWithT(t)
		_, err := s.Inject(fault.Fault{Name: fault.Unreachable, Node: worker.Name(), Params: map[string]string{fault.ParamMode: "blackhole"}})
		g.Expect(err).NotTo(HaveOccurred())
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, err = api.Version(short)
		g.Expect(err).To(haveCode(codes.DeadlineExceeded))
		g.Expect(worker.State().Ready).To(BeTrue(), "the machine itself is well")
		s.Clear("")
		g.Expect(version()).To(Succeed())
	})
	t.Run("names that do not exist", func(t *testing.T) {
		_, err := s.Inject(fault.Fault{Name: fault.Unreachable, Node: "nobody"})
		NewWithT(t).Expect(err).To(HaveOccurred())
	})
}

// TestRebootEvents follows a reboot as Talos's own client does: by the events of the call's actor, and the machine's status.
func TestRebootEvents(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	c := s.Cluster("small")
	worker := c.Node("worker-1")
	api := talosClient(t, c.Talosconfig())
	ctx := client.WithNode(within(t), worker.Address())

	events := make(chan client.EventResult)
	g.Expect(api.EventsWatchV2(ctx, events)).To(Succeed())
	resp, err := api.RebootWithResponse(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	actor := resp.GetMessages()[0].GetActorId()
	g.Expect(actor).NotTo(BeEmpty())

	began := false
	for result := range until(ctx, events) {
		g.Expect(result.Error).NotTo(HaveOccurred())
		if e, ok := result.Event.Payload.(*machineapi.SequenceEvent); ok && e.GetAction() == machineapi.SequenceEvent_START {
			g.Expect(e.GetSequence()).To(Equal("reboot"))
			g.Expect(result.Event.ActorID).To(Equal(actor))
			began = true
			break
		}
	}
	g.Expect(began).To(BeTrue())

	awaitEvent(t, s, worker, "ready", 0)
	replay := make(chan client.EventResult)
	g.Expect(api.EventsWatchV2(ctx, replay, client.WithTailEvents(-1))).To(Succeed())
	for result := range until(ctx, replay) {
		g.Expect(result.Error).NotTo(HaveOccurred())
		if e, ok := result.Event.Payload.(*machineapi.MachineStatusEvent); ok && e.GetStatus().GetReady() {
			g.Expect(e.GetStage()).To(Equal(machineapi.MachineStatusEvent_RUNNING))
			return
		}
	}
	t.Fatal("the events of the boot were not replayed")
}

// until reads a channel that its writer does not close, until the context ends.
func until[T any](ctx context.Context, ch <-chan T) iter.Seq[T] {
	return func(yield func(T) bool) {
		for {
			select {
			case v := <-ch:
				if !yield(v) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

func TestStatusWatchSeesTheReboot(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	worker := s.Cluster("small").Node("worker-1")
	api := talosClient(t, s.Cluster("small").Talosconfig())
	ctx := client.WithNode(within(t), worker.Address())
	changes := make(chan state.Event)
	pointer := resource.NewMetadata(runtime.NamespaceName, runtime.MachineStatusType, runtime.MachineStatusID, resource.VersionUndefined)
	g.Expect(api.COSI.Watch(ctx, pointer, changes)).To(Succeed())
	next := func() runtime.MachineStatusSpec {
		select {
		case e := <-changes:
			return *e.Resource.(*runtime.MachineStatus).TypedSpec()
		case <-ctx.Done():
			t.Fatal("no change was seen")
			return runtime.MachineStatusSpec{}
		}
	}
	g.Expect(next().Stage).To(Equal(runtime.MachineStageRunning))

	g.Expect(api.Reboot(ctx)).To(Succeed())
	going := next()
	g.Expect(going.Stage).To(Equal(runtime.MachineStageRebooting))
	g.Expect(going.Status.Ready).To(BeTrue(), "only booting and running machines have conditions to meet")
}

func TestSecondRebootTakesOver(t *testing.T) {
	g := NewWithT(t)
	timings := sim.DefaultTimings().Scaled(fast)
	timings.Stop = time.Second // Long enough for a second call, even on a busy machine.
	s := startWith(t, sim.Options{Dir: t.TempDir(), Timings: &timings, Clusters: []sim.ClusterSpec{small}})
	worker := s.Cluster("small").Node("worker-1")
	api := talosClient(t, s.Cluster("small").Talosconfig())
	ctx := client.WithNode(within(t), worker.Address())

	first, err := api.RebootWithResponse(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	second, err := api.RebootWithResponse(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second.GetMessages()[0].GetActorId()).NotTo(Equal(first.GetMessages()[0].GetActorId()))
	awaitEvent(t, s, worker, "ready", 0)
	g.Expect(s.Journal().Entries(journal.Filter{Node: worker.Name(), Method: "event boot"})).To(HaveLen(1))
}

func TestEtcdLeadership(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 3})
	c := s.Cluster("a")
	api := talosClient(t, c.Talosconfig())
	leader := c.Leader()
	ctx := client.WithNode(within(t), leader.Address())

	before, err := api.EtcdStatus(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	resp, err := api.EtcdForfeitLeadership(ctx, &machineapi.EtcdForfeitLeadershipRequest{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(resp.GetMessages()[0].GetMember()).To(Equal(c.Leader().Name()))
	g.Expect(c.Leader()).NotTo(Equal(leader))
	again, err := api.EtcdForfeitLeadership(ctx, &machineapi.EtcdForfeitLeadershipRequest{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.GetMessages()[0].GetMember()).To(BeEmpty(), "it is not the leader any more")

	after := s.Journal().Last()
	c.Leader().PowerOff()
	_, err = s.Journal().Wait(within(t), journal.Filter{Cluster: "a", Method: "event leader", After: after})
	g.Expect(err).NotTo(HaveOccurred())
	now, err := api.EtcdStatus(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(now.GetMessages()[0].GetMemberStatus().GetRaftTerm()).
		To(BeNumerically(">", before.GetMessages()[0].GetMemberStatus().GetRaftTerm()))
}

func TestEtcdOnAWorker(t *testing.T) {
	s := start(t, small)
	api := talosClient(t, s.Cluster("small").Talosconfig())
	ctx := client.WithNode(t.Context(), s.Cluster("small").Node("worker-1").Address())
	_, err := api.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{})
	NewWithT(t).Expect(err).To(And(haveCode(codes.Unimplemented), MatchError(ContainSubstring("member list is only available on control plane nodes"))))
}

func TestQuorumLoss(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 3})
	c := s.Cluster("a")
	api := talosClient(t, c.Talosconfig(), c.Node("cp-1").Address())
	k := kubeClient(t, c)
	ctx := client.WithNode(within(t), c.Node("cp-1").Address())
	c.Node("cp-2").PowerOff()
	c.Node("cp-3").PowerOff()

	_, err := api.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{})
	g.Expect(err).To(And(haveCode(codes.Unavailable), MatchError(ContainSubstring("no leader"))))
	own, err := api.EtcdStatus(ctx)
	g.Expect(err).NotTo(HaveOccurred(), "the local status answers")
	g.Expect(own.GetMessages()[0].GetMemberStatus().GetLeader()).To(BeZero())
	_, err = k.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	g.Expect(err).To(MatchError(ContainSubstring("request timed out")))
	g.Expect(c.Leader()).To(BeNil())

	after := s.Journal().Last()
	c.Node("cp-2").PowerOn()
	awaitEvent(t, s, c.Node("cp-2"), "ready", after)
	_, err = k.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = api.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{})
	g.Expect(err).NotTo(HaveOccurred())
}

func TestShutdownAndPowerOn(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	worker := s.Cluster("small").Node("worker-1")
	api := talosClient(t, s.Cluster("small").Talosconfig())
	ctx := client.WithNode(within(t), worker.Address())
	before := worker.State().BootID
	g.Expect(api.Shutdown(ctx, client.WithShutdownForce(true))).To(Succeed())
	awaitEvent(t, s, worker, "down", 0)
	_, err := api.Version(ctx)
	g.Expect(err).To(haveCode(codes.Unavailable))

	g.Expect(worker.State().PoweredOff).To(BeTrue())
	worker.PowerOn()
	awaitEvent(t, s, worker, "ready", 0)
	g.Expect(worker.State().BootID).NotTo(Equal(before))
	g.Expect(versionOf(ctx, api)).To(Equal("v1.13.6"))
}

func TestKubeconfigFromTalos(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	c := s.Cluster("small")
	api := talosClient(t, c.Talosconfig())
	kubeconfig, err := api.Kubeconfig(client.WithNode(t.Context(), c.Node("cp-1").Address()))
	g.Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Host).To(Equal(c.Endpoint()))
	k, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = k.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
}

func TestServiceListFollowsTheMachine(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	api := talosClient(t, s.Cluster("small").Talosconfig())
	resp, err := api.ServiceList(client.WithNode(t.Context(), s.Cluster("small").Node("cp-1").Address()))
	g.Expect(err).NotTo(HaveOccurred())
	states := map[string]string{}
	for _, svc := range resp.GetMessages()[0].GetServices() {
		states[svc.GetId()] = svc.GetState()
	}
	g.Expect(states).To(HaveKeyWithValue("etcd", "Running"))
	g.Expect(states).To(HaveKeyWithValue("kubelet", "Running"))
}

func TestReadsAreCountedNotKept(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	worker := s.Cluster("small").Node("worker-1")
	api := talosClient(t, s.Cluster("small").Talosconfig(), worker.Address())
	const calls = 1200
	for range calls {
		_, err := api.Version(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(s.Journal().Reads()).To(HaveKeyWithValue("small/worker-1/MachineService/Version", uint64(calls)))
	g.Expect(len(s.Journal().Entries(journal.Filter{Method: "MachineService/Version"}))).To(BeNumerically("<", calls))
}
