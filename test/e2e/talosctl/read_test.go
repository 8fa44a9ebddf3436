// SPDX-License-Identifier: Apache-2.0

package talosctl_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
)

// TestRead runs what only looks.
func TestRead(t *testing.T) {
	f := start(t, "v1.13.6")
	all := []string{"cp-1", "cp-2", "cp-3", "worker-1", "worker-2"}
	boot := f.Node("worker-1").State().BootID
	for _, tt := range []struct {
		name   string
		nodes  []string
		args   []string
		prints types.GomegaMatcher
	}{
		{"version of one node", f.on("worker-1"), []string{"version", "--short"}, ContainSubstring("Tag:         v1.13.6")},
		{
			"version of many nodes, merged", f.on(all...), []string{"version", "--short"},
			And(ContainSubstring("NODE:        "+f.Node("cp-3").Address()), ContainSubstring("NODE:        "+f.Node("worker-2").Address())),
		},
		{
			"members", f.on("cp-1"), []string{"get", "members"},
			table(5, ContainElement(ContainElements("worker-1", "worker", "(v1.13.6)")), ContainElement(ContainElements("cp-2", "controlplane"))),
		},
		{"machine status of many nodes", f.on(all...), []string{"get", "machinestatus"}, table(5, HaveEach(Or(ContainElement("STAGE"), ContainElements("running", "true"))))},
		{"a resource by its alias, as YAML", f.on("cp-1"), []string{"get", "nodename", "-o", "yaml"}, ContainSubstring("nodename: cp-1")},
		{"the machine config's two resources", f.on("cp-1"), []string{"get", "machineconfig"}, table(2, ContainElement(ContainElement("persistent")))},
		{"disks", f.on("worker-1"), []string{"get", "disks"}, table(1)},
		{"etcd members", f.on("cp-1"), []string{"etcd", "members"}, table(3, ContainElement(ContainElement("cp-3")))},
		{"etcd status of three nodes", f.on(all[:3]...), []string{"etcd", "status"}, table(3)},
		{"no etcd alarms", f.on(all[:3]...), []string{"etcd", "alarm", "list"}, table(0)},
		{"services", f.on("cp-1"), []string{"service"}, table(11, ContainElement(ContainElements("etcd", "Running", "OK")))},
		{"no etcd on workers", f.on("worker-1"), []string{"service"}, table(9, Not(ContainElement(ContainElement("etcd"))))},
		{"one service", f.on("worker-1"), []string{"service", "kubelet"}, ContainSubstring("Health check successful")},
		{"boot ID", f.on("worker-1"), []string{"read", "/proc/sys/kernel/random/boot_id"}, Equal(boot + "\n")},
		{"time", f.on("cp-1", "worker-1"), []string{"time"}, table(2)},
		{"memory", f.on("cp-1", "worker-1"), []string{"memory"}, table(2, HaveEach(Or(ContainElement("TOTAL"), ContainElement("8192"))))},
		{"logs", f.on("cp-1"), []string{"logs", "etcd"}, ContainSubstring("service[etcd](Running): Health check successful")},
		{"kernel log", f.on("worker-1"), []string{"dmesg"}, And(ContainSubstring("Linux version"), ContainSubstring("[talos] machine is running, ready true"))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(f.in(t).run(tt.nodes, tt.args...)).To(tt.prints)
		})
	}
}

// table expects a table with a number of rows below its head, and more of the rows; none at all has no head either.
func table(n int, matchers ...types.GomegaMatcher) types.GomegaMatcher {
	if n > 0 {
		n++
	}
	return WithTransform(rows, And(append(matchers, HaveLen(n))...))
}

// TestTypes has every resource type of the version that runs, which is how clients find names.
func TestTypes(t *testing.T) {
	for version, types := range map[string]int{"v1.12.4": 159, "v1.13.6": 167, "v1.14.1": 202} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			f := start(t, version)
			g.Expect(f.run(f.on("cp-1"), "get", "rd")).To(table(types))
		})
	}
}

func TestRefusals(t *testing.T) {
	f := start(t, "v1.13.6")
	for _, tt := range []struct {
		name   string
		as     string
		nodes  []string
		args   []string
		prints string
	}{
		{"etcd of a worker", "os:admin", f.on("worker-1"), []string{"etcd", "members"}, "code = Unimplemented desc = member list is only available on control plane nodes"},
		{"a restart of etcd", "os:admin", f.on("cp-1"), []string{"service", "etcd", "restart"}, `service "etcd" doesn't support restart operation via API`},
		{"a stop of the kubelet", "os:admin", f.on("cp-1"), []string{"service", "kubelet", "stop"}, `service "kubelet" doesn't support stop operation via API`},
		{"logs of nothing", "os:admin", f.on("cp-1"), []string{"logs", "nothing"}, `log "nothing" was not registered`},
		{"a snapshot of a worker", "os:admin", f.on("worker-1"), []string{"etcd", "snapshot", filepath.Join(t.TempDir(), "db")}, "code = Unimplemented desc = etcd snapshot is only available on control plane nodes"},
		{"a snapshot by readers", "os:reader", f.on("cp-1"), []string{"etcd", "snapshot", filepath.Join(t.TempDir(), "db")}, "not authorized"},
		{"secrets for readers", "os:reader", f.on("cp-1"), []string{"get", "machineconfig"}, "not authorized"},
		{"a reboot by readers", "os:reader", f.on("cp-1"), []string{"reboot", "--wait=false"}, "not authorized"},
		{"a rollback by operators", "os:operator", f.on("cp-1"), []string{"rollback"}, "not authorized"},
		{"a rollback to nothing", "os:admin", f.on("cp-1"), []string{"rollback"}, "previous boot entry not found"},
		{"a node that is not there", "os:admin", []string{"--nodes", f.Endpoint()}, []string{"version"}, "invalid target"},
		{
			"forwarding by a worker", "os:admin", append(f.on("worker-2"), "--endpoints", f.Node("worker-1").Address()),
			[]string{"version"}, "no request forwarding",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			NewWithT(t).Expect(f.in(t).as(tt.as).fail(tt.nodes, tt.args...)).To(ContainSubstring(tt.prints))
		})
	}
}

