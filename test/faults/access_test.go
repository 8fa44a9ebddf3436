// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/role"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
)

var admin = role.MakeSet(role.Admin)

func (w *world) importWith(talosconfig []byte) {
	w.t.Helper()
	w.Expect(hub.ImportAs(w.ctx, w.name, w.cluster.Kubeconfig(), talosconfig)).To(Succeed())
}

func (w *world) available() {
	w.t.Helper()
	_, err := hub.WaitForCluster(w.ctx, w.name, harness.Available())
	w.Expect(err).NotTo(HaveOccurred())
}

func (w *world) clusterIs(all ...harness.Condition[*v1alpha1.TalosCluster]) {
	w.t.Helper()
	_, err := hub.WaitForCluster(w.ctx, w.name, all...)
	w.Expect(err).NotTo(HaveOccurred())
}

// Both APIs are reached through a VIP alone, and the control plane that has it reboots.
func TestCaseA1A9ThroughTheVIP(t *testing.T) {
	t.Parallel()
	w := prepare(t, sim.ClusterSpec{Name: "a1", ControlPlanes: 3, Workers: 1})
	talosconfig, err := w.cluster.TalosconfigWith(admin, []string{w.cluster.EndpointHost()}, time.Hour)
	w.Expect(err).NotTo(HaveOccurred())
	config, err := clientconfig.FromBytes(talosconfig)
	w.Expect(err).NotTo(HaveOccurred())
	config.Contexts[config.Context].Nodes = []string{w.cluster.EndpointHost()} // A9: a VIP is no node, whatever the file says.
	talosconfig, err = config.Bytes()
	w.Expect(err).NotTo(HaveOccurred())
	w.importWith(talosconfig)
	w.available()
	w.completes(w.upgrade())
	w.Expect(w.rolling().Reboots).To(HaveLen(4))
}

// The client certificate is exchanged in the middle of an operation, and the old one is not accepted any more, to the end.
func TestCaseA11CertificateExchanged(t *testing.T) {
	t.Parallel()
	w := begin(t, "a11", 1, 2)
	stuck := w.order(fault.BootStuck, "worker-1")
	op := w.upgrade()
	w.event(invariant.DownEvent, "worker-1")
	revoked, err := hub.Revoke(w.name, w.cluster.Talosconfig())
	w.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { hub.Clear(revoked) })
	hub.Clear(stuck)
	w.clusterIs(harness.ClusterCondition(v1alpha1.CredentialsValidCondition, metav1.ConditionFalse, "", "client certificate"))
	w.onlyTouched("cp-1", "worker-1")
	fresh, err := w.cluster.TalosconfigWith(admin, w.endpoints(), time.Hour)
	w.Expect(err).NotTo(HaveOccurred())
	w.importWith(fresh)
	w.goesOn(op)
	w.Expect(w.rolling().Problems("", 1)).To(BeEmpty())
}

// goesOn waits until an operation is over, and resumes it if a deadline passed meanwhile.
func (w *world) goesOn(op *v1alpha1.TalosOperation) {
	w.t.Helper()
	seen := w.until(op, harness.Either(harness.Completed(), harness.Paused(v1alpha1.StepFailedReason)))
	if !seen.Completed() {
		w.resumes(op)
		return
	}
	w.completes(op)
}

// resumedUntilOver resumes an operation as often as a deadline passes.
func (w *world) resumedUntilOver(op *v1alpha1.TalosOperation) {
	w.t.Helper()
	goingOn := harness.Condition[*v1alpha1.TalosOperation]{Says: "not paused", Holds: func(op *v1alpha1.TalosOperation) bool {
		return op.Status.Phase != v1alpha1.OperationPaused
	}}
	for !w.until(op, harness.Either(harness.Completed(), harness.Paused(v1alpha1.StepFailedReason))).Completed() {
		w.Expect(hub.Resume(w.ctx, op)).To(Succeed())
		w.until(op, goingOn)
	}
	w.completes(op)
}

func (w *world) endpoints() (list []string) {
	for _, node := range w.cluster.Nodes() {
		if node.ControlPlane() {
			list = append(list, node.Address())
		}
	}
	return list
}

// After its upgrade a control plane shows a certificate that nobody can accept. That is a problem of certificates, and it stays the only
// one that is touched.
func TestCaseA12BadCertificateAfterTheUpgrade(t *testing.T) {
	for name, problem := range map[string]string{"a12-ca": "other-authority", "a12-old": "expired", "a12-skew": "not-yet-valid"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, name, 3, 0)
			stuck := w.order(fault.BootStuck, "")
			op := w.upgrade()
			first := w.event(invariant.DownEvent, "").Node
			id := w.order(fault.ServerCertificate, first, fault.ParamAPI, "talos", fault.ParamProblem, problem)
			hub.Clear(stuck)
			w.event(invariant.ReadyEvent, first)
			w.fails(op, "machine "+w.machine(first), "certificate")
			w.onlyTouched(first)
			hub.Clear(id)
			w.resumes(op)
		})
	}
}

