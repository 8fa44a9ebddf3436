// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/client"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/control"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
)

func TestTwoSimulatorsSideBySide(t *testing.T) {
	g := NewWithT(t)
	one, two := start(t, small), start(t, small)
	a, b := one.Cluster("small").Nodes()[0], two.Cluster("small").Nodes()[0]
	g.Expect(a.Address()).NotTo(Equal(b.Address()))
	g.Expect(a.UUID()).NotTo(Equal(b.UUID()))
	g.Expect(one.Cluster("small").Endpoint()).NotTo(Equal(two.Cluster("small").Endpoint()))
	for _, s := range []*sim.Simulator{one, two} {
		c := s.Cluster("small")
		_, err := talosClient(t, c.Talosconfig()).Version(client.WithNode(t.Context(), c.Nodes()[1].Address()))
		g.Expect(err).NotTo(HaveOccurred())
	}
	foreign := talosClient(t, one.Cluster("small").Talosconfig(), b.Address())
	_, err := foreign.Version(within(t))
	g.Expect(err).To(HaveOccurred(), "each has its own certificate authority")
}

func TestRestartWithTheSameDirectory(t *testing.T) {
	g := NewWithT(t)
	o := sim.Options{Dir: t.TempDir(), Speed: fast, Clusters: []sim.ClusterSpec{small}}
	s := startWith(t, o)
	worker := s.Cluster("small").Node("worker-1")
	talosconfig := s.Cluster("small").Talosconfig()
	ctx := client.WithNode(within(t), worker.Address())
	g.Expect(pullAndInstall(ctx, talosClient(t, talosconfig), factoryImage+":v1.13.9")).To(BeZero())
	reboot(t, s, talosClient(t, talosconfig), worker)
	k := kubeClient(t, s.Cluster("small"))
	setUnschedulable(t, k, worker.Name(), "true")
	_, err := k.CoreV1().ConfigMaps("kube-system").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "record"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	before := worker.State()
	s.Stop()

	again := startWith(t, o)
	after := again.Cluster("small").Node(worker.Name())
	g.Expect(after.Address()).To(Equal(worker.Address()))
	g.Expect(after.UUID()).To(Equal(worker.UUID()))
	g.Expect(after.State().Running).To(Equal(before.Running))
	g.Expect(after.State().BootID).To(Equal(before.BootID), "the machine did not reboot")
	g.Expect(versionOf(ctx, talosClient(t, talosconfig))).To(Equal("v1.13.9"), "the old credentials are good")
	node, err := kubeClient(t, again.Cluster("small")).CoreV1().Nodes().Get(ctx, worker.Name(), metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(node.Spec.Unschedulable).To(BeTrue())
	_, err = kubeClient(t, again.Cluster("small")).CoreV1().ConfigMaps("kube-system").Get(ctx, "record", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
}

func TestCredentialsArePrivate(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	startWith(t, sim.Options{Dir: dir, Clusters: []sim.ClusterSpec{small}})
	for _, file := range []string{"small/secrets.yaml", "small/kubeconfig", "small/talosconfig", "control.json", "journal.jsonl"} {
		info, err := os.Stat(filepath.Join(dir, file))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600), file)
	}
}

func TestControlAPI(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	s := startWith(t, sim.Options{Dir: dir, Speed: fast, Clusters: []sim.ClusterSpec{small}})
	c, err := control.Open(dir)
	g.Expect(err).NotTo(HaveOccurred())
	ctx := within(t)

	nodes, err := c.Nodes(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(nodes).To(HaveLen(2))
	g.Expect(nodes[0]).To(And(HaveField("Name", "cp-1"), HaveField("Leader", true), HaveField("Stage", "running")))

	id, err := c.Inject(ctx, fault.Fault{Name: fault.InstallerExit, Node: "worker-1", Times: 2})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.Faults(ctx)).To(ConsistOf(HaveField("ID", id)))
	g.Expect(c.Clear(ctx, id)).To(Succeed())
	g.Expect(c.Clear(ctx, id)).To(MatchError(ContainSubstring("no fault")))
	_, err = c.Inject(ctx, fault.Fault{Name: "unheard-of"})
	g.Expect(err).To(MatchError(ContainSubstring("unknown fault")))

	g.Expect(c.Power(ctx, "small", "worker-1", false)).To(Succeed())
	enough := errors.New("enough")
	err = c.Journal(ctx, journal.Filter{Node: "worker-1", Method: "event *"}, true, func(e journal.Entry) error {
		g.Expect(e.Method).To(Equal("event down"))
		return enough
	})
	g.Expect(err).To(MatchError(enough))
	s.Stop()
	_, err = control.Open(dir)
	g.Expect(err).To(MatchError(ContainSubstring("no simulation runs")))
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]sim.Options{
		"no directory":     {Clusters: []sim.ClusterSpec{small}},
		"no control plane": {Dir: t.TempDir(), Clusters: []sim.ClusterSpec{{Name: "a", Workers: 1}}},
		"bad name":         {Dir: t.TempDir(), Clusters: []sim.ClusterSpec{{Name: "A_b", ControlPlanes: 1}}},
		"a name twice":     {Dir: t.TempDir(), Clusters: []sim.ClusterSpec{small, small}},
		"bad version":      {Dir: t.TempDir(), Clusters: []sim.ClusterSpec{{Name: "a", ControlPlanes: 1, TalosVersion: "latest"}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sim.Start(context.Background(), o)
			NewWithT(t).Expect(err).To(HaveOccurred())
		})
	}
}

func TestParseClusterSpec(t *testing.T) {
	g := NewWithT(t)
	spec, err := sim.ParseClusterSpec("prod=3+5")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(spec).To(Equal(sim.ClusterSpec{Name: "prod", ControlPlanes: 3, Workers: 5}))
	for _, bad := range []string{"prod", "prod=3", "=1+1", "prod=0+1", "prod=a+b"} {
		_, err := sim.ParseClusterSpec(bad)
		g.Expect(err).To(HaveOccurred(), bad)
	}
}

func TestMinimumUpgrade(t *testing.T) {
	g := NewWithT(t)
	timings := sim.Timings{Pull: time.Second, Install: 2 * time.Second, Boot: 10 * time.Second, EtcdJoin: 3 * time.Second, PodTermination: 5 * time.Second}
	s := startWith(t, sim.Options{Dir: t.TempDir(), Timings: &timings, Clusters: []sim.ClusterSpec{{Name: "a", ControlPlanes: 3, Workers: 3}}})
	controlPlanes := 3 * (2 + 10 + 3) * time.Second
	worker := (2 + 5 + 10) * time.Second
	g.Expect(s.Cluster("a").MinimumUpgrade(1)).To(Equal(time.Second + controlPlanes + 3*worker))
	g.Expect(s.Cluster("a").MinimumUpgrade(2)).To(Equal(time.Second + controlPlanes + 2*worker))
}
