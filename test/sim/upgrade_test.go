// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/drain"

	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
)

const (
	otherSchematic = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
	factoryImage   = "factory.talos.dev/metal-installer/" + otherSchematic
)

// small is a cluster for tests that need one node of each kind.
var small = sim.ClusterSpec{Name: "small", ControlPlanes: 1, Workers: 1}

func pull(ctx context.Context, c *client.Client, image string) (string, error) {
	stream, err := c.ImageClient.Pull(ctx, &machineapi.ImageServicePullRequest{Containerd: containerd(), ImageRef: image})
	if err != nil {
		return "", err
	}
	for name := ""; ; {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return name, nil
		}
		if err != nil {
			return "", err
		}
		name = resp.GetName()
	}
}

func containerd() *common.ContainerdInstance {
	return &common.ContainerdInstance{Driver: common.ContainerDriver_CONTAINERD, Namespace: common.ContainerdNamespace_NS_SYSTEM}
}

func install(ctx context.Context, c *client.Client, image string) (int32, error) {
	stream, err := c.LifecycleClient.Upgrade(ctx, &machineapi.LifecycleServiceUpgradeRequest{
		Containerd: containerd(), Source: &machineapi.InstallArtifactsSource{ImageName: image},
	})
	if err != nil {
		return 0, err
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return 0, fmt.Errorf("no exit code: %w", err)
		}
		if exit, ok := resp.GetProgress().GetResponse().(*machineapi.LifecycleServiceInstallProgress_ExitCode); ok {
			return exit.ExitCode, nil
		}
	}
}

func pullAndInstall(ctx context.Context, c *client.Client, image string) (int32, error) {
	name, err := pull(ctx, c, image)
	if err != nil {
		return 0, err
	}
	return install(ctx, c, name)
}

func bootID(ctx context.Context, c *client.Client) (string, error) {
	r, err := c.Read(ctx, "/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(r)
	return string(data), err
}

// reboot reboots a node by the API and waits until it is back.
func reboot(t *testing.T, s *sim.Simulator, c *client.Client, n *sim.Node) {
	t.Helper()
	g := NewWithT(t)
	after := s.Journal().Last()
	g.Expect(c.Reboot(client.WithNode(t.Context(), n.Address()))).To(Succeed())
	awaitEvent(t, s, n, "ready", after)
}

// awaitEvent waits for an event of the node. Events are recorded after their effects are visible on the APIs.
func awaitEvent(t *testing.T, s *sim.Simulator, n *sim.Node, event string, after uint64) {
	t.Helper()
	_, err := s.Journal().Wait(within(t), journal.Filter{Node: n.Name(), Method: "event " + event, After: after})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
}

func drainer(ctx context.Context, k kubernetes.Interface) *drain.Helper {
	return &drain.Helper{
		Ctx: ctx, Client: k, Force: false, GracePeriodSeconds: -1, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true,
		Out: io.Discard, ErrOut: io.Discard,
	}
}

func TestUpgradeByHand(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 3, Workers: 2})
	cluster := s.Cluster("a")
	k := kubeClient(t, cluster)
	c := talosClient(t, cluster.Talosconfig())

	for _, n := range cluster.Nodes() {
		upgradeNode(t, s, c, k, n)
	}
	for _, n := range cluster.Nodes() {
		node, err := k.CoreV1().Nodes().Get(t.Context(), n.Name(), metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(node.Status.NodeInfo.OSImage).To(Equal("Talos (v1.13.9)"))
		g.Expect(node.Status.NodeInfo.BootID).To(Equal(n.State().BootID))
		g.Expect(node.Status.NodeInfo.KubeletVersion).To(Equal(sim.DefaultKubernetesVersion), "Talos upgrades leave the kubelet alone")
		g.Expect(node.Spec.Unschedulable).To(BeFalse())
	}
	g.Expect(s.Journal().Entries(journal.Filter{Cluster: "a", Method: "LifecycleService/Upgrade"})).To(HaveLen(5))
}

