// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	cosiserver "github.com/cosi-project/runtime/pkg/state/protobuf/server"
	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/meta"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/guard"
)

// server is one machine that serves the real API on a socket, and notes the calls that arrive.
type server struct {
	machineapi.UnimplementedMachineServiceServer

	state state.State

	mu    sync.Mutex
	calls []string
	nodes []string
	mode  machineapi.RebootRequest_Mode

	exit    *int32
	pulled  string
	refuses error

	// pullError is what pulling ends with.
	pullError error
	upgrade   *machineapi.UpgradeRequest

	reset    *machineapi.ResetRequest
	services []*machineapi.ServiceInfo
}

// images and lifecycle are the services of the same machine whose methods have the names of others.
type images struct {
	machineapi.UnimplementedImageServiceServer

	server *server
}

type lifecycle struct {
	machineapi.UnimplementedLifecycleServiceServer

	server *server
}

func (s *server) note(ctx context.Context, method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, method)
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		s.nodes = append(s.nodes, md.Get("node")...)
	}
}

func (s *server) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	return &machineapi.VersionResponse{Messages: []*machineapi.Version{{Version: &machineapi.VersionInfo{Tag: "v1.13.9"}}}}, nil
}

func (s *server) Read(request *machineapi.ReadRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	if request.GetPath() != "/proc/sys/kernel/random/boot_id" {
		return errors.New("no such file")
	}
	return stream.Send(&common.Data{Bytes: []byte("boot-1\n")})
}

func (s *server) EtcdStatus(context.Context, *emptypb.Empty) (*machineapi.EtcdStatusResponse, error) {
	return &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{MemberStatus: &machineapi.EtcdMemberStatus{
		MemberId: 1, Leader: 2, RaftTerm: 7, IsLearner: true, Errors: []string{"slow"},
	}}}}, nil
}

func (s *server) EtcdMemberList(context.Context, *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
	return &machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{{Members: []*machineapi.EtcdMember{
		{Id: 1, Hostname: "cp-1", ClientUrls: []string{"https://10.0.0.1:2379"}}, {Id: 2, Hostname: "cp-2", IsLearner: true},
	}}}}, nil
}

func (s *server) EtcdAlarmList(context.Context, *emptypb.Empty) (*machineapi.EtcdAlarmListResponse, error) {
	return &machineapi.EtcdAlarmListResponse{Messages: []*machineapi.EtcdAlarm{{MemberAlarms: []*machineapi.EtcdMemberAlarm{
		{MemberId: 0x2a, Alarm: machineapi.EtcdMemberAlarm_NOSPACE},
	}}}}, nil
}

func (s *server) Reboot(ctx context.Context, request *machineapi.RebootRequest) (*machineapi.RebootResponse, error) {
	s.note(ctx, "Reboot")
	s.mode = request.GetMode()
	return &machineapi.RebootResponse{Messages: []*machineapi.Reboot{{ActorId: "a"}}}, nil
}

func (s *server) Upgrade(ctx context.Context, request *machineapi.UpgradeRequest) (*machineapi.UpgradeResponse, error) {
	s.note(ctx, "MachineService/Upgrade "+request.GetImage())
	s.upgrade = request
	if s.refuses != nil {
		return nil, s.refuses
	}
	return &machineapi.UpgradeResponse{Messages: []*machineapi.Upgrade{{Ack: "Upgrade request received", ActorId: "a"}}}, nil
}

func (s *server) EtcdForfeitLeadership(ctx context.Context, _ *machineapi.EtcdForfeitLeadershipRequest) (*machineapi.EtcdForfeitLeadershipResponse, error) {
	s.note(ctx, "EtcdForfeitLeadership")
	return &machineapi.EtcdForfeitLeadershipResponse{Messages: []*machineapi.EtcdForfeitLeadership{{}}}, nil
}

func (s images) Pull(request *machineapi.ImageServicePullRequest, stream grpc.ServerStreamingServer[machineapi.ImageServicePullResponse]) error {
	s.server.note(stream.Context(), "Pull "+request.GetImageRef()+" "+request.GetContainerd().GetNamespace().String())
	if s.server.pulled == "" {
		return s.server.pullError
	}
	return stream.Send(&machineapi.ImageServicePullResponse{Response: &machineapi.ImageServicePullResponse_Name{Name: s.server.pulled}})
}

