// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

const unknownDocument = "apiVersion: v1alpha2\nkind: FutureConfig # Of a Talos that is to come.\nname:   one\nthings: [ {a: 1},  {b: 0x2} ]\n"

// Both forms of configs take the same patches, and what is asked for already is left as it is, to the byte.
func TestRender(t *testing.T) {
	for _, version := range []string{v12, v13, v14} {
		for _, role := range []machine.Type{machine.TypeControlPlane, machine.TypeWorker} {
			t.Run(version+" "+role.String(), func(t *testing.T) {
				g := NewWithT(t)
				config := generated(t, version, role)
				g.Expect(Render(input(config, version))).To(Equal(config), "without patches it is what it is, comments included")

				in := input(config, version, "machine:\n  sysctls:\n    net.ipv4.ip_forward: \"1\"\n", "apiVersion: v1alpha1\nkind: WatchdogTimerConfig\ndevice: /dev/watchdog0\ntimeout: 2m\n")
				made, err := Render(in)
				g.Expect(err).NotTo(HaveOccurred())
				provider, err := configloader.NewFromBytes(made)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(provider.Machine().Type()).To(Equal(role))
				g.Expect(uncommented(made)).To(ContainSubstring("    sysctls:\n        net.ipv4.ip_forward: \"1\""))
				g.Expect(string(made)).To(ContainSubstring("kind: WatchdogTimerConfig"))

				after := applied(t, in)
				g.Expect(Render(after)).To(Equal(after.Active), "it is there, so nothing is to do")
				g.Expect(Compare(after)).To(And(HaveField("Effect", v1alpha1.ConfigEffectNone), HaveField("Diff", BeEmpty()), HaveField("Pending", BeEmpty())))
			})
		}
	}
}

// What the patches of a cluster no longer say is as it was before: the base has it.
func TestPatchThatIsTakenAway(t *testing.T) {
	g := NewWithT(t)
	config := generated(t, v13, machine.TypeWorker)
	in := applied(t, input(config, v13, "machine:\n  certSANs: [node.example]\n"))
	in.Patches = nil
	made, err := Render(in)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(made)).NotTo(ContainSubstring("node.example"))
	g.Expect(Compare(applied(t, in)).Effect).To(Equal(v1alpha1.ConfigEffectNone))
}

// Lists grow by patches; rendering from the base again and again lets them grow once.
func TestPatchesDoNotPileUp(t *testing.T) {
	g := NewWithT(t)
	in := input(generated(t, v14, machine.TypeControlPlane), v14, "machine:\n  certSANs: [node.example]\n")
	first := applied(t, in)
	second := applied(t, first)
	g.Expect(second.Active).To(Equal(first.Active))
	g.Expect(strings.Count(string(second.Active), "node.example")).To(Equal(1))
}

// A newer Talos may have documents that this hub does not read. They are carried along, byte for byte.
func TestUnknownDocuments(t *testing.T) {
	g := NewWithT(t)
	config := append(generated(t, v14, machine.TypeWorker), []byte("---\n"+unknownDocument)...)
	in := input(config, v14, "machine:\n  sysctls:\n    vm.swappiness: \"1\"\n")
	made, err := Render(in)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(made)).To(ContainSubstring("---\n" + unknownDocument))
	g.Expect(Compare(in)).To(And(HaveField("Effect", v1alpha1.ConfigEffectLive), HaveField("Diff", Not(ContainSubstring("+kind: FutureConfig")))))
	g.Expect(Compare(applied(t, in)).Effect).To(Equal(v1alpha1.ConfigEffectNone))

	_, err = Render(input(config, v14, unknownDocument))
	g.Expect(err).To(MatchError(`patch "a": this hub does not know documents of kind "FutureConfig": upgrade the hub`))
}

// A JSON patch is what it is for talosctl, and is refused where talosctl refuses it.
func TestJSONPatch(t *testing.T) {
	g := NewWithT(t)
	patch := `[{"op": "add", "path": "/machine/sysctls", "value": {"vm.swappiness": "1"}}]`
	config := single(t, generated(t, v12, machine.TypeWorker))
	made, err := Render(input(config, v12, patch))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(made)).To(ContainSubstring("vm.swappiness"))

	made, err = Render(input(config, v12, "- op: add\n  path: /machine/sysctls\n  value: {vm.swappiness: \"1\"}\n"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(made)).To(ContainSubstring("vm.swappiness"))

	_, err = Render(input(generated(t, v14, machine.TypeWorker), v14, patch))
	g.Expect(err).To(MatchError(MatchRegexp(`^patch "a": it is a JSON patch \(RFC 6902\), which Talos takes for configs of one document only, and this one has \d+: write it as a strategic merge patch$`)))
	_, err = Render(input(append(config, []byte("---\n"+unknownDocument)...), v12, patch))
	g.Expect(err).To(MatchError(ContainSubstring("and this one has 2")), "documents that this hub does not read count as well")
}

