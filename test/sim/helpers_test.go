// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"ichor.maesh.dev/hub/test/sim"
)

func TestMain(m *testing.M) {
	SetDefaultEventuallyTimeout(patience)
	os.Exit(m.Run())
}

// fast makes a reboot take some sixty milliseconds.
const fast = 100

// Demo is the demo fleet.
var Demo = sim.Demo

// start runs a simulation for the length of the test.
func start(t *testing.T, clusters ...sim.ClusterSpec) *sim.Simulator {
	t.Helper()
	return startWith(t, sim.Options{Dir: t.TempDir(), Speed: fast, Clusters: clusters})
}

func startWith(t *testing.T, o sim.Options) *sim.Simulator {
	t.Helper()
	s, err := sim.Start(t.Context(), o)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(s.Stop)
	return s
}

// within bounds a wait that an event should end much earlier.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// impatient connects again at once: the client's own back-off of a second and more outlasts a simulated reboot.
var impatient = grpc.WithConnectParams(grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.1, MaxDelay: 20 * time.Millisecond},
	MinConnectTimeout: 5 * time.Second,
})

func talosClient(t *testing.T, talosconfig []byte, endpoints ...string) *client.Client {
	t.Helper()
	g := NewWithT(t)
	config, err := clientconfig.FromBytes(talosconfig)
	g.Expect(err).NotTo(HaveOccurred())
	options := []client.OptionFunc{client.WithConfig(config), client.WithGRPCDialOptions(impatient)}
	if len(endpoints) > 0 {
		options = append(options, client.WithEndpoints(endpoints...))
	}
	c, err := client.New(t.Context(), options...)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func kubeClient(t *testing.T, c *sim.Cluster) *kubernetes.Clientset {
	t.Helper()
	g := NewWithT(t)
	config, err := clientcmd.RESTConfigFromKubeConfig(c.Kubeconfig())
	g.Expect(err).NotTo(HaveOccurred())
	config.QPS = -1
	k, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	return k
}
