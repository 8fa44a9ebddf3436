// SPDX-License-Identifier: Apache-2.0

//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// readyLimit is how long a start may take.
const readyLimit = 6 * time.Second

func TestStart(t *testing.T) {
	g := NewWithT(t)
	// Longer than the name of a socket may be.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40), "data")
	h := startHub(t, dir)
	g.Expect(h.ready).To(BeNumerically("<=", readyLimit), "on a fresh directory")
	g.Expect(h.output.String()).To(ContainSubstring(h.kubeconfig()))

	version, err := h.admin().Discovery().ServerVersion()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(version.GitVersion).To(MatchRegexp(`^v1\.\d+\.\d+$`), "Cluster API refuses a server without a version")
	expectServed(t, h, "ichor.maesh.dev/v1alpha1", "talosclusters", "talosmachines", "talosoperations")
	expectServed(t, h, "cluster.x-k8s.io/v1beta2", "clusters")
	expectPrivate(t, dir)

	kubeconfig, err := os.ReadFile(h.kubeconfig())
	g.Expect(err).NotTo(HaveOccurred())
	h.stop()
	h = startHub(t, dir)
	g.Expect(h.ready).To(BeNumerically("<=", readyLimit), "on an existing directory")
	g.Expect(os.ReadFile(h.kubeconfig())).To(Equal(kubeconfig), "a restart voids kubeconfigs")
}

func expectServed(t *testing.T, h *hub, groupVersion string, resources ...string) {
	t.Helper()
	g := NewWithT(t)
	list, err := h.admin().Discovery().ServerResourcesForGroupVersion(groupVersion)
	g.Expect(err).NotTo(HaveOccurred())
	var served []string
	for _, resource := range list.APIResources {
		served = append(served, resource.Name)
	}
	for _, resource := range resources {
		g.Expect(served).To(ContainElement(resource))
	}
}

// expectPrivate checks that nothing in a directory is for others. What is written at that moment has another name a moment later.
func expectPrivate(t *testing.T, dir string) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		g.Expect(err).NotTo(HaveOccurred())
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(fmt.Sprintf("%o", info.Mode().Perm()&0o077)).To(Equal("0"), path)
		return nil
	})).To(Succeed())
}

func TestStartClosesAnOpenDirectory(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	g.Expect(os.Chmod(dir, 0o755)).To(Succeed())
	startHub(t, dir)
	expectPrivate(t, dir)
}

func TestSecondStartIsRefused(t *testing.T) {
	g := NewWithT(t)
	first := startHub(t, t.TempDir())
	child := first.childPID()

	second := launch(t, first.dir)
	g.Eventually(second.ended, 2*time.Second).Should(BeClosed())
	g.Expect(second.cmd.ProcessState.ExitCode()).To(Equal(1))
	g.Expect(second.output.String()).To(And(
		ContainSubstring(first.dir), ContainSubstring(fmt.Sprintf("process %d", first.cmd.Process.Pid))))

	g.Expect(first.childPID()).To(Equal(child))
	_, err := first.admin().Discovery().ServerVersion()
	g.Expect(err).NotTo(HaveOccurred(), "the first one suffers")
}

func TestStopStopsTheChild(t *testing.T) {
	g := NewWithT(t)
	h := startHub(t, t.TempDir())
	child := h.childPID()
	g.Expect(alive(child)).To(BeTrue())
	h.stop()
	g.Expect(h.cmd.ProcessState.ExitCode()).To(BeZero(), h.output.String())
	g.Expect(alive(child)).To(BeFalse(), "the hub must outlive its child")
}

func TestInterruptReachesTheChildThroughTheHubOnly(t *testing.T) {
	g := NewWithT(t)
	h := startHub(t, t.TempDir())
	group, err := syscall.Getpgid(h.childPID())
	g.Expect(err).NotTo(HaveOccurred())
	own, err := syscall.Getpgid(h.cmd.Process.Pid)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(group).NotTo(Equal(own), "Ctrl-C would stop the API server under the hub")
}

func TestStartMovesFromATakenPort(t *testing.T) {
	g := NewWithT(t)
	h := startHub(t, t.TempDir())
	address := strings.TrimPrefix(h.config("kubeconfig").Host, "https://")
	h.stop()
	thief, err := net.Listen("tcp", address)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(thief.Close()).To(Succeed()) })

	h = startHub(t, h.dir)
	g.Expect(h.config("kubeconfig").Host).NotTo(ContainSubstring(address))
	_, err = h.admin().Discovery().ServerVersion()
	g.Expect(err).NotTo(HaveOccurred())
}

func TestStartLeavesTheClusterDefinitionOfOthersAlone(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	h := startHub(t, t.TempDir())
	change := []byte(`{"metadata":{"labels":{"owner":"cluster-api","cluster.x-k8s.io/v1beta2":"changed"}}}`)
	patchDefinition(ctx, g, h, "clusters.cluster.x-k8s.io", change)
	patchDefinition(ctx, g, h, "talosclusters.ichor.maesh.dev", []byte(`{"spec":{"names":{"shortNames":["changed"]}}}`))
	h.stop()

	h = startHub(t, h.dir)
	foreign := definition(ctx, g, h, "clusters.cluster.x-k8s.io")
	g.Expect(foreign.Labels).To(HaveKeyWithValue("cluster.x-k8s.io/v1beta2", "changed"))
	own := definition(ctx, g, h, "talosclusters.ichor.maesh.dev")
	g.Expect(own.Spec.Names.ShortNames).NotTo(ContainElement("changed"), "an upgrade must bring its definitions")
}

func definitions(g *WithT, h *hub) apiextensions.Interface {
	c, err := apiextensions.NewForConfig(h.config("kubeconfig"))
	g.Expect(err).NotTo(HaveOccurred())
	return c
}

func definition(ctx context.Context, g *WithT, h *hub, name string) *apiextensionsv1.CustomResourceDefinition {
	found, err := definitions(g, h).ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	return found
}

func patchDefinition(ctx context.Context, g *WithT, h *hub, name string, patch []byte) {
	_, err := definitions(g, h).ApiextensionsV1().CustomResourceDefinitions().
		Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	g.Expect(err).NotTo(HaveOccurred())
}
