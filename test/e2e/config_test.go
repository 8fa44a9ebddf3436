// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
)

const (
	applyMethod = "MachineService/ApplyConfiguration"

	// secret is what no output of the hub may show.
	secret = "hunter2hunter2"

	live       = "machine:\n  sysctls:\n    vm.swappiness: \"1\"\n"
	needReboot = "machine:\n  env:\n    HTTP_PROXY: http://me:" + secret + "@proxy.example:3128\n"
)

var _ = Describe("Machine configs", func() {
	It("are compared, and brought in force without a reboot where none is needed", func(ctx SpecContext) {
		w := install(ctx, one)
		w.settled(ctx, "one")
		Expect(w.ichor(ctx, 0, "config", "diff", "--cluster", "one").Out).To(ContainSubstring("one-worker-1 (Worker): as it is asked for"))
		w.asksFor(ctx, "one", v1alpha1.MachineConfigPatch{Name: "swap", Patch: live}, v1alpha1.MachineConfigPatch{
			Name: "label", Machines: []string{"one-worker-2"}, Patch: "machine:\n  nodeLabels:\n    zone: b\n",
		})
		diff := w.ichor(ctx, 4, "config", "diff", "worker-2", "--cluster", "one").Out
		Expect(diff).To(And(ContainSubstring("one-worker-2 (Worker): differs, and needs no reboot"), ContainSubstring("vm.swappiness"), ContainSubstring("zone: b")))
		Expect(w.ichor(ctx, 4, "config", "diff", "worker-1", "--cluster", "one").Out).NotTo(ContainSubstring("zone"))
		Expect(w.ichor(ctx, 0, "operation", "plan", "config", "--cluster", "one").Out).To(And(
			ContainSubstring("roll the machine config out; components restart"), ContainSubstring("Canary"), ContainSubstring("one-worker-2 (Worker) changes without a reboot")))
		w.ichor(ctx, 0, "config", "rollout", "--cluster", "one", "--follow", "--yes")
		w.inForce(ctx, "one")
		Expect(invariant.ReadRolling(w.Fleet.Journal(), "one").Order).To(BeEmpty(), "nothing reboots")
		for _, node := range w.Fleet.Cluster("one").Nodes() {
			active, persistent := node.Config()
			Expect(active).To(BeIdenticalTo(persistent))
			text, err := active.Bytes()
			Expect(err).NotTo(HaveOccurred())
			Expect(string(text)).To(ContainSubstring("vm.swappiness"))
		}
		Expect(w.ichor(ctx, 0, "config", "rollout", "--cluster", "one", "--yes").Err).To(ContainSubstring("nothing to do"))
	}, SpecTimeout(3*time.Minute))

	It("that need a reboot are rolled out one machine at a time, and no secret is told (B11)", func(ctx SpecContext) {
		w := install(ctx, three)
		w.settled(ctx, "three")
		leader := w.leaders()["three"]
		w.asksFor(ctx, "three", v1alpha1.MachineConfigPatch{Name: "proxy", Patch: needReboot})
		var told []string
		told = append(told, w.ichor(ctx, 4, "config", "diff", "--cluster", "three", "-o", "json").String(), w.ichor(ctx, 0, "operation", "plan", "config", "--cluster", "three", "-o", "json").String())
		Expect(told[0]).To(ContainSubstring("HTTP_PROXY: (secret)"))
		result := w.ichor(ctx, 0, "config", "rollout", "--cluster", "three", "--follow", "--yes")
		rolling := invariant.ReadRolling(w.Fleet.Journal(), "three")
		Expect(rolling.Order).To(HaveLen(5))
		Expect(rolling.Order[0]).To(Equal("worker-1"), "the canary")
		Expect(rolling.Order[3]).To(Equal(leader), "the leader of etcd is the last control plane")
		Expect(rolling.Order[4]).To(Equal("worker-2"))
		w.inForce(ctx, "three")
		told = append(told, result.String(), w.ichor(ctx, 0, "audit", "-o", "json").String(), w.everything(ctx))
		for _, text := range told {
			Expect(text).NotTo(ContainSubstring(secret))
		}
	}, SpecTimeout(4*time.Minute))

	It("that a machine does not come back from stop there", func(ctx SpecContext) {
		w := install(ctx, one)
		w.settled(ctx, "one")
		w.asksFor(ctx, "one", v1alpha1.MachineConfigPatch{Name: "proxy", Role: v1alpha1.WorkerRole, Patch: needReboot})
		id, err := w.Fleet.Inject(fault.Fault{Name: fault.ConfigBreaksBoot, Cluster: "one"})
		Expect(err).NotTo(HaveOccurred())
		w.ichor(ctx, 0, "config", "rollout", "--cluster", "one", "--yes", "--max-unavailable", "3")
		op, err := w.operation(ctx, "one")
		Expect(err).NotTo(HaveOccurred())
		Eventually(w.get(ctx, op)).WithContext(ctx).Should(WithTransform(func(o *v1alpha1.TalosOperation) string {
			if unit := o.Machine("one-worker-1"); unit != nil {
				return unit.Message
			}
			return ""
		}, ContainSubstring("its new config may be why: apply another one with talosctl apply-config -n")))
		Expect(downs(w, "one")).To(ConsistOf("worker-1"))
		Expect(w.Fleet.Clear(id)).To(BeTrue())
		w.ichor(ctx, 0, "operation", "watch", op.Name)
		Expect(invariant.ReadRolling(w.Fleet.Journal(), "one").Order).To(ConsistOf("worker-1", "worker-2", "worker-3"), "the control plane is none of the patch's business")
	}, SpecTimeout(4*time.Minute))

	It("that one machine refuses change none (C12)", func(ctx SpecContext) {
		w := install(ctx, one)
		w.settled(ctx, "one")
		w.asksFor(ctx, "one", v1alpha1.MachineConfigPatch{Name: "swap", Patch: live})
		_, err := w.Fleet.Inject(fault.Fault{Name: fault.TalosRefused, Cluster: "one", Node: "worker-3", Times: 1, Params: map[string]string{
			"method": "MachineService/ApplyConfiguration", "code": "InvalidArgument", "message": "no such thing",
		}})
		Expect(err).NotTo(HaveOccurred())
		result := w.ichor(ctx, 3, "config", "rollout", "--cluster", "one", "--follow", "--yes")
		Expect(result.Err).To(And(ContainSubstring("one-worker-3: Checking failed"), ContainSubstring("no such thing")))
		for _, node := range w.Fleet.Cluster("one").Nodes() {
			text, err := bytesOf(node)
			Expect(err).NotTo(HaveOccurred())
			Expect(text).NotTo(ContainSubstring("vm.swappiness"))
		}
	}, SpecTimeout(2*time.Minute))

	It("that somebody tries are left alone, and said to be tried", func(ctx SpecContext) {
		w := install(ctx, one)
		w.settled(ctx, "one")
		trial := w.try(ctx, "one", "worker-1", time.Hour)
		w.asksFor(ctx, "one", v1alpha1.MachineConfigPatch{Name: "swap", Patch: live})
		Eventually(func() string { return w.ichor(ctx, 4, "config", "diff", "worker-1", "--cluster", "one").Out }).WithContext(ctx).Should(ContainSubstring("Pending: the config on disk is neither"))
		Expect(w.ichor(ctx, 1, "config", "rollout", "--cluster", "one", "--yes").Err).To(And(ContainSubstring("MachineConfigPending"), ContainSubstring("one-worker-1")))
		Expect(applies(w, "one")).To(Equal(1), "the trial itself")
		Expect(w.Fleet.Journal().Reads()).NotTo(HaveKey("one/worker-1/"+applyMethod), "and no dry run after it")
		active, persistent := w.machineOf("one", "worker-1").Config()
		Expect(active).NotTo(BeIdenticalTo(persistent), "the trial goes on")
		trial()
	}, SpecTimeout(2*time.Minute))

	It("of both forms are rolled out in one cluster of two versions", func(ctx SpecContext) {
		w := install(ctx, sim.ClusterSpec{Name: "both", ControlPlanes: 1, Workers: 2, TalosVersion: "v1.13.6", Mixed: []string{"v1.13.6", "v1.13.6", "v1.14.1"}})
		w.settled(ctx, "both")
		document := "apiVersion: v1alpha1\nkind: SysctlConfig\nparams:\n  vm.swappiness: \"1\"\n"
		w.asksFor(ctx, "both", v1alpha1.MachineConfigPatch{Name: "document", Patch: document})
		Expect(w.ichor(ctx, 1, "config", "diff", "--cluster", "both").Out).To(And(
			ContainSubstring("both-worker-1 (Worker): not known: document SysctlConfig needs Talos v1.14, and the machine runs v1.13.6"),
			ContainSubstring("both-worker-2 (Worker): differs, and needs no reboot")))
		Expect(w.ichor(ctx, 1, "config", "rollout", "--cluster", "both", "--yes").Err).To(ContainSubstring("MachineConfigKnown"))

		w.asksFor(ctx, "both",
			v1alpha1.MachineConfigPatch{Name: "document", Machines: []string{"both-worker-2"}, Patch: document},
			v1alpha1.MachineConfigPatch{Name: "field", Machines: []string{"both-cp-1", "both-worker-1"}, Patch: live})
		w.ichor(ctx, 0, "config", "rollout", "--cluster", "both", "--follow", "--yes")
		w.inForce(ctx, "both")
		for _, node := range w.Fleet.Cluster("both").Nodes() {
			text, err := bytesOf(node)
			Expect(err).NotTo(HaveOccurred())
			Expect(text).To(ContainSubstring("vm.swappiness"))
			Expect(strings.Contains(text, "kind: SysctlConfig")).To(Equal(node.Name() == "worker-2"))
		}
	}, SpecTimeout(3*time.Minute))
})

