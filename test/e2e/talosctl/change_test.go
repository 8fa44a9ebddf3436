// SPDX-License-Identifier: Apache-2.0

package talosctl_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
)

func TestReboot(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "v1.13.6")
	before := f.Node("cp-1").State().BootID
	out := f.run(f.on("cp-1"), "reboot", "--wait", "--timeout", "50s")
	g.Expect(out).To(And(
		ContainSubstring("actor ID: "), // The client subscribes while it calls, so it may miss how the reboot begins.
		ContainSubstring("stage: BOOTING ready: false"),
		ContainSubstring("post check passed"),
	))
	g.Expect(f.Node("cp-1").State().BootID).NotTo(Equal(before))
	g.Expect(f.entry("cp-1", "MachineService/Reboot").Arguments).To(HaveKeyWithValue("mode", "DEFAULT"))
}

// TestUpgrade is the upgrade of today: the client pulls, installs, drains, reboots and uncordons. Then it is taken back.
func TestUpgrade(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "v1.13.6")
	out := f.run(f.on("worker-1"), "upgrade", "--image", installer+":v1.13.9", "--timeout", "50s")
	g.Expect(out).To(And(
		ContainSubstring("pulled image "+installer+":v1.13.9@sha256:"), ContainSubstring("Exit code: 0"),
		ContainSubstring("worker-1: evicted pod default/web-"), ContainSubstring("worker-1: node drained"),
		ContainSubstring("post check passed"), ContainSubstring("worker-1: node uncordoned"),
	))
	g.Expect(f.run(f.on("worker-1"), "version", "--short")).To(ContainSubstring("Tag:         v1.13.9"))
	g.Expect(f.story("worker-1", "ImageService/Pull", "LifecycleService/Upgrade", "kube PATCH nodes/worker-1", "MachineService/Reboot", "event boot")).To(Equal([]string{
		"ImageService/Pull", "LifecycleService/Upgrade", "kube PATCH nodes/worker-1", "MachineService/Reboot", "event boot", "kube PATCH nodes/worker-1",
	}))
	g.Expect(f.entry("worker-1", "LifecycleService/Upgrade").ExitCode).To(HaveValue(BeEquivalentTo(0)))

	after := f.sim.Journal().Last()
	f.run(f.on("worker-1"), "rollback")
	f.await("worker-1", "ready", after)
	g.Expect(f.run(f.on("worker-1"), "version", "--short")).To(ContainSubstring("Tag:         v1.13.6"))
}

func TestUpgradeWhoseInstallerFails(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "v1.14.0")
	_, err := f.sim.Inject(fault.Fault{
		Name: fault.InstallerExit, Node: "worker-1", Times: 1, Params: map[string]string{fault.ParamCode: "6"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(f.fail(f.on("worker-1"), "upgrade", "--image", installer+":v1.14.1")).To(ContainSubstring("upgrade failed with exit code 6"))
	g.Expect(f.story("worker-1", "event boot", "kube PATCH nodes/worker-1")).To(BeEmpty())
}

// TestLegacyUpgrade is the upgrade of Talos 1.12, where the machine does it all.
func TestLegacyUpgrade(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "v1.12.4")
	out := f.run(f.on("cp-2"), "upgrade", "--image", installer+":v1.13.6", "--timeout", "50s")
	g.Expect(out).To(And(
		ContainSubstring("falling back to legacy"), ContainSubstring("task: stopAllServices action: START"),
		ContainSubstring("post check passed"),
	))
	g.Expect(f.run(f.on("cp-2"), "version", "--short")).To(ContainSubstring("Tag:         v1.13.6"))
	g.Expect(f.story("cp-2", "MachineService/Upgrade", "event drained", "event installer", "event boot", "MachineService/Reboot")).To(Equal([]string{
		"MachineService/Upgrade", "event drained", "event installer", "event boot",
	}))

	_, err := f.sim.Inject(fault.Fault{Name: fault.InstallerExit, Node: "worker-1", Times: 1})
	g.Expect(err).NotTo(HaveOccurred())
	out = f.fail(f.on("worker-1"), "upgrade", "--image", installer+":v1.13.6", "--timeout", "50s")
	g.Expect(out).To(ContainSubstring("sequence error: sequence failed: error running phase 9 in upgrade sequence"))
}

func TestLegacyUpgradeIsRefusedWhileAMemberIsDown(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "v1.12.4")
	f.Node("cp-3").PowerOff()
	out := f.fail(f.on("cp-1"), "upgrade", "--image", installer+":v1.13.6", "--timeout", "20s")
	g.Expect(out).To(ContainSubstring("all members must be healthy to perform an upgrade"))
	g.Expect(f.entry("cp-1", "MachineService/Upgrade").Code).To(Equal("Unknown"))
}

const (
	live    = `{"machine":{"sysctls":{"vm.max_map_count":"262144"}}}`
	notLive = `{"machine":{"udev":{"rules":["SUBSYSTEM==\"block\""]}}}`
)

