// SPDX-License-Identifier: Apache-2.0

// Package faults_test orders what has gone wrong for others, and looks at what users see, at what the machines were asked to do, and at
// whether the work goes on once the cause is gone. Names of tests carry the cases that they prove.
//
// One hub serves all tests, and each has a cluster of its own, so most of them run at the same time.
package faults_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/observe"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
)

const (
	// atOnce is how many tests run together. They mostly wait.
	atOnce = 10

	// patience is the time that a test has; nearly all need a few seconds.
	patience = 90 * time.Second

	// deadline is that of every step: enough for a busy machine, and short enough to wait for.
	deadline = 12 * time.Second

	// rebootDeadline leaves time for a look that began before the machine went down and lasts as long as a look may, and for another one after it.
	rebootDeadline = 20 * time.Second

	// drainDeadline leaves time to say what a drain waits for.
	drainDeadline = 16 * time.Second

	from, to = "v1.13.6", "v1.14.1"
)

// probes are fewer than those of other tests: more clusters are there at once.
var probes = observe.Options{Interval: 2 * time.Second, Timeout: 3 * time.Second, AtOnce: 32}

// hub is shared by all tests.
var hub *harness.Harness

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", fmt.Sprint(atOnce)); err != nil {
		panic(err)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	hub, err = harness.Start(ctx, harness.Options{Probes: probes, Deadlines: map[v1alpha1.OperationStep]time.Duration{
		v1alpha1.PullingStep: deadline, v1alpha1.InstallingStep: deadline, v1alpha1.ForfeitingStep: deadline, v1alpha1.DrainingStep: drainDeadline,
		v1alpha1.RebootingStep: rebootDeadline, v1alpha1.VerifyingStep: deadline, v1alpha1.UncordoningStep: deadline,
	}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := hub.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// world is a cluster that a test has for itself.
type world struct {
	*WithT

	t       *testing.T
	ctx     context.Context
	name    string
	cluster *sim.Cluster
}

// begin makes a cluster and brings it to the hub. The rules must hold when the test ends, whatever it did.
func begin(t *testing.T, name string, controlPlanes, workers int) *world {
	t.Helper()
	return beginWith(t, sim.ClusterSpec{Name: name, ControlPlanes: controlPlanes, Workers: workers})
}

func beginWith(t *testing.T, spec sim.ClusterSpec) *world {
	t.Helper()
	w := prepare(t, spec)
	w.Expect(hub.Import(w.ctx, spec.Name)).To(Succeed())
	return w
}

// prepare makes a cluster of which the hub does not know.
func prepare(t *testing.T, spec sim.ClusterSpec) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	w := &world{WithT: NewWithT(t), t: t, ctx: ctx, name: spec.Name}
	var err error
	w.cluster, err = hub.Fleet.Add(spec)
	w.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(w.end)
	return w
}

func (w *world) end() {
	violations := hub.Rules(w.name).Violations(hub.Journal())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	w.Expect(hub.Remove(ctx, w.name)).To(Succeed())
	w.Expect(violations).To(BeEmpty())
}

// order puts a fault in force on a node, or on the whole cluster without one, until the test clears it or ends.
func (w *world) order(name, node string, params ...string) (id string) {
	w.t.Helper()
	return w.orderTimes(0, name, node, params...)
}

func (w *world) orderTimes(times int, name, node string, params ...string) (id string) {
	w.t.Helper()
	f := fault.Fault{Name: name, Cluster: w.name, Node: node, Times: times, Params: map[string]string{}}
	for i := 0; i+1 < len(params); i += 2 {
		f.Params[params[i]] = params[i+1]
	}
	id, err := hub.Fault(f)
	w.Expect(err).NotTo(HaveOccurred())
	w.t.Cleanup(func() { hub.Clear(id) })
	return id
}

func (w *world) upgrade() *v1alpha1.TalosOperation {
	w.t.Helper()
	op, err := hub.Upgrade(w.ctx, w.name, to, 0)
	w.Expect(err).NotTo(HaveOccurred())
	return op
}

func (w *world) reboot(node string) *v1alpha1.TalosOperation {
	w.t.Helper()
	op, err := hub.Reboot(w.ctx, w.name, node)
	w.Expect(err).NotTo(HaveOccurred())
	return op
}

// until waits for an operation to be as described.
func (w *world) until(op *v1alpha1.TalosOperation, all ...harness.Condition[*v1alpha1.TalosOperation]) *v1alpha1.TalosOperation {
	w.t.Helper()
	seen, err := hub.WaitFor(w.ctx, op, all...)
	w.Expect(err).NotTo(HaveOccurred())
	return seen
}

// fails waits until a step has failed with those words, for which --follow ends with exit code 3.
func (w *world) fails(op *v1alpha1.TalosOperation, texts ...string) *v1alpha1.TalosOperation {
	w.t.Helper()
	failed := w.until(op, harness.Paused(v1alpha1.StepFailedReason, "ichor operation resume "+op.Name))
	for _, text := range texts { // What the condition says is cut to leave room for the command.
		w.Expect(failed.Status.FailureReason).To(ContainSubstring(text))
	}
	w.Expect(failed.Status.Phase).To(Equal(v1alpha1.OperationPaused))
	return failed
}

// resumes resumes an operation and expects it to end well.
func (w *world) resumes(op *v1alpha1.TalosOperation) {
	w.t.Helper()
	w.Expect(hub.Resume(w.ctx, op)).To(Succeed())
	w.completes(op)
}

func (w *world) completes(op *v1alpha1.TalosOperation) {
	w.t.Helper()
	w.until(op, harness.Completed())
	w.Expect(w.cordoned()).To(BeEmpty(), "the hub left a cordon")
	if op.Spec.Kind == v1alpha1.TalosKind {
		w.expectVersion(to)
	}
}

func (w *world) expectVersion(version string) {
	w.t.Helper()
	for _, node := range w.cluster.Nodes() {
		w.Expect(node.State().Running.Version).To(Equal(version), node.Name())
	}
}

// event waits for an event of a node.
func (w *world) event(method, node string) journal.Entry {
	w.t.Helper()
	entry, err := hub.Journal().Wait(w.ctx, journal.Filter{Cluster: w.name, Node: node, Method: method})
	w.Expect(err).NotTo(HaveOccurred())
	return entry
}

// count is how often a method was called, on a node or all of them.
func (w *world) count(method, node string) int {
	return len(hub.Journal().Entries(journal.Filter{Cluster: w.name, Node: node, Method: method}))
}

func (w *world) rolling() invariant.Rolling { return invariant.ReadRolling(hub.Journal(), w.name) }

// onlyTouched expects that no other nodes were installed, rebooted or cordoned.
func (w *world) onlyTouched(nodes ...string) {
	w.t.Helper()
	rolling := w.rolling()
	for _, node := range w.cluster.Nodes() {
		name := node.Name()
		touched := rolling.Installs[name]+rolling.Reboots[name]+w.count("kube PATCH nodes/"+name, "") > 0
		w.Expect(touched && !contains(nodes, name)).To(BeFalse(), "%s was touched", name)
	}
}

// evictionRefused waits until a budget has refused an eviction.
func (w *world) evictionRefused() {
	w.t.Helper()
	w.Eventually(func() []string {
		var codes []string
		for _, entry := range hub.Journal().Entries(journal.Filter{Cluster: w.name, Method: "kube POST pods/*", Done: true}) {
			codes = append(codes, entry.Code)
		}
		return codes
	}).WithContext(w.ctx).WithTimeout(patience).Should(ContainElement("429"))
}

func contains(list []string, one string) bool {
	for _, other := range list {
		if other == one {
			return true
		}
	}
	return false
}

// cordoned are the nodes that the hub has cordoned.
func (w *world) cordoned() (names []string) {
	w.t.Helper()
	for name, node := range w.nodes() {
		if node.cordonedBy != "" {
			names = append(names, name)
		}
	}
	return names
}

// nodeView is what the cluster tells of a Node.
type nodeView struct {
	unschedulable bool
	cordonedBy    string
	annotations   map[string]string
}

func (w *world) nodes() map[string]nodeView {
	w.t.Helper()
	views := map[string]nodeView{}
	for _, node := range w.cluster.KubernetesNodes() {
		views[node.Name] = nodeView{node.Spec.Unschedulable, node.Annotations[v1alpha1.CordonedByAnnotation], node.Annotations}
	}
	return views
}

// kube is an administrator's access to the cluster.
func (w *world) kube() kubernetes.Interface {
	w.t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(w.cluster.Kubeconfig())
	w.Expect(err).NotTo(HaveOccurred())
	clients, err := kubernetes.NewForConfig(config)
	w.Expect(err).NotTo(HaveOccurred())
	return clients
}

// machine is the name of a node's TalosMachine.
func (w *world) machine(node string) string { return w.name + "-" + node }
