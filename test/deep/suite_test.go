// SPDX-License-Identifier: Apache-2.0

// Package deep_test tests the deep simulation: what real clients see of a cluster whose control planes run real etcd members and real
// API servers, and what the Talos API does to those.
package deep_test

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"ichor.maesh.dev/hub/test/framework"
	"ichor.maesh.dev/hub/test/sim"
)

// TestMain says aloud when there is nothing to test with.
func TestMain(m *testing.M) {
	if !framework.MayRun(os.Stderr, binary) {
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const binary = "kube-apiserver"

const (
	// soon bounds a wait for something that takes seconds on an idle machine.
	soon = 2 * time.Minute
	// poll is the pause between two looks.
	poll = 200 * time.Millisecond
)

// options are those of a simulation in a directory. The test is left out where nobody has built the API server.
func options(t *testing.T, dir string, specs ...sim.ClusterSpec) sim.Options {
	t.Helper()
	path, err := framework.Binary(binary)
	if err != nil {
		t.Skip(err)
	}
	for i := range specs {
		specs[i].Deep = true
	}
	return sim.Options{Dir: dir, Speed: 20, Clusters: specs, KubeAPIServer: path}
}

// start runs a simulation for the length of the test.
func start(t *testing.T, o sim.Options) *sim.Simulator {
	t.Helper()
	before := time.Now()
	s, err := sim.Start(t.Context(), o)
	if err != nil {
		tellLogs(t, o.Dir)
	}
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Logf("started in %s", time.Since(before).Round(time.Millisecond))
	t.Cleanup(func() {
		s.Stop()
		if t.Failed() {
			tellLogs(t, o.Dir)
		}
	})
	return s
}

// tellLogs shows how the logs of the processes end.
func tellLogs(t *testing.T, dir string) {
	t.Helper()
	const lines = 15
	logs, _ := filepath.Glob(filepath.Join(dir, "*", "disks", "*", "*.log"))
	for _, log := range logs {
		if filepath.Base(log) == "audit.log" {
			continue // What is in it is in the journal.
		}
		text, _ := os.ReadFile(log)
		all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		t.Logf("%s:\n%s", log, bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
	}
}

// within bounds a wait that an event should end much earlier.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	t.Cleanup(cancel)
	return ctx
}

// impatient connects again at once: the client's own back-off outlasts a simulated reboot.
var impatient = grpc.WithConnectParams(grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.1, MaxDelay: 100 * time.Millisecond},
	MinConnectTimeout: 5 * time.Second,
})

func talosClient(t *testing.T, c *sim.Cluster) *client.Client {
	t.Helper()
	g := NewWithT(t)
	config, err := clientconfig.FromBytes(c.Talosconfig())
	g.Expect(err).NotTo(HaveOccurred())
	made, err := client.New(t.Context(), client.WithConfig(config), client.WithGRPCDialOptions(impatient))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = made.Close() })
	return made
}

// at addresses a call to one machine.
func at(ctx context.Context, n *sim.Node) context.Context { return client.WithNode(ctx, n.Address()) }

func kubeClient(t *testing.T, c *sim.Cluster) *kubernetes.Clientset {
	t.Helper()
	return kubeClientAt(t, c.Kubeconfig(), "")
}

// kubeClientAt is a way into a cluster by a kubeconfig, to the API server at a URL or where the kubeconfig says.
func kubeClientAt(t *testing.T, kubeconfig []byte, url string) *kubernetes.Clientset {
	t.Helper()
	g := NewWithT(t)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	config.Host = cmp.Or(url, config.Host)
	config.QPS = -1
	config.Timeout = 10 * time.Second
	k, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	return k
}

// put writes a ConfigMap that a later look can find.
func put(ctx context.Context, k *kubernetes.Clientset, name string) error {
	_, err := k.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"written": name},
	}, metav1.CreateOptions{})
	return err
}

// names lists the ConfigMaps that were put.
func names(ctx context.Context, k *kubernetes.Clientset) ([]string, error) {
	list, err := k.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var found []string
	for _, item := range list.Items {
		if _, ok := item.Data["written"]; ok {
			found = append(found, item.Name)
		}
	}
	return found, nil
}

// readyNodes are the names of the Nodes that are Ready.
func readyNodes(ctx context.Context, k *kubernetes.Clientset) ([]string, error) {
	list, err := k.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var ready []string
	for _, node := range list.Items {
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				ready = append(ready, node.Name)
			}
		}
	}
	return ready, nil
}

// runningPods are the names of the pods of a namespace that are Ready.
func runningPods(ctx context.Context, k *kubernetes.Clientset, namespace string) ([]string, error) {
	list, err := k.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var ready []string
	for _, pod := range list.Items {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				ready = append(ready, pod.Name)
			}
		}
	}
	return ready, nil
}