// bytesOf is the config in force on a node.
func bytesOf(node *sim.Node) (string, error) {
	active, _ := node.Config()
	data, err := active.Bytes()
	return string(data), err
}

// asksFor makes a cluster ask for patches, and waits until the hub has compared its machines with them.
func (w *world) asksFor(ctx context.Context, cluster string, patches ...v1alpha1.MachineConfigPatch) {
	GinkgoHelper()
	object := &v1alpha1.TalosCluster{}
	Eventually(func() error {
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: cluster}, object); err != nil {
			return err
		}
		object.Spec.MachineConfig = &v1alpha1.MachineConfigSpec{Patches: patches}
		return w.client.Update(ctx, object)
	}).WithContext(ctx).Should(Succeed())
	w.settled(ctx, cluster)
}

// settled waits until the hub has compared every machine of a cluster with what is asked for now.
func (w *world) settled(ctx context.Context, cluster string) {
	GinkgoHelper()
	object := &v1alpha1.TalosCluster{}
	Expect(w.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: cluster}, object)).To(Succeed())
	Eventually(func() []v1alpha1.TalosMachine {
		list := &v1alpha1.TalosMachineList{}
		Expect(w.client.List(ctx, list, client.InNamespace("default"))).To(Succeed())
		var open []v1alpha1.TalosMachine
		for _, machine := range list.Items {
			if config := machine.Status.Config; machine.Spec.ClusterName == cluster && (config == nil || config.SpecHash != object.MachineConfigHash()) {
				open = append(open, machine)
			}
		}
		return open
	}).WithContext(ctx).Should(BeEmpty())
}

