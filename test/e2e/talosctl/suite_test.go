// SPDX-License-Identifier: Apache-2.0

// Package talosctl_test runs the real talosctl against simulated clusters: what its commands print, and what of them reaches
// the machines. It is the proof that the simulator speaks the Talos API and not a dialect of our own.
package talosctl_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/framework"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/journal"
)

const (
	schematic = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
	installer = "factory.talos.dev/metal-installer/" + schematic
)

// commandTimeout bounds a command that ought to take a few seconds.
const commandTimeout = time.Minute

// TestMain says aloud when there is nothing to test with.
func TestMain(m *testing.M) {
	if !framework.MayRun(os.Stderr, "talosctl") {
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// timings are fast, but for a reboot: talosctl looks again a second after its beginning, and waits for ever when it missed it.
func timings() *sim.Timings {
	t := sim.DefaultTimings().Scaled(20)
	t.Stop, t.Boot = time.Second, 3*time.Second
	return &t
}

// fleet is a simulated cluster and the real client for it.
type fleet struct {
	*sim.Cluster

	t      *testing.T
	sim    *sim.Simulator
	binary string
	config string
}

// start starts a cluster of three control planes and two workers for the length of the test, which is left out where nobody
// has built talosctl.
func start(t *testing.T, talosVersion string) *fleet {
	t.Helper()
	return startCluster(t, sim.ClusterSpec{ControlPlanes: 3, Workers: 2, TalosVersion: talosVersion})
}

// startCluster is start for a cluster of another shape.
func startCluster(t *testing.T, spec sim.ClusterSpec) *fleet {
	t.Helper()
	binary, err := framework.Binary("talosctl")
	if err != nil {
		t.Skipf("left out: %v", err)
	}
	g := NewWithT(t)
	dir := t.TempDir()
	spec.Name = "fleet"
	s, err := sim.Start(t.Context(), sim.Options{Dir: dir, Timings: timings(), Clusters: []sim.ClusterSpec{spec}})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(s.Stop)
	return &fleet{Cluster: s.Cluster("fleet"), t: t, sim: s, binary: binary, config: filepath.Join(dir, "fleet", "talosconfig")}
}

// in is the same fleet in a part of the test.
func (f *fleet) in(t *testing.T) *fleet {
	t.Helper()
	part := *f
	part.t = t
	return &part
}

// as is the same fleet for a client with another role.
func (f *fleet) as(role string) *fleet {
	f.t.Helper()
	g := NewWithT(f.t)
	config, err := f.TalosconfigFor(role)
	g.Expect(err).NotTo(HaveOccurred())
	other := *f
	other.config = filepath.Join(f.t.TempDir(), "talosconfig")
	g.Expect(os.WriteFile(other.config, config, 0o600)).To(Succeed())
	return &other
}

// on is the option that names nodes.
func (f *fleet) on(names ...string) []string {
	addresses := make([]string, 0, len(names))
	for _, name := range names {
		addresses = append(addresses, f.Node(name).Address())
	}
	return []string{"--nodes", strings.Join(addresses, ",")}
}

// run runs a command on nodes and returns all that it prints.
func (f *fleet) run(nodes []string, args ...string) string {
	f.t.Helper()
	out, err := f.try(nodes, args...)
	NewWithT(f.t).Expect(err).NotTo(HaveOccurred(), "talosctl %s\n%s", strings.Join(args, " "), out)
	return out
}

// fail runs a command that is to fail.
func (f *fleet) fail(nodes []string, args ...string) string {
	f.t.Helper()
	out, err := f.try(nodes, args...)
	NewWithT(f.t).Expect(err).To(HaveOccurred(), "talosctl %s\n%s", strings.Join(args, " "), out)
	return out
}

func (f *fleet) try(nodes []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), commandTimeout)
	defer cancel()
	args = append(append([]string{"--talosconfig", f.config}, nodes...), args...)
	cmd := exec.CommandContext(ctx, f.binary, args...)
	cmd.Env = append(os.Environ(), "HOME="+f.t.TempDir())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// rows are the lines of a table, each cut into fields. Warnings of old servers are none.
func rows(out string) [][]string {
	var list [][]string
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] != "WARNING:" {
			list = append(list, fields)
		}
	}
	return list
}

// story is what happened to a node in order, of the methods and events that matter to a test. Of the Kubernetes API's calls it
// picks those for the node.
func (f *fleet) story(node string, methods ...string) []string {
	var story []string
	for _, e := range f.sim.Journal().Entries(journal.Filter{Done: true}) {
		if slices.Contains(methods, e.Method) && (e.Node == node || e.Node == "") {
			story = append(story, e.Method)
		}
	}
	return story
}

// entry is the latest entry of a method that has ended.
func (f *fleet) entry(node, method string) journal.Entry {
	f.t.Helper()
	entries := f.sim.Journal().Entries(journal.Filter{Node: node, Method: method, Done: true})
	NewWithT(f.t).Expect(entries).NotTo(BeEmpty(), "%s has reached %s", method, node)
	return entries[len(entries)-1]
}

// await waits for an event of a node.
func (f *fleet) await(node, event string, after uint64) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), commandTimeout)
	defer cancel()
	_, err := f.sim.Journal().Wait(ctx, journal.Filter{Node: node, Method: "event " + event, After: after})
	NewWithT(f.t).Expect(err).NotTo(HaveOccurred())
}
