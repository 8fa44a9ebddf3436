// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
)

// A diff tells that a secret changes, and not what it is.
func TestSecretsInDiffs(t *testing.T) {
	for name, patch := range map[string]string{
		"registry":            "machine:\n  registries:\n    config:\n      r.example:\n        auth: {username: uuuser, password: hunter2hunter2, identityToken: hunter2hunter2}\n",
		"registry document":   "apiVersion: v1alpha1\nkind: RegistryAuthConfig\nname: r.example\nusername: someone\npassword: hunter2hunter2\n",
		"environment":         "machine:\n  env: {PASSWORD: hunter2hunter2, OTHER: hunter2hunter2}\n",
		"file":                "machine:\n  files:\n    - {path: /var/x, op: create, content: hunter2hunter2, permissions: 0o600}\n",
		"manifest":            "cluster:\n  inlineManifests:\n    - name: x\n      contents: \"apiVersion: v1\\nkind: Secret\\nmetadata: {name: hunter2hunter2}\\n\"\n",
		"headers of manifest": "cluster:\n  extraManifestHeaders: {Token: hunter2hunter2}\n",
		"volume key":          "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nencryption:\n  provider: luks2\n  keys: [{slot: 0, static: {passphrase: hunter2hunter2}}]\n",
		"extension":           "apiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: x\nenvironment: [AUTH=hunter2hunter2]\nconfigFiles: [{content: hunter2hunter2, mountPath: /etc/x}]\n",
		"address":             "machine:\n  logging:\n    destinations: [{endpoint: \"udp://me:hunter2hunter2@logs.example:12345\", format: json_lines}]\n",
		"argument":            "cluster:\n  apiServer:\n    extraArgs: {oidc-client-secret: hunter2hunter2, event-ttl: 2h}\n",
		"static pod":          "machine:\n  pods:\n    - {apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [{name: x, image: y, env: [{name: A, value: hunter2hunter2}]}]}}\n",
		"kernel":              "machine:\n  install: {extraKernelArgs: [\"siderolink.jointoken=hunter2hunter2\"]}\n",
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			config := single(t, generated(t, v12, machine.TypeControlPlane))
			c := Compare(input(config, v13, patch))
			g.Expect(c.Trouble).To(BeEmpty())
			g.Expect(c.Diff).To(ContainSubstring(Mask))
			g.Expect(c.Diff).NotTo(ContainSubstring("hunter2"))
			g.Expect(leaked(c.Diff)).To(BeEmpty())

			after := applied(t, input(config, v13, patch))
			after.Patches[0].Patch = strings.ReplaceAll(patch, "hunter2hunter2", "correcthorse")
			changed := Compare(after)
			g.Expect(changed.Diff).To(ContainSubstring(MaskChanged))
			g.Expect(changed.Diff).NotTo(Or(ContainSubstring("hunter2"), ContainSubstring("correcthorse")))
		})
	}
}

// What is no secret is told: a diff of masks helps nobody.
func TestWhatIsNotMasked(t *testing.T) {
	g := NewWithT(t)
	diff := Compare(input(generated(t, v13, machine.TypeControlPlane), v13,
		"machine:\n  certSANs: [node.example]\n  sysctls: {vm.swappiness: \"1\"}\n  nodeLabels: {zone: a}\ncluster:\n  apiServer:\n    certSANs: [api.example]\n")).Diff
	g.Expect(diff).To(And(ContainSubstring("+        - node.example"), ContainSubstring("+            - api.example"), ContainSubstring("vm.swappiness: \"1\""), ContainSubstring("zone: a")))
	g.Expect(diff).To(And(HavePrefix("--- in force\n+++ asked for\n")))
}

// Documents that nobody knows are masked by the names of their fields.
func TestMaskOfUnknownDocuments(t *testing.T) {
	g := NewWithT(t)
	config := append(generated(t, v14, machine.TypeWorker), []byte("---\nkind: FutureConfig\nopen: seen\nsharedSecret: hunter2hunter2\nnested: {apiKey: [hunter2hunter2]}\n")...)
	in := input(config, v14)
	in.Active = generated(t, v14, machine.TypeWorker)
	diff := Compare(in).Diff
	g.Expect(diff).To(And(ContainSubstring("+open: seen"), ContainSubstring("+sharedSecret: (secret)"), Not(ContainSubstring("hunter2"))))
}

