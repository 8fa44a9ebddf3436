// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
	"ichor.maesh.dev/hub/test/sim/machine"
)

const cordonedByTalos = "talos.dev/cordoned"

// old is a cluster whose Talos has only the older upgrade API.
var old = sim.ClusterSpec{Name: "old", ControlPlanes: 1, Workers: 2, TalosVersion: "v1.12.4"}

// startOld starts one whose machines take their time to go down, so that answers and events get out even of a busy machine.
func startOld(t *testing.T) *sim.Simulator {
	t.Helper()
	timings := sim.DefaultTimings().Scaled(fast)
	timings.Stop = 300 * time.Millisecond
	return startWith(t, sim.Options{Dir: t.TempDir(), Timings: &timings, Clusters: []sim.ClusterSpec{old}})
}

// legacyUpgrade calls the older upgrade API and returns the actor ID.
func legacyUpgrade(ctx context.Context, c *client.Client, options ...client.UpgradeOption) (string, error) {
	options = append([]client.UpgradeOption{client.WithUpgradeImage(factoryImage + ":v1.13.9")}, options...)
	resp, err := c.UpgradeWithOptions(ctx, options...)
	if err != nil {
		return "", err
	}
	return resp.GetMessages()[0].GetActorId(), nil
}

func TestLegacyUpgrade(t *testing.T) {
	g := NewWithT(t)
	s := start(t, old)
	worker := s.Cluster("old").Node("worker-1")
	c := talosClient(t, s.Cluster("old").Talosconfig())
	ctx := client.WithNode(within(t), worker.Address())
	before := worker.State()

	_, err := pull(ctx, c, factoryImage+":v1.13.9")
	g.Expect(err).To(And(haveCode(codes.Unimplemented), MatchError(ContainSubstring("unknown service machine.ImageService"))))
	_, err = install(ctx, c, factoryImage+":v1.13.9")
	g.Expect(err).To(MatchError(ContainSubstring("unknown service machine.LifecycleService")))

	actor, err := legacyUpgrade(ctx, c)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(actor).NotTo(BeEmpty())
	awaitEvent(t, s, worker, "committed", 0)

	after := worker.State()
	g.Expect(after.Running).To(Equal(machine.Slot{Version: "v1.13.9", Schematic: otherSchematic}))
	g.Expect(after.BootID).NotTo(Equal(before.BootID))
	g.Expect(eventsOf(s, worker)).To(Equal([]string{"drained", "installer", "down", "boot", "running", "ready", "committed"}))
	entry, err := s.Journal().Wait(within(t), journal.Filter{Node: worker.Name(), Method: "MachineService/Upgrade", Done: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(entry.Arguments).To(And(HaveKeyWithValue("image", factoryImage+":v1.13.9"), HaveKeyWithValue("stage", "false")))

	expectDrainedByTalos(t, s, worker)
	_, err = pull(ctx, c, factoryImage+":v1.13.9")
	g.Expect(err).NotTo(HaveOccurred(), "Talos 1.13 has the newer API")
}

func eventsOf(s *sim.Simulator, n *sim.Node) []string {
	var names []string
	for _, e := range s.Journal().Entries(journal.Filter{Node: n.Name(), Method: "event *"}) {
		names = append(names, e.Method[len("event "):])
	}
	return names
}

// expectDrainedByTalos finds the kubelet's calls in the journal, and the node in use again.
func expectDrainedByTalos(t *testing.T, s *sim.Simulator, n *sim.Node) {
	t.Helper()
	g := NewWithT(t)
	cordons := s.Journal().Entries(journal.Filter{Method: "kube PUT nodes/" + n.Name(), Done: true})
	g.Expect(cordons).To(HaveLen(2))
	g.Expect(cordons[0].Caller).To(Equal("system:node:" + n.Name()))
	g.Expect(cordons[0].Arguments).To(HaveKeyWithValue("unschedulable", "true"))
	g.Expect(cordons[1].Arguments).To(HaveKeyWithValue("unschedulable", "false"))
	evicted := 0
	for _, e := range s.Journal().Entries(journal.Filter{Method: "kube POST pods/*", Done: true}) {
		g.Expect(e.Arguments).To(HaveKeyWithValue("node", n.Name()))
		if e.Code == "201" {
			evicted++
		}
	}
	g.Expect(evicted).To(BeNumerically(">", 0))
	node, err := kubeClient(t, s.Cluster("old")).CoreV1().Nodes().Get(t.Context(), n.Name(), metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(node.Spec.Unschedulable).To(BeFalse())
	g.Expect(node.Annotations).NotTo(HaveKey(cordonedByTalos))
}

func TestLegacyUpgradeLeavesForeignCordons(t *testing.T) {
	g := NewWithT(t)
	s := start(t, old)
	worker := s.Cluster("old").Node("worker-1")
	k := kubeClient(t, s.Cluster("old"))
	node, err := k.CoreV1().Nodes().Get(t.Context(), worker.Name(), metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	node.Spec.Unschedulable = true
	_, err = k.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
	g.Expect(err).NotTo(HaveOccurred())

	c := talosClient(t, s.Cluster("old").Talosconfig())
	_, err = legacyUpgrade(client.WithNode(within(t), worker.Address()), c)
	g.Expect(err).NotTo(HaveOccurred())
	awaitEvent(t, s, worker, "committed", 0)
	node, err = k.CoreV1().Nodes().Get(t.Context(), worker.Name(), metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(node.Spec.Unschedulable).To(BeTrue())
}

func TestLegacyUpgradeIsRefused(t *testing.T) {
	s := start(t,
		sim.ClusterSpec{Name: "two", ControlPlanes: 2, TalosVersion: "v1.12.4"},
		sim.ClusterSpec{Name: "three", ControlPlanes: 3, TalosVersion: "v1.12.4"},
	)
	two, three := s.Cluster("two"), s.Cluster("three")
	onTwo, onThree := talosClient(t, two.Talosconfig()), talosClient(t, three.Talosconfig(), three.Node("cp-1").Address())
	first := client.WithNode(within(t), three.Node("cp-1").Address())

	t.Run("with an image that is none", func(t *testing.T) {
		_, err := legacyUpgrade(first, onThree, client.WithUpgradeImage("ghcr.io/siderolabs/installer:v1.14.1"))
		NewWithT(t).Expect(err).To(And(haveCode(codes.Unknown), MatchError(ContainSubstring("error validating installer image"))))
	})
	t.Run("with an image that installs nothing", func(t *testing.T) {
		_, err := legacyUpgrade(first, onThree, client.WithUpgradeImage("registry.k8s.io/kube-apiserver:v1.36.1"))
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("image is not an installer")))
	})
	t.Run("when the pull fails", func(t *testing.T) {
		g := NewWithT(t)
		_, err := s.Inject(fault.Fault{Name: fault.PullFailure, Cluster: "three", Times: 1})
		g.Expect(err).NotTo(HaveOccurred())
		_, err = legacyUpgrade(first, onThree)
		g.Expect(err).To(MatchError(ContainSubstring("503")))
	})
	t.Run("of one of two members", func(t *testing.T) {
		g := NewWithT(t)
		ctx := client.WithNode(within(t), two.Node("cp-1").Address())
		_, err := legacyUpgrade(ctx, onTwo)
		g.Expect(err).To(And(haveCode(codes.Unknown), MatchError(ContainSubstring("etcd member count(2) is insufficient to maintain quorum"))))
		g.Expect(eventsOf(s, two.Node("cp-1"))).To(BeEmpty())
	})
	t.Run("while another member is down", func(t *testing.T) {
		three.Node("cp-2").PowerOff()
		_, err := legacyUpgrade(first, onThree)
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("is not healthy; all members must be healthy to perform an upgrade")))
	})
	t.Run("but not when it is forced", func(t *testing.T) {
		_, err := legacyUpgrade(first, onThree, client.WithUpgradeForce(true))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	})
}

func TestLegacyUpgradeThatFails(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fault  fault.Fault
		events []string
	}{
		{
			name:   "in the installer",
			fault:  fault.Fault{Name: fault.InstallerExit, Node: "worker-1", Times: 1},
			events: []string{"drained", "installer", "failed", "down", "boot", "running", "ready"},
		},
		{
			name:   "in the new system's first boot",
			fault:  fault.Fault{Name: fault.Fallback, Node: "worker-1", Times: 1},
			events: []string{"drained", "installer", "down", "fallback", "boot", "running", "ready"},
		},
		{
			name:   "for lack of a Kubernetes API to drain by",
			fault:  fault.Fault{Name: fault.Unreachable, Params: map[string]string{fault.ParamAPI: "kube"}},
			events: []string{"failed", "down", "boot", "running", "ready"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			s := start(t, old)
			worker := s.Cluster("old").Node("worker-1")
			c := talosClient(t, s.Cluster("old").Talosconfig())
			before := worker.State()
			_, err := s.Inject(tt.fault)
			g.Expect(err).NotTo(HaveOccurred())

			_, err = legacyUpgrade(client.WithNode(within(t), worker.Address()), c)
			g.Expect(err).NotTo(HaveOccurred())
			awaitEvent(t, s, worker, "ready", 0)

			g.Expect(eventsOf(s, worker)).To(Equal(tt.events))
			g.Expect(worker.State().Running).To(Equal(before.Running))
			g.Expect(worker.State().BootID).NotTo(Equal(before.BootID), "the machine has rebooted all the same")
			g.Expect(worker.State().UpgradePending).To(BeFalse())
			s.Clear("")
			expectUncordoned(t, s, worker)
		})
	}
}