func TestConfig(t *testing.T) {
	f := start(t, "v1.13.6")
	worker := f.on("worker-1")
	path := filepath.Join(t.TempDir(), "config.yaml")

	t.Run("a dry run of no change", func(t *testing.T) {
		g := NewWithT(t)
		f := f.in(t)
		config := f.run(worker, "get", "machineconfig", "v1alpha1", "--output", "jsonpath={.spec}")
		g.Expect(os.WriteFile(path, []byte(config), 0o600)).To(Succeed())
		g.Expect(f.run(worker, "apply-config", "--dry-run", "--file", path)).To(ContainSubstring("No changes."))
	})
	t.Run("a dry run of a change that needs no reboot", func(t *testing.T) {
		g := NewWithT(t)
		f := f.in(t)
		g.Expect(f.run(worker, "patch", "mc", "--dry-run", "--patch", live)).To(And(
			ContainSubstring("Applied configuration without a reboot (skipped in dry-run)"), ContainSubstring(`+        vm.max_map_count: "262144"`),
		))
	})
	t.Run("a dry run of one that does", func(t *testing.T) {
		g := NewWithT(t)
		f := f.in(t)
		g.Expect(f.run(worker, "patch", "mc", "--dry-run", "--patch", notLive)).To(ContainSubstring("Applied configuration with a reboot (skipped in dry-run)"))
		g.Expect(f.run(worker, "get", "machineconfig", "v1alpha1")).To(table(1, ContainElement(ContainElements("v1alpha1", "1"))), "nothing has changed")
	})
	t.Run("not at once if it needs a reboot", func(t *testing.T) {
		g := NewWithT(t)
		f := f.in(t)
		g.Expect(f.fail(worker, "patch", "mc", "--mode", "no-reboot", "--patch", notLive)).To(ContainSubstring("this config change can't be applied in immediate mode"))
	})
	t.Run("at once", func(t *testing.T) {
		g := NewWithT(t)
		f := f.in(t)
		g.Expect(f.run(worker, "patch", "mc", "--mode", "no-reboot", "--patch", live)).To(ContainSubstring("Applied configuration without a reboot"))
		g.Expect(f.run(worker, "get", "machineconfig", "--output", "yaml")).To(ContainSubstring("vm.max_map_count"))
		g.Expect(f.entry("worker-1", "MachineService/ApplyConfiguration").Arguments).To(HaveKeyWithValue("applied", "NO_REBOOT"))
	})
	t.Run("with a reboot", func(t *testing.T) {
		g := NewWithT(t)
		f := f.in(t)
		after := f.sim.Journal().Last()
		g.Expect(f.run(worker, "patch", "mc", "--patch", notLive)).To(ContainSubstring("Applied configuration with a reboot"))
		f.await("worker-1", "ready", after)
		g.Expect(f.run(worker, "get", "machineconfig", "v1alpha1", "--output", "yaml")).To(And(ContainSubstring("SUBSYSTEM"), ContainSubstring("vm.max_map_count")))
	})
}

// TestConfigOf114 never reboots, and has no mode that does. The client is too old to read the config, so it gets it as a file.
func TestConfigOf114(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "v1.14.1")
	worker := f.on("worker-1")
	path := f.patched("worker-1", notLive)
	g.Expect(f.run(worker, "apply-config", "--dry-run", "--file", path)).To(And(
		ContainSubstring("without a reboot (skipped in dry-run)"), ContainSubstring("+    udev:"),
	))
	g.Expect(f.run(worker, "apply-config", "--file", path)).To(ContainSubstring("Applied configuration without a reboot"))
	active, persistent := f.Node("worker-1").Config()
	g.Expect(active).To(BeIdenticalTo(persistent))
	g.Expect(active.Machine().Udev().Rules()).To(HaveLen(1))
	g.Expect(f.fail(worker, "apply-config", "--mode", "reboot", "--file", path)).To(ContainSubstring("the REBOOT mode is not supported"))
	g.Expect(f.sim.Journal().Entries(journal.Filter{Method: "event boot"})).To(BeEmpty())
	g.Expect(f.run(worker, "get", "bootids", "--output", "yaml")).To(ContainSubstring(f.Node("worker-1").State().BootID))
}

// patched is the file of a node's config with a patch applied.
func (f *fleet) patched(node, patch string) string {
	f.t.Helper()
	g := NewWithT(f.t)
	active, _ := f.Node(node).Config()
	patches, err := configpatcher.LoadPatches([]string{patch})
	g.Expect(err).NotTo(HaveOccurred())
	out, err := configpatcher.Apply(configpatcher.WithConfig(active), patches)
	g.Expect(err).NotTo(HaveOccurred())
	config, err := out.Bytes()
	g.Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(f.t.TempDir(), "config.yaml")
	g.Expect(os.WriteFile(path, config, 0o600)).To(Succeed())
	return path
}