// TestOneOfManyIsDown answers for the others, and says which one does not.
func TestOneOfManyIsDown(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "v1.13.6")
	f.Node("worker-2").PowerOff()
	g.Expect(f.run(f.on("worker-1", "worker-2"), "version", "--short")).To(And(
		ContainSubstring("NODE:        "+f.Node("worker-1").Address()),
		ContainSubstring(f.Node("worker-2").Address()+": rpc error: code = Unavailable"),
	))
}

func TestKubeconfig(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "v1.13.6")
	path := filepath.Join(t.TempDir(), "kubeconfig")
	f.run(f.on("cp-2"), "kubeconfig", "--merge=false", path)
	content, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(content)).To(ContainSubstring(f.Endpoint()))
}

// TestEtcdSnapshot has the client check a snapshot with etcd's own code, and notice one that is not whole.
func TestEtcdSnapshot(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "v1.13.6")
	path := filepath.Join(t.TempDir(), "db")
	g.Expect(f.run(f.on("cp-2"), "etcd", "snapshot", path)).To(MatchRegexp(`snapshot info: hash [0-9a-f]{8}, revision 1[0-9]{3}, total keys [1-9][0-9]+, total size [0-9]+`))
	g.Expect(f.entry("cp-2", "MachineService/EtcdSnapshot").Code).To(Equal("OK"))

	for mode, says := range map[string]string{"cut": "error reading from server: EOF", "short": "sha256 checksum not found"} { // It compares no hash: a byte that is another one is found by who restores.
		_, err := f.sim.Inject(fault.Fault{Name: fault.EtcdSnapshot, Node: "cp-2", Times: 1, Params: map[string]string{fault.ParamMode: mode}})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(f.fail(f.on("cp-2"), "etcd", "snapshot", filepath.Join(t.TempDir(), "db"))).To(ContainSubstring(says), mode)
	}
}

func TestForfeitLeadership(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "v1.13.6")
	leader := f.Leader().Name()
	f.run(f.on(leader), "etcd", "forfeit-leadership")
	g.Expect(f.Leader().Name()).NotTo(Equal(leader))
	g.Expect(f.entry(leader, "MachineService/EtcdForfeitLeadership").Code).To(Equal("OK"))
}

func TestRestartKubelet(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "v1.13.6")
	before := f.Node("worker-1").State().BootID
	g.Expect(f.run(f.on("worker-1"), "service", "kubelet", "restart")).To(ContainSubstring(`Service "kubelet" restarted`))
	g.Expect(f.entry("worker-1", "MachineService/ServiceRestart").Arguments).To(HaveKeyWithValue("service", "kubelet"))
	g.Eventually(func() string { return f.run(f.on("worker-1"), "get", "machinestatus") }).Should(ContainSubstring("true"))
	g.Expect(f.Node("worker-1").State().BootID).To(Equal(before))
}

// TestHealth runs the client's own checks, and the shorter list of the server.
func TestHealth(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "v1.13.6")
	out := f.run(f.on("cp-1"), "health", "--server=false", "--wait-timeout", "20s")
	for _, check := range []string{
		"etcd members to be consistent across nodes", "all nodes memory sizes", "all nodes disk sizes", "no diagnostics",
		"all nodes to finish boot sequence", "all control plane components to be ready", "kube-proxy to report ready",
		"coredns to report ready", "all k8s nodes to report schedulable",
	} {
		g.Expect(out).To(ContainSubstring("waiting for %s: OK", check))
	}
	g.Expect(f.run(f.on("cp-1"), "health", "--wait-timeout", "20s")).To(ContainSubstring("waiting for all nodes to finish boot sequence: OK"))

	f.Node("worker-2").PowerOff()
	g.Expect(f.fail(f.on("cp-1"), "health", "--wait-timeout", "1s")).To(ContainSubstring(`waiting for apid to be ready: not on nodes ["worker-2"]`))
	g.Expect(f.fail(f.on("cp-1"), "health", "--server=false", "--wait-timeout", "1s")).To(ContainSubstring(f.Node("worker-2").Address()))
	g.Expect(f.sim.Journal().Entries(journal.Filter{Method: "ClusterService/HealthCheck"})).To(HaveLen(2))
}
