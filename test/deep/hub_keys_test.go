// SPDX-License-Identifier: Apache-2.0

package deep_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/sim"
)

// secretsMade is how many Secrets there are to be written again: more than the hub writes between two writes of its cursor.
const secretsMade = 600

// Both keys of a cluster are rotated by a hub that is killed at each step.
func TestDeepHubRotatesKeys(t *testing.T) {
	for name, spec := range map[string]sim.ClusterSpec{
		// Made by a Talos whose machine configs hold one key of a kind, and runs one whose configs hold more.
		"one control plane":    {Name: "c", ControlPlanes: 1, TalosVersion: "v1.13.6", Mixed: []string{"v1.14.1"}},
		"three control planes": {Name: "c", ControlPlanes: 3, TalosVersion: "v1.14.1"},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && spec.ControlPlanes > 1 {
				t.Skip("five minutes of restarts; make test-deep has them")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
			defer cancel()
			m := manage(ctx, t, spec)
			m.rotatesKeys(ctx, t)
		})
	}
}

func (m *managed) rotatesKeys(ctx context.Context, t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	servers, anyone := m.servers(t), kubeClient(t, m.cluster)
	for i := range secretsMade {
		g.Expect(putSecret(ctx, anyone, fmt.Sprintf("s-%04d", i))).To(Succeed())
	}
	g.Expect(m.seals()).To(HaveKeyWithValue("key2", BeNumerically(">=", secretsMade)))
	old := tokenOf(ctx, t, anyone)
	before := publishedKeys(ctx, t, anyone)

	op, err := m.Begin(ctx, v1alpha1.TalosOperationSpec{ClusterName: m.name, Kind: v1alpha1.KeyRotationKind, KeyRotation: &v1alpha1.KeyRotationParameters{
		Keys: []v1alpha1.RotatedKey{v1alpha1.SecretboxKey, v1alpha1.ServiceAccountKey},
	}})
	g.Expect(err).NotTo(HaveOccurred())
	s := m.storm(ctx, t, op)
	if len(servers) > 1 {
		m.outage(ctx, t, op, "AcceptSecretbox", "cp-2")
	}

	// What is in etcd names its key.
	current, err := m.WaitFor(ctx, op, harness.Past("Rewrite"))
	g.Expect(err).NotTo(HaveOccurred())
	seals := m.seals()
	g.Expect(seals).To(HaveLen(1))
	g.Expect(seals).NotTo(HaveKey("key2"))
	for _, made := range seals {
		g.Expect(current.Status.Units).To(ContainElement(And(
			HaveField("Name", "Rewrite"), HaveField("Progress.Done", BeNumerically("~", made, 3)))), "%d Secrets in etcd", made)
	}

	// Tokens of the old key are good on every API server until the drop.
	current, err = m.WaitFor(ctx, op, harness.InStage("RefreshTokens"))
	g.Expect(err).NotTo(HaveOccurred())
	for name, server := range servers {
		g.Expect(authenticates(ctx, server, old)).To(BeTrue(), name)
		g.Expect(publishedKeys(ctx, t, server)).To(And(HaveLen(2), ContainElements(before)), name)
		fresh := tokenOf(ctx, t, server)
		for other, taking := range servers {
			g.Expect(authenticates(ctx, taking, fresh)).To(BeTrue(), "a token of %s on %s", name, other)
		}
	}
	g.Expect(m.listsAs(ctx, t, old)).To(MatchError(ContainSubstring("forbidden")), "it is known, and has no right to anything")
	_, err = m.Service.Confirm(ctx, current, "RefreshTokens")
	g.Expect(err).NotTo(HaveOccurred())
	_, kills := m.over(ctx, t, op, s)
	passes := []string{"AcceptSecretbox", "SwapSecretbox", "DropSecretbox", "AcceptServiceAccount", "SwapServiceAccount", "DropServiceAccount"}
	if len(m.cluster.Spec().Mixed) > 0 {
		passes = append(passes, "Migrate")
	}
	for _, stage := range passes {
		g.Expect(kills).To(ContainElements(stage+"/Applying", stage+"/Verifying"))
	}
	g.Expect(kills).To(ContainElements("Keys/Generating", "Rewrite/Rewriting", "RefreshTokens/Refreshing", "SwapServiceAccount/Proving", "Bundle/Renewing"))

	for name, server := range servers {
		g.Expect(authenticates(ctx, server, old)).To(BeFalse(), name)
		g.Expect(publishedKeys(ctx, t, server)).To(And(HaveLen(1), Not(ContainElements(before))), name)
		g.Expect(authenticates(ctx, server, tokenOf(ctx, t, anyone))).To(BeTrue(), name)
		list, err := server.CoreV1().Secrets(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(list.Items).To(HaveLen(secretsMade))
		g.Expect(list.Items).To(HaveEach(HaveField("Data", HaveKeyWithValue("a", []byte("b")))), "nothing is lost")
	}
	g.Expect(m.listsAs(ctx, t, old)).To(MatchError(ContainSubstring("nauthorized")))
	g.Expect(m.seals()).To(And(HaveLen(1), Not(HaveKey("key2"))))
	g.Expect(m.asked(rebootMethod)).To(BeEmpty())
}

const rebootMethod = "MachineService/Reboot"

// servers are ways to each API server of the cluster, by the names of their machines.
func (m *managed) servers(t *testing.T) map[string]*kubernetes.Clientset {
	t.Helper()
	servers := map[string]*kubernetes.Clientset{}
	for _, n := range m.cluster.Nodes() {
		if n.ControlPlane() {
			servers[n.Name()] = kubeClientAt(t, m.cluster.Kubeconfig(), "https://"+n.Address()+":6443")
		}
	}
	return servers
}

// seals are the names of the keys that Secrets are encrypted with in etcd, and how many are with each.
func (m *managed) seals() map[string]int {
	names := map[string]int{}
	for _, key := range m.cluster.Secrets() {
		parts := strings.Split(key.Prefix, ":") // Such as k8s:enc:secretbox:v1:key2: and nothing behind it.
		names[parts[max(len(parts)-2, 0)]]++
	}
	return names
}

// listsAs lists Secrets by a token.
func (m *managed) listsAs(ctx context.Context, t *testing.T, token string) error {
	t.Helper()
	g := NewWithT(t)
	config, err := clientcmd.RESTConfigFromKubeConfig(m.cluster.Kubeconfig())
	g.Expect(err).NotTo(HaveOccurred())
	config.CertData, config.KeyData, config.BearerToken = nil, nil, token
	client, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	var list *corev1.SecretList
	list, err = client.CoreV1().Secrets(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err == nil {
		return fmt.Errorf("%d Secrets are told to it", len(list.Items))
	}
	return err
}
