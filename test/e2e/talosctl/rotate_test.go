// SPDX-License-Identifier: Apache-2.0

package talosctl_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// rotationTimeout bounds a rotation, which touches each machine six times.
const rotationTimeout = 4 * time.Minute

// TestRotateCA lets talosctl rotate both CAs. It proves each pass by itself: by clients of the new CA, and by kubelets that come back.
func TestRotateCA(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "v1.13.6")
	dir := t.TempDir()
	fresh := *f
	fresh.config = filepath.Join(dir, "talosconfig")
	addresses := func(names ...string) string { return f.on(names...)[1] }
	ctx, cancel := context.WithTimeout(t.Context(), rotationTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, f.binary, "--talosconfig", f.config, "--nodes", addresses("cp-1"), "rotate-ca", "--dry-run=false",
		"--control-plane-nodes", addresses("cp-1", "cp-2", "cp-3"), "--worker-nodes", addresses("worker-1", "worker-2"),
		"--with-docs=false", "--with-examples=false", "--output", fresh.config)
	cmd.Env = append(os.Environ(), "HOME="+dir)
	out, err := cmd.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), "%s", out)
	g.Expect(strings.Count(string(out), "Verifying connectivity")).To(Equal(7))

	for _, name := range []string{"cp-1", "cp-2", "cp-3", "worker-1", "worker-2"} {
		g.Expect(fresh.run(f.on(name), "version", "--short")).To(ContainSubstring("Tag:         v1.13.6"))
		g.Expect(fresh.run(append(f.on(name), "--endpoints", addresses(name)), "version", "--short")).To(ContainSubstring("Tag:         v1.13.6"), "directly")
		g.Expect(f.fail(append(f.on(name), "--endpoints", addresses(name)), "version", "--short")).To(ContainSubstring("certificate"), "the old talosconfig")
	}
	old, err := clientcmd.RESTConfigFromKubeConfig(f.Kubeconfig())
	g.Expect(err).NotTo(HaveOccurred())
	k, err := kubernetes.NewForConfig(old)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = k.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	g.Expect(err).To(MatchError(ContainSubstring("unknown authority")), "the old kubeconfig")
	kubeconfig := filepath.Join(dir, "kubeconfig")
	fresh.run(f.on("cp-2"), "kubeconfig", kubeconfig)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	k, err = kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	nodes, err := k.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(nodes.Items).To(HaveLen(5))
}