func upgradeNode(t *testing.T, s *sim.Simulator, c *client.Client, k kubernetes.Interface, n *sim.Node) {
	t.Helper()
	g := NewWithT(t)
	ctx := client.WithNode(within(t), n.Address())
	before, err := bootID(ctx, c)
	g.Expect(err).NotTo(HaveOccurred())

	code, err := pullAndInstall(ctx, c, factoryImage+":v1.13.9")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(code).To(BeZero())
	g.Expect(versionOf(ctx, c)).To(Equal("v1.13.6"), "installed is not running")
	g.Expect(n.State().UpgradePending).To(BeTrue())

	if n.ControlPlane() {
		_, err = c.EtcdForfeitLeadership(ctx, &machineapi.EtcdForfeitLeadershipRequest{})
		g.Expect(err).NotTo(HaveOccurred())
	}
	node, err := k.CoreV1().Nodes().Get(ctx, n.Name(), metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(drain.RunCordonOrUncordon(drainer(ctx, k), node, true)).To(Succeed())
	g.Expect(drain.RunNodeDrain(drainer(ctx, k), n.Name())).To(Succeed())
	expectDrained(t, k, n.Name())

	installed := s.Journal().Last()
	reboot(t, s, c, n)
	awaitEvent(t, s, n, "committed", installed)
	after, err := bootID(ctx, c)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(after).NotTo(Equal(before))
	g.Expect(versionOf(ctx, c)).To(Equal("v1.13.9"))
	g.Expect(schematicOf(ctx, c)).To(Equal(otherSchematic))
	g.Expect(safe.StateListAll[*runtime.MetaKey](ctx, c.COSI)).To(HaveField("Len()", 0))
	if n.ControlPlane() {
		expectVoter(ctx, t, c)
	}
	g.Expect(drain.RunCordonOrUncordon(drainer(ctx, k), node, false)).To(Succeed())
}

func versionOf(ctx context.Context, c *client.Client) (string, error) {
	resp, err := c.Version(ctx)
	if err != nil {
		return "", err
	}
	return resp.GetMessages()[0].GetVersion().GetTag(), nil
}

// schematicOf reads the pseudo extension of Talos 1.13.
func schematicOf(ctx context.Context, c *client.Client) (string, error) {
	list, err := safe.StateListAll[*runtime.ExtensionStatus](ctx, c.COSI)
	if err != nil {
		return "", err
	}
	for r := range list.All() {
		if r.TypedSpec().Metadata.Name == "schematic" {
			return r.TypedSpec().Metadata.Version, nil
		}
	}
	return "", errors.New("no schematic")
}

func expectVoter(ctx context.Context, t *testing.T, c *client.Client) {
	t.Helper()
	g := NewWithT(t)
	members, err := c.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(members.GetMessages()[0].GetMembers()).To(HaveLen(3))
	st, err := c.EtcdStatus(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(st.GetMessages()[0].GetMemberStatus().GetLeader()).NotTo(BeZero())
	g.Expect(st.GetMessages()[0].GetMemberStatus().GetErrors()).To(BeEmpty())
}

// expectDrained finds only daemon and static pods on the node, and the deployment whole elsewhere.
func expectDrained(t *testing.T, k kubernetes.Interface, node string) {
	t.Helper()
	g := NewWithT(t)
	pods, err := k.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pods.Items).NotTo(BeEmpty())
	for _, pod := range pods.Items {
		g.Expect(metav1.GetControllerOf(&pod).Kind).To(BeElementOf("DaemonSet", "Node"))
	}
	web, err := k.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(running(web.Items)).To(HaveLen(4))
}

func running(pods []corev1.Pod) (alive []string) {
	for _, p := range pods {
		if p.DeletionTimestamp == nil {
			alive = append(alive, p.Name)
		}
	}
	return alive
}

func TestUpgradeTo114ShowsTheNewResources(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	c := talosClient(t, s.Cluster("small").Talosconfig())
	worker := s.Cluster("small").Node("worker-1")
	ctx := client.WithNode(within(t), worker.Address())
	_, err := safe.StateGetByID[*runtime.BootID](ctx, c.COSI, runtime.BootIDID)
	g.Expect(status.Code(err)).To(Equal(codes.PermissionDenied), "1.13 does not know the type")

	g.Expect(pullAndInstall(ctx, c, factoryImage+":v1.14.1")).To(BeZero())
	reboot(t, s, c, worker)

	boot, err := safe.StateGetByID[*runtime.BootID](ctx, c.COSI, runtime.BootIDID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(boot.TypedSpec().BootID).To(Equal(worker.State().BootID))
	schematic, err := safe.StateGetByID[*runtime.ImageFactorySchematic](ctx, c.COSI, runtime.ImageFactorySchematicID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(schematic.TypedSpec().SchematicID).To(Equal(otherSchematic))
}

func TestInstallRefusals(t *testing.T) {
	s := start(t, small)
	c := talosClient(t, s.Cluster("small").Talosconfig())
	worker := s.Cluster("small").Node("worker-1")
	ctx := client.WithNode(t.Context(), worker.Address())

	t.Run("an image that was not pulled", func(t *testing.T) {
		_, err := install(ctx, c, factoryImage+":v1.13.9")
		NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring("Internal"), ContainSubstring("not found in containerd store"))))
	})
	t.Run("an image that does not exist", func(t *testing.T) {
		_, err := pull(ctx, c, "ghcr.io/siderolabs/installer:v1.14.1")
		NewWithT(t).Expect(status.Code(err)).To(Equal(codes.NotFound))
	})
	t.Run("a version that the host is too old for", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(pullAndInstall(ctx, c, factoryImage+":v1.15.0")).NotTo(BeZero())
		g.Expect(worker.State().UpgradePending).To(BeFalse())
	})
	t.Run("a pull that fails on order", func(t *testing.T) {
		g := NewWithT(t)
		_, err := s.Inject(fault.Fault{Name: fault.PullFailure, Node: worker.Name(), Times: 1})
		g.Expect(err).NotTo(HaveOccurred())
		_, err = pull(ctx, c, factoryImage+":v1.13.8")
		g.Expect(err).To(MatchError(ContainSubstring("503")))
		g.Expect(pull(ctx, c, factoryImage+":v1.13.8")).To(ContainSubstring("@sha256:"))
	})
}