func expectUncordoned(t *testing.T, s *sim.Simulator, n *sim.Node) {
	t.Helper()
	k := kubeClient(t, s.Cluster("old"))
	NewWithT(t).Eventually(func(g Gomega) {
		node, err := k.CoreV1().Nodes().Get(t.Context(), n.Name(), metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(node.Spec.Unschedulable).To(BeFalse())
	}).Should(Succeed())
}

// TestLegacyUpgradeEvents is what Talos's own client looks at: the events of the actor, up to an error.
func TestLegacyUpgradeEvents(t *testing.T) {
	g := NewWithT(t)
	s := startOld(t)
	worker := s.Cluster("old").Node("worker-1")
	c := talosClient(t, s.Cluster("old").Talosconfig())
	ctx := client.WithNode(within(t), worker.Address())
	_, err := s.Inject(fault.Fault{Name: fault.InstallerExit, Node: worker.Name(), Times: 1})
	g.Expect(err).NotTo(HaveOccurred())
	events := make(chan client.EventResult)
	g.Expect(c.EventsWatchV2(ctx, events)).To(Succeed())
	actor, err := legacyUpgrade(ctx, c)
	g.Expect(err).NotTo(HaveOccurred())

	var phases []string
	for result := range until(ctx, events) {
		g.Expect(result.Error).NotTo(HaveOccurred())
		switch e := result.Event.Payload.(type) {
		case *machineapi.PhaseEvent:
			g.Expect(result.Event.ActorID).To(Equal(actor))
			phases = append(phases, e.GetPhase()+" "+e.GetAction().String())
		case *machineapi.SequenceEvent:
			if e.GetError() == nil {
				continue
			}
			g.Expect(e.GetError().GetCode()).To(Equal(common.Code_FATAL))
			g.Expect(e.GetError().GetMessage()).To(ContainSubstring("sequence failed: error running phase 9 in upgrade sequence"))
			g.Expect(phases).To(Equal([]string{"drain START", "drain STOP", "upgrade START", "upgrade STOP"}))
			return
		}
	}
	t.Fatal("the sequence did not fail")
}

func TestLegacyUpgradeIsNotTakenOver(t *testing.T) {
	g := NewWithT(t)
	timings := sim.DefaultTimings().Scaled(fast)
	timings.Install = time.Second // Long enough for a second call, even on a busy machine.
	s := startWith(t, sim.Options{Dir: t.TempDir(), Timings: &timings, Clusters: []sim.ClusterSpec{old}})
	worker := s.Cluster("old").Node("worker-1")
	c := talosClient(t, s.Cluster("old").Talosconfig())
	ctx := client.WithNode(within(t), worker.Address())
	_, err := legacyUpgrade(ctx, c)
	g.Expect(err).NotTo(HaveOccurred())
	awaitEvent(t, s, worker, "drained", 0)

	events := make(chan client.EventResult)
	g.Expect(c.EventsWatchV2(ctx, events)).To(Succeed())
	resp, err := c.RebootWithResponse(ctx)
	g.Expect(err).NotTo(HaveOccurred(), "the refusal is an event")
	for result := range until(ctx, events) {
		g.Expect(result.Error).NotTo(HaveOccurred())
		if result.Event.ActorID == resp.GetMessages()[0].GetActorId() {
			g.Expect(result.Event.Payload.(*machineapi.SequenceEvent).GetError().GetCode()).To(Equal(common.Code_LOCKED))
			break
		}
	}
	awaitEvent(t, s, worker, "committed", 0)
	g.Expect(s.Journal().Entries(journal.Filter{Node: worker.Name(), Method: "event boot"})).To(HaveLen(1))
}

// TestCaseD1LegacyDrainGivesUp is why the hub drains by itself.
func TestCaseD1LegacyDrainGivesUp(t *testing.T) {
	g := NewWithT(t)
	s := start(t, old)
	worker := s.Cluster("old").Node("worker-1")
	k := kubeClient(t, s.Cluster("old"))
	none := intstr.FromInt32(0)
	_, err := k.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &none, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())

	_, err = legacyUpgrade(client.WithNode(within(t), worker.Address()), talosClient(t, s.Cluster("old").Talosconfig()))
	g.Expect(err).NotTo(HaveOccurred())
	awaitEvent(t, s, worker, "committed", 0)
	pods, err := k.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + worker.Name()})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pods.Items).To(ContainElement(HaveField("ObjectMeta.Labels", HaveKeyWithValue("app", "web"))), "it was left behind")
	refused := 0
	for _, e := range s.Journal().Entries(journal.Filter{Method: "kube POST pods/*", Done: true}) {
		if e.Code == "429" {
			refused++
		}
	}
	g.Expect(refused).To(BeNumerically(">", 2), "it was tried again and again")
	g.Expect(pods.Items).To(HaveEach(HaveField("Status.Phase", corev1.PodRunning)))
}