// inForce waits until the hub has found that every machine of a cluster has what is asked for.
func (w *world) inForce(ctx context.Context, cluster string) {
	GinkgoHelper()
	Eventually(func() (int, error) {
		result, err := w.CLI(ctx, "config", "diff", "--cluster", cluster)
		return result.Code, err
	}).WithContext(ctx).Should(BeZero())
	Eventually(func() (*v1alpha1.TalosCluster, error) {
		object := &v1alpha1.TalosCluster{}
		return object, w.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: cluster}, object)
	}).WithContext(ctx).Should(HaveField("Status.Conditions", ContainElement(And(HaveField("Type", "SpecInSync"), HaveField("Status", BeEquivalentTo("True")), HaveField("Reason", "InSync")))))
}

// everything that a reader of the management API finds, Secrets aside, and what the hub has written to its log.
func (w *world) everything(ctx context.Context) string {
	GinkgoHelper()
	var out strings.Builder
	for _, list := range []client.ObjectList{&v1alpha1.TalosMachineList{}, &v1alpha1.TalosOperationList{}, &eventsv1.EventList{}, &v1alpha1.AuditEntryList{}, &corev1.ConfigMapList{}} {
		Expect(w.client.List(ctx, list)).To(Succeed())
		text, err := yaml.Marshal(list)
		Expect(err).NotTo(HaveOccurred())
		out.Write(text)
	}
	log, err := os.ReadFile(w.HubLog())
	Expect(err).NotTo(HaveOccurred())
	return out.String() + string(log)
}

// downs are the nodes that went down, each once.
func downs(w *world, cluster string) []string {
	var nodes []string
	for _, entry := range w.Fleet.Journal().Entries(journal.Filter{Cluster: cluster, Method: invariant.DownEvent}) {
		nodes = append(nodes, entry.Node)
	}
	return nodes
}

// applies counts the calls that brought a machine a config, or tried one. The journal takes dry runs for reads.
func applies(w *world, cluster string) int {
	return len(w.Fleet.Journal().Entries(journal.Filter{Cluster: cluster, Method: applyMethod}))
}

func (w *world) machineOf(cluster, name string) *sim.Node { return w.Fleet.Cluster(cluster).Node(name) }

// try tries a config on a node, as talosctl apply-config --mode=try does.
func (w *world) try(ctx context.Context, cluster, name string, d time.Duration) (end func()) {
	GinkgoHelper()
	parsed, err := config.FromBytes(w.Fleet.Cluster(cluster).Talosconfig())
	Expect(err).NotTo(HaveOccurred())
	c, err := talosclient.New(ctx, talosclient.WithConfig(parsed))
	Expect(err).NotTo(HaveOccurred())
	node := w.machineOf(cluster, name)
	text, err := bytesOf(node)
	Expect(err).NotTo(HaveOccurred())
	_, err = c.ApplyConfiguration(talosclient.WithNode(ctx, node.Address()), &machineapi.ApplyConfigurationRequest{
		Data: []byte(strings.Replace(text, "debug: false", "debug: true", 1)), Mode: machineapi.ApplyConfigurationRequest_TRY, TryModeTimeout: durationpb.New(d),
	})
	Expect(err).NotTo(HaveOccurred())
	return func() { Expect(c.Close()).To(Succeed()) }
}