func TestInstallerExitCode(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	c := talosClient(t, s.Cluster("small").Talosconfig())
	worker := s.Cluster("small").Node("worker-1")
	ctx := client.WithNode(within(t), worker.Address())
	_, err := s.Inject(fault.Fault{
		Name: fault.InstallerExit, Node: worker.Name(), Times: 1, Params: map[string]string{fault.ParamCode: "7"},
	})
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(pullAndInstall(ctx, c, factoryImage+":v1.13.9")).To(BeEquivalentTo(7))
	g.Expect(worker.State().Next.Version).To(Equal("v1.13.6"))
	entry, err := s.Journal().Wait(within(t), journal.Filter{Node: worker.Name(), Method: "LifecycleService/Upgrade", Done: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(entry.ExitCode).To(HaveValue(BeEquivalentTo(7)))

	g.Expect(s.Faults()).To(BeEmpty(), "it was ordered once")
	g.Expect(pullAndInstall(ctx, c, factoryImage+":v1.13.9")).To(BeZero())
}

func TestInstallerOutlivesItsCaller(t *testing.T) {
	g := NewWithT(t)
	timings := sim.DefaultTimings().Scaled(fast)
	timings.Install = time.Second // Long enough for a second call, even on a busy machine.
	s := startWith(t, sim.Options{Dir: t.TempDir(), Timings: &timings, Clusters: []sim.ClusterSpec{small}})
	c := talosClient(t, s.Cluster("small").Talosconfig())
	worker := s.Cluster("small").Node("worker-1")
	ctx := client.WithNode(within(t), worker.Address())
	name, err := pull(ctx, c, factoryImage+":v1.13.9")
	g.Expect(err).NotTo(HaveOccurred())

	impatient, giveUp := context.WithCancel(ctx)
	stream, err := c.LifecycleClient.Upgrade(impatient, &machineapi.LifecycleServiceUpgradeRequest{
		Containerd: containerd(), Source: &machineapi.InstallArtifactsSource{ImageName: name},
	})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = stream.Recv()
	g.Expect(err).NotTo(HaveOccurred(), "the installer runs")
	giveUp()

	_, err = install(ctx, c, name)
	g.Expect(status.Code(errors.Unwrap(err))).To(Equal(codes.FailedPrecondition))
	g.Expect(err).To(MatchError(ContainSubstring("another installation/upgrade is already in progress")))
	awaitEvent(t, s, worker, "installer", 0)
	g.Expect(worker.State().Next.Version).To(Equal("v1.13.9"))
}

func TestFallback(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	c := talosClient(t, s.Cluster("small").Talosconfig())
	worker := s.Cluster("small").Node("worker-1")
	ctx := client.WithNode(within(t), worker.Address())
	_, err := s.Inject(fault.Fault{Name: fault.Fallback, Node: worker.Name(), Times: 1})
	g.Expect(err).NotTo(HaveOccurred())
	before := worker.State()

	g.Expect(pullAndInstall(ctx, c, factoryImage+":v1.13.9")).To(BeZero())
	reboot(t, s, c, worker)

	after := worker.State()
	g.Expect(after.BootID).NotTo(Equal(before.BootID))
	g.Expect(after.Running).To(Equal(before.Running))
	g.Expect(after.UpgradePending).To(BeFalse())
	g.Expect(versionOf(ctx, c)).To(Equal("v1.13.6"))
	g.Expect(s.Journal().Entries(journal.Filter{Node: worker.Name(), Method: "event fallback"})).To(HaveLen(1))
}

func TestMetaWriteLosesTheWayBack(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	c := talosClient(t, s.Cluster("small").Talosconfig())
	worker := s.Cluster("small").Node("worker-1")
	ctx := client.WithNode(within(t), worker.Address())
	g.Expect(pullAndInstall(ctx, c, factoryImage+":v1.13.9")).To(BeZero())
	g.Expect(worker.State().UpgradePending).To(BeTrue())

	g.Expect(c.MetaWrite(ctx, 12, []byte("note"))).To(Succeed())
	g.Expect(worker.State().UpgradePending).To(BeFalse())
	g.Expect(c.MetaWrite(ctx, 6, []byte("A"))).NotTo(Succeed())
}

func TestRollback(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	c := talosClient(t, s.Cluster("small").Talosconfig())
	worker := s.Cluster("small").Node("worker-1")
	ctx := client.WithNode(within(t), worker.Address())
	g.Expect(c.Rollback(ctx)).NotTo(Succeed(), "there is no other slot")
	g.Expect(pullAndInstall(ctx, c, factoryImage+":v1.13.9")).To(BeZero())
	reboot(t, s, c, worker)

	after := s.Journal().Last()
	g.Expect(c.Rollback(ctx)).To(Succeed())
	awaitEvent(t, s, worker, "ready", after)
	g.Expect(worker.State().Running.Version).To(Equal("v1.13.6"))
}