func TestStagedUpgrade(t *testing.T) {
	g := NewWithT(t)
	s := startOld(t)
	worker := s.Cluster("old").Node("worker-1")
	c := talosClient(t, s.Cluster("old").Talosconfig())
	_, err := legacyUpgrade(client.WithNode(within(t), worker.Address()), c, client.WithUpgradeStage(true))
	g.Expect(err).NotTo(HaveOccurred())
	awaitEvent(t, s, worker, "committed", 0)

	g.Expect(eventsOf(s, worker)).To(Equal([]string{"down", "boot", "installer", "down", "boot", "running", "ready", "committed"}))
	boots := s.Journal().Entries(journal.Filter{Node: worker.Name(), Method: "event boot"})
	g.Expect(boots[0].Message).To(Equal("v1.12.4"), "the first boot only installs")
	g.Expect(worker.State().Running.Version).To(Equal("v1.13.9"))
}

// TestStagedUpgradeThatFails tries once.
func TestStagedUpgradeThatFails(t *testing.T) {
	g := NewWithT(t)
	s := startOld(t)
	worker := s.Cluster("old").Node("worker-1")
	c := talosClient(t, s.Cluster("old").Talosconfig())
	_, err := s.Inject(fault.Fault{Name: fault.InstallerExit, Node: worker.Name(), Times: 1})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = legacyUpgrade(client.WithNode(within(t), worker.Address()), c, client.WithUpgradeStage(true))
	g.Expect(err).NotTo(HaveOccurred())
	awaitEvent(t, s, worker, "ready", 0)

	g.Expect(eventsOf(s, worker)).To(Equal([]string{"down", "boot", "installer", "failed", "down", "boot", "running", "ready"}))
	g.Expect(worker.State().Running.Version).To(Equal("v1.12.4"))
}
