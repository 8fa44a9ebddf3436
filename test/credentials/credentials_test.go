// SPDX-License-Identifier: Apache-2.0

// Package credentials proves on a whole hub and a simulated fleet what happens to targets when their credentials or records change.
package credentials_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/observe"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/journal"
)

// seldom makes a probe a rare thing: what happens within the test was caused by a watch.
var seldom = observe.Options{Interval: 10 * time.Minute, Timeout: 3 * time.Second, AtOnce: 8}

// On one hub, each case has a cluster of its own.
func TestCredentialsAndDiscovery(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	cases := []struct {
		name    string
		cluster sim.ClusterSpec
		run     func(context.Context, *testing.T, *harness.Harness)
	}{
		{"A10 A11 A12 replaced Secrets", sim.ClusterSpec{Name: "a", ControlPlanes: 1, Workers: 1}, replacedSecrets},
		{"A11 replaced Secrets during an upgrade", sim.ClusterSpec{Name: "b", ControlPlanes: 3, Workers: 1}, replacedSecretsDuringAnUpgrade},
		{"B8 duplicate record", sim.ClusterSpec{Name: "c", ControlPlanes: 1, Workers: 2}, duplicateRecord},
		{"approval", sim.ClusterSpec{Name: "d", ControlPlanes: 1, Workers: 2}, approval},
	}
	var clusters []sim.ClusterSpec
	for _, c := range cases {
		clusters = append(clusters, c.cluster)
	}
	h, err := harness.Start(ctx, harness.Options{Clusters: clusters, Probes: seldom})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(h.Stop()).To(Succeed()) })
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			NewWithT(t).Expect(h.Import(ctx, c.cluster.Name)).To(Succeed())
			c.run(ctx, t, h)
		})
	}
}

// replace puts a talosconfig into the Secret of a cluster, as whoever rotates credentials does.
func replace(ctx context.Context, h *harness.Harness, cluster string, talosconfig []byte) error {
	secret := &corev1.Secret{}
	if err := h.Client.Get(ctx, client.ObjectKey{Namespace: harness.Namespace, Name: cluster + "-talosconfig"}, secret); err != nil {
		return err
	}
	secret.Data["talosconfig"] = talosconfig
	return h.Client.Update(ctx, secret)
}

// expired is a talosconfig whose certificate ended long ago.
func expired(t *testing.T, cluster, endpoint string) []byte {
	t.Helper()
	g := NewWithT(t)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"os:admin"}}, NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter: time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	g.Expect(err).NotTo(HaveOccurred())
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	g.Expect(err).NotTo(HaveOccurred())
	encode := func(kind string, data []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
	}
	crt, key := encode("CERTIFICATE", der), encode("PRIVATE KEY", keyDER)
	return fmt.Appendf(nil, "contexts: {%[1]s: {endpoints: [%[2]s], ca: %[3]s, crt: %[3]s, key: %[4]s}}\n", cluster, endpoint, crt, key)
}

// Cases A10, A11 and A12: a Secret that changes is followed at once, to the bad and to the good, and trouble with a credential is not called
// trouble of the cluster.
func replacedSecrets(ctx context.Context, t *testing.T, h *harness.Harness) {
	t.Helper()
	g := NewWithT(t)
	a := h.Fleet.Cluster("a")
	reader, err := a.TalosconfigFor("os:reader")
	g.Expect(err).NotTo(HaveOccurred())
	admin, err := a.TalosconfigFor("os:admin")
	g.Expect(err).NotTo(HaveOccurred())
	theirs, err := clientconfig.FromBytes(h.Fleet.Cluster("b").Talosconfig())
	g.Expect(err).NotTo(HaveOccurred())
	theirs.Contexts["b"].Endpoints = []string{a.Node("cp-1").Address()}
	stranger, err := theirs.Bytes()
	g.Expect(err).NotTo(HaveOccurred())
	foreign := h.Fleet.Cluster("b").Talosconfig()
	for _, row := range []struct {
		name          string
		data          []byte
		reason, words string
	}{
		{"expired", expired(t, "a", a.Node("cp-1").Address()), "TalosconfigExpired", `talosconfig: the client certificate of context "a" ended on 2021-01-01`},
		{"a role too low", reader, "TalosconfigRoleTooLow", `has the role os:reader; the hub needs os:admin`},
		{"of another cluster", stranger, "TalosconfigRejected", "talosconfig: the certificate of the server is not signed by the CA of the file"},
		{"not one at all", []byte("kind: Pod"), "Invalid", `secret default/a-talosconfig, key "talosconfig": talosconfig is invalid: it is a document of kind "Pod"`},
	} {
		g.Expect(replace(ctx, h, "a", row.data)).To(Succeed())
		_, err := h.WaitForCluster(ctx, "a",
			harness.ClusterCondition(v1alpha1.CredentialsValidCondition, metav1.ConditionFalse, row.reason, row.words),
			harness.ClusterCondition(v1alpha1.TalosReachableCondition, metav1.ConditionUnknown, "CredentialsNotUsable"),
			harness.ClusterCondition(v1alpha1.EtcdHealthyCondition, metav1.ConditionUnknown, "CredentialsNotUsable"),
			harness.ClusterCondition(v1alpha1.KubernetesReachableCondition, metav1.ConditionTrue, ""),
			harness.ClusterCondition(v1alpha1.AvailableCondition, metav1.ConditionFalse, "", "CredentialsValid: "),
		)
		g.Expect(err).NotTo(HaveOccurred(), row.name)
		g.Expect(replace(ctx, h, "a", admin)).To(Succeed())
		_, err = h.WaitForCluster(ctx, "a", harness.Available(), harness.ClusterCondition(v1alpha1.CredentialsValidCondition, metav1.ConditionTrue, "Valid"))
		g.Expect(err).NotTo(HaveOccurred(), row.name)
	}

	g.Expect(replace(ctx, h, "a", foreign)).To(Succeed())
	_, err = h.WaitForCluster(ctx, "a", harness.ClusterCondition(
		v1alpha1.MachinesDiscoveredCondition, metav1.ConditionFalse, "Unmatched", "the kubeconfig and the talosconfig are of different clusters"))
	g.Expect(err).NotTo(HaveOccurred())
	machines := &v1alpha1.TalosMachineList{}
	g.Expect(h.Client.List(ctx, machines, client.MatchingLabels{clusterv1.ClusterNameLabel: "a"})).To(Succeed())
	g.Expect(machines.Items).To(HaveLen(2), "machines of another cluster are not taken for ours")
	g.Expect(replace(ctx, h, "a", admin)).To(Succeed())
	_, err = h.WaitForCluster(ctx, "a", harness.Available(), harness.ClusterCondition(v1alpha1.MachinesDiscoveredCondition, metav1.ConditionTrue, ""))
	g.Expect(err).NotTo(HaveOccurred())
}