// kinds.md 13 #20: versions are changed by operations of their own, so a roll-out follows what the machine runs, whatever the base, which is
// older, and patches say.
func TestVersionsFollowTheMachine(t *testing.T) {
	for _, version := range []string{v13, v14} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			base := generated(t, version, machine.TypeControlPlane)
			now := []byte(strings.NewReplacer(":v1.35.1", ":v1.36.2", "installer/abc:"+version, "installer/abc:v1.15.0").Replace(string(base)))
			g.Expect(now).NotTo(Equal(base))
			in := input(base, version, "machine:\n  sysctls:\n    vm.swappiness: \"1\"\n")
			in.Active, in.Persistent = now, now
			made, err := Render(in)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(made)).NotTo(Or(ContainSubstring("1.35.1"), ContainSubstring("abc:"+version)))
			g.Expect(strings.Count(string(made), ":v1.36.2")).To(Equal(strings.Count(uncommented(now), ":v1.36.2")))
			g.Expect(Compare(in).Diff).NotTo(Or(MatchRegexp(`(?m)^[-+] +image:`), ContainSubstring("# not changed")), "an old base is nobody's wish")

			in.Patches = append(in.Patches, v1alpha1.MachineConfigPatch{Name: "v", Patch: "machine:\n  install:\n    image: mirror.example/installer:v1.0.0\n"})
			c := Compare(in)
			if version == v14 {
				g.Expect(c.Trouble + c.Diff).To(Or(ContainSubstring("# not changed by a roll-out, whatever patches say: machine.install.image"), ContainSubstring("install")))
				return
			}
			g.Expect(c.Diff).To(HavePrefix("# not changed by a roll-out, whatever patches say: machine.install.image\n"))
			g.Expect(c.Diff).NotTo(ContainSubstring("mirror.example"))
		})
	}
}

// uncommented is a config without its comments.
func uncommented(config []byte) string {
	documents, err := split(config)
	if err != nil {
		panic(err)
	}
	made, err := normal(documents)
	if err != nil {
		panic(err)
	}
	return string(join(made))
}

// A rotation changes keys and authorities on the machines. A roll-out from a base that is older must not bring the old ones back.
func TestKeysFollowTheMachine(t *testing.T) {
	for _, version := range []string{v13, v14} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			base := generated(t, version, machine.TypeControlPlane)
			rotated := []byte(strings.ReplaceAll(string(base), bundle().TrustdInfo.Token, "abcdef.0123456789abcdef"))
			in := input(base, version, "machine:\n  sysctls:\n    vm.swappiness: \"1\"\n", "machine:\n  token: evil.token\n")
			in.Active, in.Persistent = rotated, rotated
			made, err := Render(in)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(made)).To(ContainSubstring("abcdef.0123456789abcdef"))
			g.Expect(string(made)).NotTo(Or(ContainSubstring(bundle().TrustdInfo.Token), ContainSubstring("evil")))
			g.Expect(Compare(in).Diff).To(ContainSubstring("whatever patches say: machine.token"))
		})
	}
}

// Case C12: what the version of Talos that runs would refuse is refused before any machine is touched.
func TestCaseC12ConfigIsValidated(t *testing.T) {
	for name, row := range map[string]struct {
		version, patch, want string
	}{
		"a document that is too new": {v13, "apiVersion: v1alpha1\nkind: SysctlConfig\nparams:\n  a: b\n", "needs Talos v1.14, and the machine runs v1.13.6"},
		"a value that is not valid":  {v14, "cluster:\n  network:\n    dnsDomain: \"\"\n    podSubnets: [nonsense]\n", ""},
		"a field that is not known":  {v14, "machine:\n  sysctl:\n    secretValue: hunter2hunter2\n", "unknown fields: machine.sysctl"},
		"a patch that is no patch":   {v14, "just words", "it is neither a strategic merge patch nor a JSON patch"},
		"a patch that is not YAML":   {v14, "a: [", "it is not YAML"},
		"a list where a map belongs": {v14, "machine:\n  sysctls: [hunter2hunter2]\n", "patch \"a\""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := Compare(input(generated(t, row.version, machine.TypeControlPlane), row.version, row.patch))
			if row.want == "" {
				g.Expect(c.Trouble).To(HavePrefix("refused by Talos: "))
			}
			g.Expect(c.Trouble).To(ContainSubstring(row.want))
			g.Expect(c.Trouble).NotTo(ContainSubstring("hunter2"))
			g.Expect(c.Effect).To(BeEmpty(), "nobody knows")
			g.Expect(len(c.Trouble)).To(BeNumerically("<=", 256))
		})
	}
}

