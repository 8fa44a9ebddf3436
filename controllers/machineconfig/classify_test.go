// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// kinds.md 6.1: what needs a reboot, what does not, and what waits for an upgrade.
func TestEffects(t *testing.T) {
	const (
		none = v1alpha1.ConfigEffectNone
	)
	for _, row := range []struct {
		name, patch string
		before, v14 v1alpha1.ConfigEffect
	}{
		{"nothing", "machine: {}\n", none, none},
		{"sysctl", "machine:\n  sysctls: {a: b}\n", live, live},
		{"arguments of the API server", "cluster:\n  apiServer:\n    extraArgs: {v: \"4\"}\n", live, ""},
		{"arguments of etcd", "cluster:\n  etcd:\n    extraArgs: {election-timeout: \"5000\"}\n", reboot, reboot},
		{"environment", "machine:\n  env: {http_proxy: \"http://proxy.example\"}\n", reboot, reboot},
		{"files", "machine:\n  files:\n    - {path: /var/x, op: create, content: abc, permissions: 0o600}\n", reboot, reboot},
		{"a module more", "machine:\n  kernel:\n    modules: [{name: br_netfilter}]\n", live, live},
		{"volume encryption", "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nencryption:\n  provider: luks2\n  keys: [{slot: 0, nodeID: {}}]\n", reboot, reboot},
		{"installation", "machine:\n  install:\n    disk: /dev/vdb\n", upgrade, ""},
		{"installation and sysctl", "machine:\n  sysctls: {a: b}\n  install: {disk: /dev/vdb}\n", live, ""},
		{"sysctl and etcd", "machine:\n  sysctls: {a: b}\ncluster:\n  etcd:\n    extraArgs: {election-timeout: \"5000\"}\n", reboot, reboot},
		{"how to sign in at a registry", "apiVersion: v1alpha1\nkind: RegistryAuthConfig\nname: r.example\nusername: u\npassword: p\n", reboot, live},
		{"a watchdog", "apiVersion: v1alpha1\nkind: WatchdogTimerConfig\ndevice: /dev/watchdog0\ntimeout: 2m\n", live, live},
		{"a document that nobody has classified", "apiVersion: v1alpha1\nkind: PCIDriverRebindConfig\nname: \"0000:04:00.00\"\ntargetDriver: vfio-pci\n", reboot, reboot},
	} {
		for version, want := range map[string]v1alpha1.ConfigEffect{v13: row.before, v14: row.v14} {
			if want == "" {
				continue // Its config has another form there.
			}
			t.Run(row.name+" "+version, func(t *testing.T) {
				g := NewWithT(t)
				c := Compare(input(generated(t, version, machine.TypeControlPlane), version, row.patch))
				g.Expect(c.Trouble).To(BeEmpty())
				g.Expect(c.Effect).To(Equal(want))
			})
		}
	}
}

// The documents of 1.14 are as live as the fields that they replace.
func TestEffectsOfDocuments(t *testing.T) {
	for patch, want := range map[string]v1alpha1.ConfigEffect{
		"apiVersion: v1alpha1\nkind: KubeAPIServerConfig\nextraArgs: {v: [\"4\"]}\n":                  live,
		"apiVersion: v1alpha1\nkind: SysctlConfig\nparams: {a: b}\n":                                  live,
		"apiVersion: v1alpha1\nkind: EnvironmentConfig\nvariables: {A: b}\n":                          reboot,
		"apiVersion: v1alpha1\nkind: EtcFileConfig\nname: motd\ncontents: hello\nmode: 0o644\n":       reboot,
		"apiVersion: v1alpha1\nkind: KernelModuleConfig\nname: br_netfilter\nparameters: [\"a=b\"]\n": live,
	} {
		t.Run(patch, func(t *testing.T) {
			g := NewWithT(t)
			c := Compare(input(generated(t, v14, machine.TypeControlPlane), v14, patch))
			g.Expect(c.Trouble).To(BeEmpty())
			g.Expect(c.Effect).To(Equal(want))
		})
	}
}

// A module that is taken away stays until the next boot; a version that nobody knows is an old one.
func TestClassify(t *testing.T) {
	g := NewWithT(t)
	at := path{}.key("machine").key("kernel").key("modules").index(0).key("name")
	g.Expect(classify(change{kind: mainKind, path: at, what: removed}, 14)).To(Equal(reboot))
	g.Expect(classify(change{kind: mainKind, path: at, what: changed}, 14)).To(Equal(reboot))
	g.Expect(classify(change{kind: "FutureConfig", path: path{}.key("x"), what: added}, 20)).To(Equal(reboot))
	g.Expect(classify(change{kind: "RegistryAuthConfig", path: path{}.key("auth"), what: added}, minorOf("weekly"))).To(Equal(reboot))
	g.Expect(minorOf("v2.1.0")).To(BeZero())
}