// Case A11: an upgrade whose credentials are replaced on the way, and the old ones revoked, goes on with the new ones and pauses for nobody.
func replacedSecretsDuringAnUpgrade(ctx context.Context, t *testing.T, h *harness.Harness) {
	t.Helper()
	g := NewWithT(t)
	leader, old := h.Fleet.Cluster("b").Leader().Name(), h.Fleet.Cluster("b").Talosconfig()
	op, err := h.Upgrade(ctx, "b", "v1.14.1", 0)
	g.Expect(err).NotTo(HaveOccurred())
	for reboots := range 4 {
		_, err = h.Journal().WaitN(ctx, journal.Filter{Cluster: "b", Method: invariant.DownEvent}, reboots+1)
		g.Expect(err).NotTo(HaveOccurred())
		admin, err := h.Fleet.Cluster("b").TalosconfigFor("os:admin")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(replace(ctx, h, "b", admin)).To(Succeed())
		_, err = h.Revoke("b", old)
		g.Expect(err).NotTo(HaveOccurred())
		old = admin
	}
	_, err = h.WaitFor(ctx, op, harness.Completed())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(invariant.ReadRolling(h.Journal(), "b").Problems(leader, 1)).To(BeEmpty())
}

// Case B8: a second record of a machine keeps everything disruptive away, and says which two records it is about.
func duplicateRecord(ctx context.Context, t *testing.T, h *harness.Harness) {
	t.Helper()
	g := NewWithT(t)
	worker := &v1alpha1.TalosMachine{}
	g.Expect(h.Client.Get(ctx, client.ObjectKey{Namespace: harness.Namespace, Name: "c-worker-1"}, worker)).To(Succeed())
	twin := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: "c-zombie", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}},
		Spec:       *worker.Spec.DeepCopy(),
	}
	g.Expect(h.Client.Create(ctx, twin)).To(Succeed())
	const says = `c-worker-1 and c-zombie have the same UUID`
	_, err := h.WaitForCluster(ctx, "c", harness.ClusterCondition(v1alpha1.MachinesDiscoveredCondition, metav1.ConditionFalse, "Duplicate", says))
	g.Expect(err).NotTo(HaveOccurred())

	op, err := h.Reboot(ctx, "c", "worker-2")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = h.WaitFor(ctx, op, harness.WaitingAt(v1alpha1.MachinesDiscoveredGate, says))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(h.Journal().Entries(journal.Filter{Cluster: "c", Method: invariant.DownEvent})).To(BeEmpty())

	g.Expect(h.Client.Delete(ctx, twin)).To(Succeed())
	_, err = h.WaitFor(ctx, op, harness.Completed())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(h.Journal().Entries(journal.Filter{Cluster: "c", Method: invariant.DownEvent})).To(HaveLen(1))
}

// A machine that is found after the first discovery is left alone until a person approves it.
func approval(ctx context.Context, t *testing.T, h *harness.Harness) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(h.Client.Delete(ctx, &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: "d-worker-2"}})).To(Succeed())
	_, err := h.WaitForCluster(ctx, "d", harness.Condition[*v1alpha1.TalosCluster]{Says: "one machine pending", Holds: func(c *v1alpha1.TalosCluster) bool {
		return c.Status.Machines != nil && c.Status.Machines.PendingApproval != nil && *c.Status.Machines.PendingApproval == 1
	}})
	g.Expect(err).NotTo(HaveOccurred())
	op, err := h.Upgrade(ctx, "d", "v1.14.1", 0)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = h.WaitFor(ctx, op, harness.Completed())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(h.Fleet.Cluster("d").Node("worker-2").State().Running.Version).To(Equal("v1.13.6"))

	machine, err := h.Service.Machine(ctx, harness.Namespace, "d", "WORKER-2")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(h.Service.Approve(ctx, machine)).To(BeTrue())
	op, err = h.Upgrade(ctx, "d", "v1.14.1", 0)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = h.WaitFor(ctx, op, harness.Completed())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(h.Fleet.Cluster("d").Node("worker-2").State().Running.Version).To(Equal("v1.14.1"))
}
