// SPDX-License-Identifier: Apache-2.0

package deep_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/framework"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/sim"
)

// secretOf reads a key of a Secret of the hub as it is now.
func (m *managed) secretOf(name, key string) credentials {
	return func(ctx context.Context) ([]byte, error) {
		secret := &corev1.Secret{}
		err := m.Client.Get(ctx, object(name), secret)
		return secret.Data[key], err
	}
}

// authority is one that is rotated, with those who use it.
type authority struct {
	name v1alpha1.CAAuthority

	// current are the credentials that the hub hands over, and before what there was before the rotation.
	current credentials
	before  []byte

	// reads asks by a new connection, and follower has asked all the time by the current credentials.
	reads    dial
	follower *user
}

func (a authority) stage(pass string) string { return string(a.name) + pass }

// Both authorities of a cluster are rotated while people use it, by a hub that is killed at each step, with a machine down in each pass.
func TestDeepHubRotatesAuthorities(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
	defer cancel()
	m := manage(ctx, t, sim.ClusterSpec{Name: "c", ControlPlanes: 3, Workers: 2})
	machines := []*sim.Node{m.cluster.Node("cp-1"), m.cluster.Node("cp-3"), m.cluster.Node("worker-1")} // None of those that go down.
	talos := authority{
		name: v1alpha1.TalosCA, current: m.secretOf("c-talosconfig", "talosconfig"), before: m.cluster.Talosconfig(), reads: dialTalos(machines...),
	}
	kube := authority{
		name: v1alpha1.KubernetesCA, current: m.secretOf("c-kubeconfig", "value"), before: m.cluster.Kubeconfig(), reads: dialKube(reads),
	}
	talos.follower, _ = use(ctx, t, talos.current, talos.reads)
	writer, halt := use(ctx, t, kube.current, dialKube(writes))
	kube.follower = writer

	op, err := m.Begin(ctx, v1alpha1.TalosOperationSpec{ClusterName: m.name, Kind: v1alpha1.CARotationKind, CARotation: &v1alpha1.CARotationParameters{
		Authorities: []v1alpha1.CAAuthority{v1alpha1.TalosCA, v1alpha1.KubernetesCA},
	}})
	g.Expect(err).NotTo(HaveOccurred())
	s := m.storm(ctx, t, op)

	copied := m.rotate(ctx, t, op, talos, "worker-2")
	_, err = m.WaitFor(ctx, op, harness.Past(talos.stage("Drop")))
	g.Expect(err).NotTo(HaveOccurred())
	m.expectDropped(ctx, t, talos, copied)
	g.Expect(m.talosctl(ctx, t, copied)).NotTo(Succeed(), "the real client is refused with what it had")

	copied = m.rotate(ctx, t, op, kube, "cp-2")
	_, kills := m.over(ctx, t, op, s)
	m.expectDropped(ctx, t, kube, copied)
	for _, at := range []string{
		"Prepare/Generating", "TalosAccept/Applying", "TalosAccept/Verifying", "TalosTrust/Trusting", "TalosSwap/Applying", "TalosSwap/Verifying",
		"TalosAwaitingCredentials/HandingOver", "TalosAwaitingCredentials/AwaitingCredentials", "TalosDrop/Applying", "TalosDrop/Verifying",
		"KubernetesAccept/Applying", "KubernetesAccept/Verifying", "KubernetesTrust/Trusting", "KubernetesSwap/Applying", "KubernetesSwap/Verifying",
		"KubernetesAwaitingCredentials/HandingOver", "KubernetesAwaitingCredentials/AwaitingCredentials", "KubernetesDropWorkers/Applying",
		"KubernetesDropWorkers/Verifying", "KubernetesDrop/Applying", "KubernetesDrop/Verifying", "Finish/Finishing",
	} {
		g.Expect(kills).To(ContainElement(at))
	}

	// Whoever has followed has noticed nothing but that connections broke.
	halt()
	g.Expect(talos.follower.Failures()).To(BeEmpty())
	g.Expect(writer.Failures()).To(BeEmpty())
	t.Logf("followers got %d and %d answers, and connected anew %d and %d times since a connection broke",
		talos.follower.Asked(), writer.Asked(), talos.follower.Reconnects(), writer.Reconnects())
	now, err := kube.current(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	client := kubeClientAt(t, now, "")
	expectWritten(ctx, t, client, writer)
	g.Eventually(ctx, readyNodes).WithArguments(ctx, client).WithPolling(poll).Should(HaveLen(len(m.cluster.Nodes())), "no kubelet was locked out")
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(nodes.Items).To(HaveEach(HaveField("Spec.Unschedulable", false)))
	g.Expect(m.asked(rebootMethod)).To(BeEmpty())
}

// rotate takes an authority to its drop, and returns the credentials that somebody has copied before the swap. A machine is down for a while
// in each pass.
func (m *managed) rotate(ctx context.Context, t *testing.T, op *v1alpha1.TalosOperation, a authority, down string) []byte {
	t.Helper()
	g := NewWithT(t)
	m.outage(ctx, t, op, a.stage("Accept"), "worker-2")
	_, err := m.WaitFor(ctx, op, harness.Past(a.stage("Trust")))
	g.Expect(err).NotTo(HaveOccurred())
	copied, err := a.current(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	keeper, halt := use(ctx, t, kept(copied), a.reads)

	m.outage(ctx, t, op, a.stage("Swap"), down)
	_, err = m.WaitFor(ctx, op, harness.InStage(a.stage("AwaitingCredentials")),
		harness.WaitingAt(v1alpha1.CredentialsConfirmedGate, "ichor operation confirm "+op.Name))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(asks(ctx, a.reads, a.before)).To(MatchError(ContainSubstring("certificate signed by unknown authority")))
	a.works(ctx, t, copied)
	if a.name == v1alpha1.TalosCA {
		g.Expect(m.talosctl(ctx, t, copied)).To(Succeed())
	}
	g.Expect(keeper.Failures()).To(BeEmpty(), "who has what was handed over first goes on until the drop")
	g.Expect(keeper.Asked()).To(BeNumerically(">", 3))
	halt()

	m.cluster.Node("worker-2").PowerOff()
	current, err := m.Operation(ctx, op)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = m.Service.Confirm(ctx, current, a.stage("AwaitingCredentials"))
	g.Expect(err).NotTo(HaveOccurred())
	m.awaited(ctx, t, op, "worker-2")
	a.works(ctx, t, copied) // Nothing is dropped while a machine is down.
	m.comesBack(ctx, t, "worker-2")
	return copied
}

// expectDropped expects the old authority to be of no use any more, and the new one to be.
func (m *managed) expectDropped(ctx context.Context, t *testing.T, a authority, copied []byte) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(asks(ctx, a.reads, copied)).NotTo(Succeed())
	g.Expect(asks(ctx, a.reads, a.before)).NotTo(Succeed())
	now, err := a.current(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	a.works(ctx, t, now)
	if a.name == v1alpha1.TalosCA {
		g.Expect(m.talosctl(ctx, t, now)).To(Succeed())
	}
	g.Expect(a.follower.Failures()).To(BeEmpty())
}

// works expects credentials to do, unless what they lead to is just starting.
func (a authority) works(ctx context.Context, t *testing.T, with []byte) {
	t.Helper()
	NewWithT(t).Eventually(ctx, asks).WithArguments(ctx, a.reads, with).WithTimeout(patience).WithPolling(poll).Should(Succeed())
}

// outage takes a machine down in a stage, until the operation says that it waits for it.
func (m *managed) outage(ctx context.Context, t *testing.T, op *v1alpha1.TalosOperation, stage, node string) {
	t.Helper()
	_, err := m.WaitFor(ctx, op, harness.InStage(stage))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	m.cluster.Node(node).PowerOff()
	m.awaited(ctx, t, op, node)
	m.comesBack(ctx, t, node)
}

// awaited waits until an operation says that it waits for a machine.
func (m *managed) awaited(ctx context.Context, t *testing.T, op *v1alpha1.TalosOperation, node string) {
	t.Helper()
	waiting, err := m.WaitFor(ctx, op, harness.OperationCondition(v1alpha1.ProgressingCondition, metav1.ConditionFalse, "", node))
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	for _, c := range waiting.Status.Conditions {
		if c.Type == v1alpha1.ProgressingCondition {
			t.Logf("stage %s waits: %s: %s", waiting.Status.Stage, c.Reason, c.Message)
		}
	}
}

func (m *managed) comesBack(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	n := m.cluster.Node(node)
	n.PowerOn()
	NewWithT(t).Eventually(ctx, n.State).WithPolling(poll).Should(HaveField("Ready", true))
}

// talosctl has the real client ask machines for their version.
func (m *managed) talosctl(ctx context.Context, t *testing.T, talosconfig []byte) error {
	t.Helper()
	g := NewWithT(t)
	path, err := framework.Binary("talosctl")
	g.Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(t.TempDir(), "talosconfig")
	g.Expect(os.WriteFile(file, talosconfig, 0o600)).To(Succeed())
	nodes := m.cluster.Node("cp-1").Address() + "," + m.cluster.Node("worker-1").Address()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--talosconfig", file, "-n", nodes, "version", "--short").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	g.Expect(string(out)).To(ContainSubstring(m.cluster.Spec().TalosVersion))
	return nil
}