// The certificate of the Kubernetes API is of another CA, or the clock is wrong: nothing is touched, and the message says certificate.
func TestKubernetesCertificate(t *testing.T) {
	for name, problem := range map[string]string{"kube-ca": "other-authority", "kube-old": "expired", "kube-skew": "not-yet-valid"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, name, 1, 1)
			id := w.order(fault.ServerCertificate, "", fault.ParamAPI, "kube", fault.ParamProblem, problem)
			op := w.reboot("worker-1")
			w.until(op, harness.Stopped("certificate"))
			w.onlyTouched()
			hub.Clear(id)
			w.completes(op)
		})
	}
}

// The Kubernetes API does not know the hub any more.
func TestKubernetesUnauthorized(t *testing.T) {
	t.Parallel()
	w := begin(t, "kube-401", 1, 1)
	id := w.order(fault.ClientCertificate, "", fault.ParamAPI, "kube")
	op := w.reboot("worker-1")
	w.until(op, harness.Stopped("Unauthorized"))
	w.onlyTouched()
	hub.Clear(id)
	w.completes(op)
}

// The name in the kubeconfig does not resolve any more, as when CoreDNS is drained with it: the known control planes answer.
func TestCaseA15EndpointThatDoesNotResolve(t *testing.T) {
	t.Parallel()
	w := begin(t, "a15", 1, 1)
	host := strings.TrimPrefix(w.cluster.Endpoint(), "https://")
	named := strings.ReplaceAll(string(w.cluster.Kubeconfig()), host, "kubernetes:6443") // A name in the certificate, and in no zone.
	w.Expect(hub.ImportAs(w.ctx, w.name, []byte(named), w.cluster.Talosconfig())).To(Succeed())
	w.completes(w.upgrade())
}

// Discovery tells of nobody: that is no reason to find that all is done.
func TestCaseA17NobodyIsFound(t *testing.T) {
	t.Parallel()
	w := prepare(t, sim.ClusterSpec{Name: "a17", ControlPlanes: 1, Workers: 1})
	members := w.order(fault.TalosRefused, "", fault.ParamMethod, "State/List", fault.ParamResource, "Members.cluster.talos.dev", fault.ParamMessage, "no discovery")
	nodes := w.order(fault.KubernetesRefused, "", fault.ParamMethod, "GET", fault.ParamResource, "nodes")
	w.importWith(w.cluster.Talosconfig())
	op := &v1alpha1.TalosOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: "a17", Labels: map[string]string{clusterv1.ClusterNameLabel: w.name}},
		Spec:       v1alpha1.TalosOperationSpec{ClusterName: w.name, Kind: v1alpha1.TalosKind},
	}
	cluster, err := hub.Cluster(w.ctx, w.name)
	w.Expect(err).NotTo(HaveOccurred())
	declared := cluster.DeepCopy()
	declared.Spec.TalosVersion = to
	w.Expect(hub.Client.Patch(w.ctx, declared, client.MergeFrom(cluster))).To(Succeed())
	w.Expect(hub.Client.Create(w.ctx, op)).To(Succeed())
	w.until(op, harness.WaitingAt(v1alpha1.MachinesDiscoveredGate))
	w.onlyTouched()
	hub.Clear(members)
	hub.Clear(nodes)
	w.completes(op)
}

// The schematic of a machine from 1.14 on is the one read that the hub can do without: a Talos that does not know the resource refuses it.
// All other reads tell what operations decide by. An older Talos tells its schematic among the extensions, and is not asked for more.
func TestOptionalReadsRefused(t *testing.T) {
	for name, row := range map[string]struct {
		version string
		refused types.GomegaMatcher
	}{
		"opt-113": {from, BeZero()},
		"opt-114": {to, BeNumerically(">", 0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := prepare(t, sim.ClusterSpec{Name: name, ControlPlanes: 1, Workers: 1, TalosVersion: row.version})
			id := w.order(fault.TalosRefused, "", fault.ParamMethod, "State/*", fault.ParamResource, "ImageFactorySchematics.runtime.talos.dev")
			w.importWith(w.cluster.Talosconfig())
			w.available()
			w.completes(w.reboot("worker-1"))
			w.Expect(hub.Fired(id)).To(row.refused, "refused reads")
		})
	}
}

// A role that may not do what the hub does is refused at import. One that gets into the Secret by another way is said to be too low, and
// nothing is touched with it.
func TestRoleTooLow(t *testing.T) {
	for name, low := range map[string]role.Role{"role-reader": role.Reader, "role-operator": role.Operator} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, name, 1, 1)
			talosconfig, err := w.cluster.TalosconfigFor(string(low))
			w.Expect(err).NotTo(HaveOccurred())
			says := And(ContainSubstring(string(low)), ContainSubstring("os:admin"))
			w.Expect(hub.ImportAs(w.ctx, w.name, w.cluster.Kubeconfig(), talosconfig)).To(MatchError(says))

			w.setTalosconfig(talosconfig)
			w.clusterIs(harness.ClusterCondition(v1alpha1.CredentialsValidCondition, metav1.ConditionFalse, "", string(low)))
			op := w.createReboot(name, "worker-1")
			w.until(op, harness.Stopped("not authorized"))
			w.onlyTouched()
			w.importWith(w.cluster.Talosconfig())
			w.completes(op)
		})
	}
}