func (s lifecycle) Upgrade(request *machineapi.LifecycleServiceUpgradeRequest, stream grpc.ServerStreamingServer[machineapi.LifecycleServiceUpgradeResponse]) error {
	s.server.note(stream.Context(), "Upgrade "+request.GetSource().GetImageName())
	for _, response := range []*machineapi.LifecycleServiceInstallProgress{
		{Response: &machineapi.LifecycleServiceInstallProgress_Message{Message: "writing"}}, nil,
	} {
		if response == nil && s.server.exit == nil {
			return nil
		}
		if response == nil {
			response = &machineapi.LifecycleServiceInstallProgress{Response: &machineapi.LifecycleServiceInstallProgress_ExitCode{ExitCode: *s.server.exit}}
		}
		if err := stream.Send(&machineapi.LifecycleServiceUpgradeResponse{Progress: response}); err != nil {
			return err
		}
	}
	return nil
}

// serve starts a machine and connects to it as the pool does, but for TLS.
func serve(t *testing.T) (*server, *client.Client) {
	t.Helper()
	g := NewWithT(t)
	s := &server{state: state.WrapCore(namespaced.NewState(inmem.Build))}
	socket := filepath.Join(t.TempDir(), "apid")
	listener, err := net.Listen("unix", socket)
	g.Expect(err).NotTo(HaveOccurred())
	api := grpc.NewServer()
	machineapi.RegisterMachineServiceServer(api, s)
	machineapi.RegisterImageServiceServer(api, images{server: s})
	machineapi.RegisterLifecycleServiceServer(api, lifecycle{server: s})
	cosiv1alpha1.RegisterStateServer(api, cosiserver.NewState(s.state))
	go api.Serve(listener) //nolint:errcheck // It ends with the test.
	t.Cleanup(api.Stop)
	c, err := client.New(t.Context(), client.WithUnixSocket(socket), client.WithGRPCDialOptions(
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(guardUnary), grpc.WithChainStreamInterceptor(guardStream),
	))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // As above.
	return s, c
}

func (s *server) create(t *testing.T, resources ...resource.Resource) {
	t.Helper()
	for _, r := range resources {
		NewWithT(t).Expect(s.state.Create(t.Context(), r)).To(Succeed())
	}
}

func identity(uuid, node string) []resource.Resource {
	system := hardware.NewSystemInformation(hardware.SystemInformationID)
	system.TypedSpec().UUID = uuid
	name := k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID)
	name.TypedSpec().Nodename = node
	return []resource.Resource{system, name}
}

func TestMachine(t *testing.T) {
	g := NewWithT(t)
	s, c := serve(t)
	reader := &connection{client: c}
	seen, err := reader.Machine(t.Context(), "10.0.0.1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(seen).To(Equal(Machine{Version: "v1.13.9", BootID: "boot-1"}), "resources that are not there yet are no error")

	machineStatus := runtime.NewMachineStatus()
	machineStatus.TypedSpec().Stage = runtime.MachineStageRunning
	machineStatus.TypedSpec().Status = runtime.MachineStatusStatus{UnmetConditions: []runtime.UnmetCondition{{Name: "time", Reason: "not in sync"}}}
	platform := runtime.NewPlatformMetadataSpec(runtime.NamespaceName, runtime.PlatformMetadataID)
	platform.TypedSpec().Platform = "metal"
	security := runtime.NewSecurityStateSpec(runtime.NamespaceName)
	security.TypedSpec().SecureBoot = true
	schematic := runtime.NewExtensionStatus(runtime.NamespaceName, "0")
	schematic.TypedSpec().Metadata.Name, schematic.TypedSpec().Metadata.Version = "schematic", "s1"
	key := runtime.NewMetaKey(runtime.NamespaceName, runtime.MetaKeyTagToID(meta.Upgrade))
	s.create(t, append(identity("u1", "cp-1"), machineStatus, platform, security, schematic, key)...)
	seen, err = reader.Machine(t.Context(), "10.0.0.1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(seen).To(Equal(Machine{
		Version: "v1.13.9", BootID: "boot-1", UUID: "u1", NodeName: "cp-1", Stage: "running", Unmet: []string{"time: not in sync"},
		SchematicID: "s1", Platform: "metal", SecureBoot: true, UpgradePending: true,
	}))
	g.Expect(s.calls).To(BeEmpty())
}

