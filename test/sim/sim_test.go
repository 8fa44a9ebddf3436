// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStartDemo(t *testing.T) {
	g := NewWithT(t)
	before := time.Now()
	s := start(t, Demo(3)...)
	t.Logf("started in %s", time.Since(before))
	for _, c := range s.Clusters() {
		api := talosClient(t, c.Talosconfig())
		for _, n := range c.Nodes() {
			resp, err := api.Version(client.WithNode(t.Context(), n.Address()))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(resp.GetMessages()[0].GetVersion().GetTag()).To(Equal("v1.13.6"))
		}
		nodes, err := kubeClient(t, c).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(nodes.Items).To(HaveLen(len(c.Nodes())))
	}
}