// setTalosconfig writes the Secret as whatever keeps Secrets in step would.
func (w *world) setTalosconfig(talosconfig []byte) {
	w.t.Helper()
	cluster, err := hub.Cluster(w.ctx, w.name)
	w.Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{}
	w.Expect(hub.Client.Get(w.ctx, client.ObjectKey{Namespace: harness.Namespace, Name: cluster.TalosconfigSecretName()}, secret)).To(Succeed())
	patched := secret.DeepCopy()
	patched.Data[credentials.TalosconfigKey] = talosconfig
	w.Expect(hub.Client.Patch(w.ctx, patched, client.MergeFrom(secret))).To(Succeed())
}

// A Node that is no Talos machine is there from the beginning.
func TestForeignNodeFromTheBeginning(t *testing.T) {
	t.Parallel()
	w := prepare(t, sim.ClusterSpec{Name: "foreign-first", ControlPlanes: 1, Workers: 1})
	w.order(fault.ForeignNode, "")
	w.importWith(w.cluster.Talosconfig())
	w.available()
}

// A Node that is no Talos machine turns up, and is never touched.
func TestForeignNode(t *testing.T) {
	t.Parallel()
	w := begin(t, "foreign", 1, 1)
	w.order(fault.ForeignNode, "")
	w.completes(w.upgrade())
	w.Expect(w.count("kube PATCH nodes/foreign-1", "")).To(BeZero())
}

// The way to the machine in hand, to the whole cluster or to its endpoint is disturbed, in every way and for every API. What users see
// names the machine and the trouble; where only the endpoint is disturbed the known control planes answer, and who is slow answers too.
// Nothing is done twice.
func TestNetworkInTheMiddle(t *testing.T) {
	const talosPort, kubePort = "50000", "6443"
	for name, row := range map[string]struct {
		mode, node, api string
		stops           bool
		slow            time.Duration
		port            string // The slow one.
	}{
		"net-refuse-talos":     {mode: "refuse", node: "worker-1", api: "talos", stops: true},
		"net-blackhole-talos":  {mode: "blackhole", node: "worker-1", api: "talos", stops: true},
		"net-reset-talos":      {mode: "reset", node: "worker-1", api: "talos", stops: true},
		"net-slow-talos":       {mode: "slow", node: "worker-1", api: "talos", slow: 100 * time.Millisecond, port: talosPort}, // Each look takes a dozen answers.
		"net-refuse-kube":      {mode: "refuse", api: "kube", stops: true},
		"net-blackhole-kube":   {mode: "blackhole", api: "kube", stops: true},
		"net-reset-kube":       {mode: "reset", api: "kube", stops: true},
		"net-slow-kube":        {mode: "slow", api: "kube", slow: time.Second, port: kubePort},
		"net-refuse-all":       {mode: "refuse", api: "both", stops: true},
		"net-refuse-endpoint":  {mode: "refuse", node: fault.Endpoint, api: "both"},
		"net-silent-endpoint":  {mode: "blackhole", node: fault.Endpoint, api: "both"},
		"net-cutting-endpoint": {mode: "reset", node: fault.Endpoint, api: "both"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, name, 1, 1)
			stuck := w.order(fault.BootStuck, "worker-1")
			op := w.upgrade()
			w.event(invariant.DownEvent, "worker-1")
			id := w.order(fault.Unreachable, row.node, fault.ParamMode, row.mode, fault.ParamAPI, row.api, fault.ParamDelay, row.slow.String())
			hub.Clear(stuck)
			w.event(invariant.ReadyEvent, "worker-1")
			switch {
			case row.stops:
				w.until(op, harness.Stopped("no answer"), harness.Stopped(w.machine("worker-1")))
				w.Expect(w.rolling().Reboots).To(Equal(map[string]int{"cp-1": 1, "worker-1": 1}))
				hub.Clear(id)
				w.goesOn(op)
			case row.mode == "blackhole": // That a connection of HTTP/2 is dead is known after 45 seconds, and these deadlines are shorter.
				w.resumedUntilOver(op)
			default:
				w.completes(op)
			}
			if row.slow > 0 {
				node := map[string]string{talosPort: "worker-1", kubePort: "cp-1"}[row.port]
				w.Expect(handshake(w.ctx, net.JoinHostPort(w.cluster.Node(node).Address(), row.port))).To(BeNumerically(">=", row.slow))
			}
			w.Expect(w.rolling().Problems("", 1)).To(BeEmpty())
		})
	}
}

// handshake is how long a server takes to greet.
func handshake(ctx context.Context, address string) (time.Duration, error) {
	begun := time.Now()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // Whoever answers, how fast is the question.
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return 0, err
	}
	return time.Since(begun), conn.Close()
}