func TestEtcd(t *testing.T) {
	g := NewWithT(t)
	_, c := serve(t)
	seen, err := (&connection{client: c}).Etcd(t.Context(), "10.0.0.1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(seen).To(Equal(Etcd{
		MemberID: 1, Leader: 2, RaftTerm: 7, Learner: true, Errors: []string{"slow"}, Alarms: []string{"NOSPACE on member 000000000000002a"},
		Members: []EtcdMember{{ID: 1, Hostname: "cp-1", Started: true}, {ID: 2, Hostname: "cp-2", Learner: true}},
	}))
}

func change(c *client.Client, g guard.Func) map[string]func(context.Context) error {
	w := &connection{client: c, guard: g}
	return map[string]func(context.Context) error{
		"EtcdForfeitLeadership":              func(ctx context.Context) error { return w.ForfeitLeadership(ctx, "10.0.0.1") },
		"Reboot":                             func(ctx context.Context) error { return w.Reboot(ctx, "10.0.0.1", "Force") },
		"MachineService/Upgrade an/image:v1": func(ctx context.Context) error { return w.Upgrade(ctx, "10.0.0.1", "an/image:v1") },
		"Pull an/image:v1 NS_SYSTEM": func(ctx context.Context) error {
			_, err := w.PullImage(ctx, "10.0.0.1", "an/image:v1")
			return err
		},
		"Pull an/image:v1 NS_CRI": func(ctx context.Context) error {
			return w.PullKubernetesImage(ctx, "10.0.0.1", "an/image:v1", PodImages)
		},
		"Upgrade an/image:v1": func(ctx context.Context) error {
			_, err := w.InstallImage(ctx, "10.0.0.1", "an/image:v1")
			return err
		},
		"Shutdown force=true":    func(ctx context.Context) error { return w.Shutdown(ctx, "10.0.0.1") },
		"ServiceRestart kubelet": func(ctx context.Context) error { return w.RestartService(ctx, "10.0.0.1", "kubelet") },
		"EtcdDefragment": func(ctx context.Context) error {
			_, _, err := w.Defragment(ctx, "10.0.0.1")
			return err
		},
		"EtcdAlarmDisarm":         func(ctx context.Context) error { return w.DisarmAlarms(ctx, "10.0.0.1") },
		"EtcdLeaveCluster":        func(ctx context.Context) error { return w.LeaveEtcd(ctx, "10.0.0.1") },
		"EtcdRemoveMemberByID 1a": func(ctx context.Context) error { return w.RemoveEtcdMember(ctx, "10.0.0.1", 0x1a) },
		"EtcdRecover a snapshot": func(ctx context.Context) error {
			return w.RecoverEtcd(ctx, "10.0.0.1", strings.NewReader("a snapshot"))
		},
		"Bootstrap recover=true skip=true": func(ctx context.Context) error { return w.BootstrapEtcd(ctx, "10.0.0.1", true) },
		"Reset":                            func(ctx context.Context) error { return w.Reset(ctx, "10.0.0.1", Reset{Partitions: []string{"STATE"}}) },
	}
}

// Every changing call asks the guard, and does not leave this process if that says no.
func TestGuardIsAskedBeforeEveryChange(t *testing.T) {
	zero := int32(0)
	for name := range change(nil, nil) {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s, c := serve(t)
			s.exit, s.pulled = &zero, "an/image@sha256:1"
			lost := errors.New("the lock is gone")
			err := change(c, func(context.Context) error { return lost })[name](t.Context())
			g.Expect(err).To(MatchError(guard.ErrNotAllowed))
			g.Expect(err).To(MatchError(lost))
			g.Expect(Classify(err)).To(BeEquivalentTo("Interrupted"))
			g.Expect(change(c, nil)[name](t.Context())).To(MatchError(guard.ErrNotAllowed), "no guard allows nothing")
			g.Expect(s.calls).To(BeEmpty())

			asked := 0
			g.Expect(change(c, func(context.Context) error { asked++; return nil })[name](t.Context())).To(Succeed())
			g.Expect(asked).To(Equal(1))
			g.Expect(s.calls).To(Equal([]string{name}))
			g.Expect(s.nodes).To(Equal([]string{"10.0.0.1"}), "the call is for the one machine (A9)")
		})
	}
}