// Whatever a whole config is compared with, none of its secrets is told.
func TestNoSecretOfTheBundleIsTold(t *testing.T) {
	for _, version := range []string{v12, v13, v14} {
		for _, role := range []machine.Type{machine.TypeControlPlane, machine.TypeWorker} {
			g := NewWithT(t)
			documents, err := split(generated(t, version, role))
			g.Expect(err).NotTo(HaveOccurred())
			whole, err := normal(documents)
			g.Expect(err).NotTo(HaveOccurred())
			told := text(whole, nil)
			g.Expect(leaked(told)).To(BeEmpty())
			g.Expect(strings.Count(told, Mask)).To(BeNumerically(">=", 3), "something was there to be masked")
			g.Expect(leaked(string(join(whole)))).NotTo(BeEmpty(), "and the test would see it")
		}
	}
}

func TestLongDiff(t *testing.T) {
	g := NewWithT(t)
	long := cut(strings.Repeat("+ é line that is long enough\n", 3000))
	g.Expect(len(long)).To(BeNumerically("<=", 32768))
	g.Expect(long).To(MatchRegexp(`\n# and \d+ lines more\n$`))
	g.Expect(cut("short\n")).To(Equal("short\n"))
}

// What a machine answers may repeat the config that it was given.
func TestCleaned(t *testing.T) {
	g := NewWithT(t)
	config := generated(t, v13, machine.TypeControlPlane)
	g.Expect(Cleaned("this config change can't be applied in immediate mode\ndiff:\n+ token: "+bundle().TrustdInfo.Token, config)).To(
		Equal("this config change can't be applied in immediate mode"))
	g.Expect(leaked(Cleaned("no "+bundle().Cluster.Secret+" is right", config))).To(BeEmpty())
	g.Expect(Cleaned("anything", []byte("a: ["))).To(Equal("the machine does not take the config"))
}

// FuzzCompare: whatever patches, bases and versions are, no secret of a cluster is told, and nothing panics.
func FuzzCompare(f *testing.F) {
	f.Add("machine:\n  sysctls: {a: b}\n", v13, 0, true)
	f.Add("machine:\n  token: x\n  ca: {key: eA==}\n", v14, 100, true)
	f.Add(`[{"op": "copy", "from": "/machine/token", "path": "/machine/sysctls/a"}]`, v12, 0, true)
	f.Add(`[{"op": "copy", "from": "/cluster/secret", "path": "/machine/nodeLabels/a"}]`, v12, 0, false)
	f.Add(`[{"op": "test", "path": "/machine/token", "value": "x"}]`, v12, 0, true)
	f.Add("$patch: delete\nkind: HostnameConfig\napiVersion: v1alpha1\n", v13, 0, true)
	f.Add("machine:\n  $patch: delete\n", v13, 3000, true)
	f.Add("a: &a [*a]\n", v14, 0, true)
	f.Add("machine: {kubelet: {$patch: delete}}\n---\nkind: X\n", v14, 5000, false)
	configs := map[string][]byte{}
	for _, version := range []string{v12, v13, v14} {
		configs[version] = generated(f, version, machine.TypeControlPlane)
	}
	configs["single"] = single(f, configs[v12])
	f.Fuzz(func(t *testing.T, patch, version string, flip int, intact bool) {
		config, ok := configs[version]
		if !ok {
			config = configs["single"]
		}
		in := input(config, version, patch)
		if !intact && flip >= 0 { // A base that somebody has broken.
			broken := []byte(string(config))
			broken[flip%len(broken)] ^= 0x11
			in.Base = broken
		}
		c := Compare(in)
		if secret := leaked(c.Diff + c.Trouble + c.Pending); secret != "" && !strings.Contains(patch, secret) {
			t.Errorf("told %q", secret)
		}
		if len(c.Trouble) > 600 || len(c.Diff) > 32768 {
			t.Errorf("says too much: %d, %d", len(c.Trouble), len(c.Diff))
		}
		if (c.Effect == "") != (c.Trouble != "") {
			t.Errorf("effect %q with trouble %q", c.Effect, c.Trouble)
		}
	})
}

// FuzzHash: any bytes have a hash, and parting them loses nothing.
func FuzzHash(f *testing.F) {
	f.Add([]byte("a: 1\n---\nkind: B\n"))
	f.Add([]byte("--- {a: &x [*x]}\n"))
	f.Add([]byte("? [a]\n: b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(Hash(data)) != 64 {
			t.Error("no hash")
		}
		documents, err := split(data)
		if err != nil {
			return
		}
		again, err := split(join(documents))
		if err != nil || len(again) != len(documents) {
			t.Errorf("%d documents are %d once they are put together: %v", len(documents), len(again), err)
		}
	})
}
