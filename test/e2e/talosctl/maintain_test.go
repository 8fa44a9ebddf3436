// SPDX-License-Identifier: Apache-2.0

package talosctl_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/sim/fault"
)

// TestEtcdMaintenance is what etcd needs now and then: its databases become smaller, and the alarm is taken back.
func TestEtcdMaintenance(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "v1.13.6")
	_, err := f.sim.Inject(fault.Fault{Name: fault.EtcdAlarm, Node: "cp-2"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(f.run(f.on("cp-1"), "etcd", "alarm", "list")).To(ContainSubstring("NOSPACE"))
	f.run(f.on("cp-2"), "etcd", "defrag")
	g.Expect(f.run(f.on("cp-2"), "etcd", "status")).To(ContainSubstring("17 MB"))
	f.run(f.on("cp-1"), "etcd", "alarm", "disarm")
	g.Expect(f.run(f.on("cp-1"), "etcd", "alarm", "list")).NotTo(ContainSubstring("NOSPACE"))
}

// TestReset is a reset as talosctl does it: gracefully, so that the machine leaves etcd by itself, and back in maintenance mode.
func TestReset(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "v1.13.6")
	out := f.run(f.on("cp-2"), "reset", "--graceful", "--reboot", "--system-labels-to-wipe", "STATE", "--system-labels-to-wipe", "EPHEMERAL", "--wait=false")
	g.Expect(out).NotTo(ContainSubstring("error"))
	f.await("cp-2", "maintenance", 0)
	g.Expect(f.run(f.on("cp-1"), "etcd", "members")).NotTo(ContainSubstring("cp-2"))
	g.Expect(f.run(f.on("cp-1"), "get", "members")).NotTo(ContainSubstring("cp-2"))
	g.Expect(f.story("cp-2", "MachineService/Reset", "event drained", "event left etcd", "event wiped", "event maintenance")).To(Equal([]string{
		"MachineService/Reset", "event drained", "event left etcd", "event wiped", "event maintenance",
	}))
	g.Expect(f.run(f.on("cp-2"), "get", "systeminformation", "--insecure")).To(ContainSubstring(f.Node("cp-2").UUID()))
	g.Expect(f.run(f.on("cp-2"), "get", "disks", "--insecure")).To(ContainSubstring("vda"))
	g.Expect(f.fail(f.on("cp-2"), "version")).To(ContainSubstring("certificate"))
}