func TestPatchesOfMachines(t *testing.T) {
	g := NewWithT(t)
	cluster := &v1alpha1.TalosCluster{}
	cluster.Spec.MachineConfig = &v1alpha1.MachineConfigSpec{Patches: []v1alpha1.MachineConfigPatch{
		{Name: "all"}, {Name: "cp", Role: v1alpha1.ControlPlaneRole}, {Name: "one", Machines: []string{"c-w1"}},
		{Name: "both", Role: v1alpha1.ControlPlaneRole, Machines: []string{"c-w1", "c-cp1"}},
	}}
	names := func(name string, role v1alpha1.MachineRole) (names []string) {
		machine := &v1alpha1.TalosMachine{}
		machine.Name, machine.Spec.Role = name, role
		for _, patch := range Patches(cluster, machine) {
			names = append(names, patch.Name)
		}
		return names
	}
	g.Expect(names("c-cp1", v1alpha1.ControlPlaneRole)).To(Equal([]string{"all", "cp", "both"}))
	g.Expect(names("c-w1", v1alpha1.WorkerRole)).To(Equal([]string{"all", "one"}))
	g.Expect(names("c-w2", v1alpha1.WorkerRole)).To(Equal([]string{"all"}))
}

// Nothing on a machine tells a trial from a staged config; both are somebody else's, unless it is what is asked for.
func TestPending(t *testing.T) {
	g := NewWithT(t)
	config := generated(t, v13, machine.TypeWorker)
	in := input(config, v13, "machine:\n  sysctls:\n    vm.swappiness: \"1\"\n")
	desired := applied(t, in).Active
	g.Expect(Compare(in).Pending).To(BeEmpty())
	in.Persistent = desired
	g.Expect(Compare(in)).To(And(HaveField("Pending", BeEmpty()), HaveField("Effect", v1alpha1.ConfigEffectLive)), "staged, and what is asked for")
	in.Persistent = applied(t, input(config, v13, "machine:\n  sysctls:\n    vm.swappiness: \"2\"\n")).Active
	g.Expect(Compare(in).Pending).To(Equal(PendingWords))
	in.Active, in.Persistent = desired, config
	g.Expect(Compare(in)).To(And(HaveField("Pending", PendingWords), HaveField("Effect", v1alpha1.ConfigEffectNone)), "tried, and what is asked for")
	g.Expect(len(PendingWords)).To(BeNumerically("<=", 256))
}

// A hash tells configs apart that say something else, and no others.
func TestHash(t *testing.T) {
	g := NewWithT(t)
	a := Hash([]byte("machine:\n  type: worker\n  token: \"x\" # A comment.\n---\nkind: A\nname: b\n---\nkind: C\n"))
	g.Expect(Hash([]byte("---\nkind: C\n--- \nname: b\nkind: 'A'\n---\n# Nothing.\n---\nmachine: {token: x, type: worker}\n"))).To(Equal(a))
	for _, other := range []string{
		"machine:\n  type: worker\n  token: y\n---\nkind: A\nname: b\n---\nkind: C\n",
		"machine:\n  type: worker\n  token: x\n---\nkind: A\nname: b\n",
		"machine:\n  type: worker\n  token: x\n  more: []\n---\nkind: A\nname: b\n---\nkind: C\n",
		"machine:\n  typetoken: workerx\n---\nkind: A\nname: b\n---\nkind: C\n",
	} {
		g.Expect(Hash([]byte(other))).NotTo(Equal(a), other)
	}
	g.Expect(Hash([]byte("a: 1\n"))).NotTo(Equal(Hash([]byte("a: \"1\"\n"))), "a number is no text")
	g.Expect(Hash([]byte("a: ["))).To(HaveLen(64))
	g.Expect(Hash([]byte("a: |\n  text\n  --- not a document\nb: 1\n"))).NotTo(Equal(Hash([]byte("b: 1\n"))))
}

// A few aliases may stand for more than there is memory, or for themselves.
func TestDocumentsThatExplode(t *testing.T) {
	g := NewWithT(t)
	bomb := "a0: &a0 [x]\n"
	for i := range 60 {
		bomb += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	for _, config := range []string{bomb, "a: &a [*a, *a]\n"} {
		_, err := split([]byte(config))
		g.Expect(err).To(MatchError("a document is too large, or contains itself"))
		g.Expect(Hash([]byte(config))).To(HaveLen(64))
	}
}