// A method that nobody thought of is refused rather than let through.
func TestReadOnlyMethods(t *testing.T) {
	g := NewWithT(t)
	var listed []string
	for method := range readOnly {
		listed = append(listed, method)
	}
	slices.Sort(listed)
	g.Expect(listed).To(Equal([]string{
		"/cosi.resource.State/Get", "/cosi.resource.State/List", "/cosi.resource.State/Watch", "/machine.MachineService/EtcdAlarmList",
		"/machine.MachineService/EtcdMemberList", "/machine.MachineService/EtcdSnapshot", "/machine.MachineService/EtcdStatus",
		"/machine.MachineService/List", "/machine.MachineService/Read", "/machine.MachineService/ServiceList", "/machine.MachineService/Version",
	}))
	s, c := serve(t)
	_, err := c.MachineClient.Shutdown(t.Context(), &machineapi.ShutdownRequest{})
	g.Expect(err).To(MatchError("/machine.MachineService/Shutdown: the change was not made: no guard was given"))
	g.Expect(c.COSI.Create(t.Context(), runtime.NewMachineStatus())).To(MatchError(guard.ErrNotAllowed))
	g.Expect(s.calls).To(BeEmpty())
}

func allowed(context.Context) error { return nil }

func TestRebootModes(t *testing.T) {
	for mode, want := range map[v1alpha1.RebootMode]machineapi.RebootRequest_Mode{
		"": machineapi.RebootRequest_DEFAULT, "Default": machineapi.RebootRequest_DEFAULT,
		"PowerCycle": machineapi.RebootRequest_POWERCYCLE, "Force": machineapi.RebootRequest_FORCE,
	} {
		g := NewWithT(t)
		s, c := serve(t)
		g.Expect((&connection{client: c, guard: allowed}).Reboot(t.Context(), "10.0.0.1", mode)).To(Succeed())
		g.Expect(s.mode).To(Equal(want))
	}
}

// The exit code is the answer; a stream that ends without one leaves it open.
func TestInstallImage(t *testing.T) {
	for _, code := range []int32{0, 7} {
		g := NewWithT(t)
		s, c := serve(t)
		s.exit = &code
		got, err := (&connection{client: c, guard: allowed}).InstallImage(t.Context(), "10.0.0.1", "x")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got).To(Equal(code))
	}
	g := NewWithT(t)
	_, c := serve(t)
	_, err := (&connection{client: c, guard: allowed}).InstallImage(t.Context(), "10.0.0.1", "x")
	g.Expect(err).To(MatchError(ContainSubstring("the stream ended without an exit code")))
	g.Expect(Classify(err)).To(BeEquivalentTo("Retryable"))
}

func TestPullImage(t *testing.T) {
	g := NewWithT(t)
	s, c := serve(t)
	w := &connection{client: c, guard: allowed}
	_, err := w.PullImage(t.Context(), "10.0.0.1", "x")
	g.Expect(err).To(MatchError("pulling x at 10.0.0.1: the machine did not say what it pulled"))
	s.pulled = "x@sha256:1"
	g.Expect(w.PullImage(t.Context(), "10.0.0.1", "x")).To(Equal("x@sha256:1"))
}

// Talos before 1.13 is asked to keep the data, and to skip nothing by force: neither its own checks of the image nor the order of its stop.
func TestUpgrade(t *testing.T) {
	g := NewWithT(t)
	s, c := serve(t)
	w := &connection{client: c, guard: allowed}
	g.Expect(w.Upgrade(t.Context(), "10.0.0.1", "x")).To(Succeed())
	g.Expect(s.upgrade.GetImage()).To(Equal("x"))
	g.Expect(s.upgrade.GetPreserve()).To(BeTrue())
	g.Expect(s.upgrade.GetForce()).To(BeFalse())
	g.Expect(s.upgrade.GetStage()).To(BeFalse())
	g.Expect(s.upgrade.GetRebootMode()).To(Equal(machineapi.UpgradeRequest_DEFAULT))

	s.refuses = status.Error(codes.Unknown, "error validating installer image")
	err := w.Upgrade(t.Context(), "10.0.0.1", "x")
	g.Expect(err).To(MatchError(ContainSubstring("upgrading 10.0.0.1 to x: rpc error: code = Unknown desc = error validating installer image")))
	g.Expect(Classify(err)).To(BeEquivalentTo("Permanent"))
}
