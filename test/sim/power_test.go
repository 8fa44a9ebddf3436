// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/client"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
)

// A cluster that goes off as a whole has its data when it is on again, and no API in between.
func TestClusterOffAndOn(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 3, Workers: 1})
	c := s.Cluster("a")
	k := kubeClient(t, c)
	mark := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "mark"}}
	_, err := k.CoreV1().ConfigMaps("kube-system").Create(within(t), mark, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	api := talosClient(t, c.Talosconfig())
	for _, name := range []string{"worker-1", "cp-1", "cp-2", "cp-3"} {
		ctx := client.WithNode(within(t), c.Node(name).Address()) // The client may ask by way of an endpoint that has just gone.
		g.Eventually(func() error { return api.Shutdown(ctx, client.WithShutdownForce(true)) }).WithContext(ctx).Should(Succeed())
		awaitEvent(t, s, c.Node(name), "down", 0)
	}
	_, err = k.CoreV1().Nodes().List(within(t), metav1.ListOptions{})
	g.Expect(err).To(HaveOccurred())
	_, err = api.Version(client.WithNode(within(t), c.Node("cp-3").Address()))
	g.Expect(err).To(HaveOccurred())

	before := s.Journal().Last()
	for _, node := range c.Nodes() {
		node.PowerOn()
	}
	for _, node := range c.Nodes() {
		awaitEvent(t, s, node, "ready", before)
	}
	_, err = k.CoreV1().ConfigMaps("kube-system").Get(within(t), "mark", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	nodes, err := k.CoreV1().Nodes().List(within(t), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(nodes.Items).To(HaveLen(4))
}

func TestShutdownStuck(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	worker := s.Cluster("small").Node("worker-1")
	_, err := s.Inject(fault.Fault{Name: fault.ShutdownStuck, Cluster: "small", Node: "worker-1"})
	g.Expect(err).NotTo(HaveOccurred())
	api := talosClient(t, s.Cluster("small").Talosconfig())
	g.Expect(api.Shutdown(client.WithNode(within(t), worker.Address()), client.WithShutdownForce(true))).To(Succeed())
	g.Eventually(func() string { return worker.State().Stage.String() }).Should(Equal("shutting down"))
	g.Consistently(func() bool { return worker.State().APIUp }, "200ms").Should(BeTrue())
	worker.PowerOff()
	g.Expect(worker.State().PoweredOff).To(BeTrue())
	s.Clear("")
	g.Consistently(func() bool { return worker.State().PoweredOff }, "200ms").Should(BeTrue())
}

func TestPowerReturns(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	worker := s.Cluster("small").Node("worker-1")
	before := worker.State().BootID
	_, err := s.Inject(fault.Fault{Name: fault.PowerReturns, Cluster: "small", Node: "worker-1", Times: 1})
	g.Expect(err).NotTo(HaveOccurred())
	api := talosClient(t, s.Cluster("small").Talosconfig())
	ctx := client.WithNode(within(t), worker.Address())
	g.Expect(api.Shutdown(ctx, client.WithShutdownForce(true))).To(Succeed())
	awaitEvent(t, s, worker, "ready", 0)
	g.Expect(worker.State().BootID).NotTo(Equal(before))
	after := s.Journal().Last()
	g.Expect(api.Shutdown(ctx, client.WithShutdownForce(true))).To(Succeed())
	awaitEvent(t, s, worker, "down", after)
	g.Expect(worker.State().PoweredOff).To(BeTrue(), "once is all that was ordered")
}
