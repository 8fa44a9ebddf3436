// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// from is a machine that joins a cluster whose model has a config.
func from(model []byte) Joining {
	return Joining{Model: model, Own: []string{"10.0.0.7", "cp-1"}, Hostname: "cp-4", Disk: "/dev/vda", Image: installer}
}

func namedPatch(name, patch string) []v1alpha1.MachineConfigPatch {
	return []v1alpha1.MachineConfigPatch{{Name: name, Patch: patch}}
}

// The first control plane of old clusters is an init machine: the next one with such a config would begin an etcd of its own, with the secrets
// of the cluster.
func TestJoinBeginsNoEtcd(t *testing.T) {
	for _, version := range []string{v12, v13, v14} {
		g := NewWithT(t)
		model := []byte(strings.Replace(string(generated(t, version, machine.TypeControlPlane)), "type: controlplane", "type: init", 1))
		g.Expect(string(model)).To(ContainSubstring("type: init"))
		made, err := Join(from(model))
		g.Expect(err).NotTo(HaveOccurred())
		for _, config := range [][]byte{made.Whole, made.Base} {
			provider, err := Load(config)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(provider.Machine().Type()).To(Equal(machine.TypeControlPlane), version)
		}
		for _, args := range []string{"initial-cluster: \"cp-1=https://10.0.0.1:2380\"", "initial-cluster-token: t"} {
			_, err = Join(from(with(t, generated(t, version, machine.TypeControlPlane), "cluster: {etcd: {extraArgs: {"+args+"}}}")))
			g.Expect(err).To(MatchError(ContainSubstring("cluster.etcd.extraArgs.initial-cluster")), version)
		}
	}
}

// A patch that is for the model alone, or that is taken away one day, is none of the base of who joins.
func TestJoinTakesTheBaseOfTheModel(t *testing.T) {
	for _, version := range []string{v12, v13, v14} {
		g := NewWithT(t)
		base := generated(t, version, machine.TypeWorker)
		old, _ := anAuthority(g)
		have, err := ReadAuthorities(base, v1alpha1.TalosCA)
		g.Expect(err).NotTo(HaveOccurred())
		model, err := WithAuthorities(with(t, with(t, base, "machine: {sysctls: {for.all: \"1\"}}"), "machine: {sysctls: {for.model: \"1\"}}"), v1alpha1.TalosCA, have.Accepting(old))
		g.Expect(err).NotTo(HaveOccurred())
		in := from(model)
		in.Base, in.Patches = base, namedPatch("a", "machine: {sysctls: {for.all: \"2\"}}")
		made, err := Join(in)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(made.Base)).NotTo(ContainSubstring("for."))
		g.Expect(string(made.Whole)).To(And(ContainSubstring("for.all"), Not(ContainSubstring("for.model"))))
		accepted, err := ReadAuthorities(made.Whole, v1alpha1.TalosCA)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(accepted.Accepts(old)).To(BeTrue(), "keys are those in force")
		in.Base = nil
		made, err = Join(in)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(made.Whole)).To(ContainSubstring("for.model"), "nobody knows better")
	}
}

// What names the model, or is one machine's own by its nature, goes to no other one. A patch for the new machine says what it shall be there.
func TestJoinRefusesWhatIsTheModels(t *testing.T) {
	for patch, field := range map[string]string{
		"machine: {kubelet: {extraArgs: {provider-id: \"cloud:///i-1\"}}}":                            "machine.kubelet.extraArgs.provider-id is one machine's own",
		"machine: {kubelet: {extraArgs: {node-ip: 192.168.0.3}}}":                                     "machine.kubelet.extraArgs.node-ip",
		"machine: {kubelet: {nodeIP: {validSubnets: [10.0.0.7/32]}}}":                                 "machine.kubelet.nodeIP.validSubnets[0] names 10.0.0.7",
		"cluster: {apiServer: {extraArgs: {advertise-address: 192.168.0.3}}}":                         "cluster.apiServer.extraArgs.advertise-address",
		"cluster: {etcd: {extraArgs: {listen-metrics-urls: \"http://10.0.0.7:2381\"}}}":               "cluster.etcd.extraArgs.listen-metrics-urls names 10.0.0.7",
		"cluster: {etcd: {extraArgs: {advertise-client-urls: \"https://192.168.0.3:2379\"}}}":         "cluster.etcd.extraArgs.advertise-client-urls",
		"machine: {files: [{path: /var/a, op: create, permissions: 0o600, content: \"I am cp-1.\"}]}": "machine.files[0].content names cp-1",
		"apiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: nut\nenvironment: [HOST=cp-1]":     "ExtensionServiceConfig nut environment[0] names cp-1",
	} {
		t.Run(field, func(t *testing.T) {
			g := NewWithT(t)
			plain := generated(t, v13, machine.TypeControlPlane)
			model := with(t, plain, patch)
			_, err := Join(from(model))
			g.Expect(err).To(MatchError(ContainSubstring(field)))
			in := from(model)
			in.Siblings = [][]byte{plain}
			_, err = Join(in)
			g.Expect(err).To(HaveOccurred(), "others do without")
			in.Siblings = [][]byte{model, model}
			_, err = Join(in)
			g.Expect(err).NotTo(HaveOccurred(), "all of the role have it")
		})
	}
	g := NewWithT(t)
	in := from(with(t, generated(t, v13, machine.TypeControlPlane), "machine: {kubelet: {extraArgs: {provider-id: \"cloud:///i-1\"}}}"))
	in.Patches = namedPatch("a", "machine: {kubelet: {extraArgs: {provider-id: \"cloud:///i-4\"}}}")
	made, err := Join(in)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(made.Whole)).To(And(ContainSubstring("i-4"), Not(ContainSubstring("i-1"))))
}

// A cluster of one control plane has its address in the endpoint, and other fields speak of the whole cluster.
func TestJoinKeepsWhatIsTheClusters(t *testing.T) {
	for _, version := range []string{v12, v13, v14} {
		g := NewWithT(t)
		model := with(t, generated(t, version, machine.TypeControlPlane), "cluster: {etcd: {extraArgs: {listen-metrics-urls: \"http://0.0.0.0:2381\"}}}")
		audience := "cluster: {apiServer: {extraArgs: {api-audiences: \"https://10.0.0.1:6443\"}}}"
		if version == v14 {
			audience = "apiVersion: v1alpha1\nkind: KubeAPIServerConfig\nextraArgs: {api-audiences: \"https://10.0.0.1:6443\"}"
		}
		model = with(t, model, audience)
		model = with(t, model, "machine: {network: {extraHostEntries: [{ip: 10.0.0.1, aliases: [registry]}]}}")
		in := from(model)
		in.Own = []string{"10.0.0.1", "controlplane"}
		made, err := Join(in)
		g.Expect(err).NotTo(HaveOccurred(), version)
		g.Expect(string(made.Whole)).To(And(ContainSubstring("https://10.0.0.1:6443"), ContainSubstring("listen-metrics-urls"), ContainSubstring("registry")))
	}
}

func TestMentioned(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.7": "10.0.0.7", "https://10.0.0.7:2379": "10.0.0.7", "a,10.0.0.7/32": "10.0.0.7", "at 10.0.0.7.": "10.0.0.7", "cp-1.example.com": "cp-1", "[fd00::7]:2380": "fd00::7",
		"10.0.0.70": "", "110.0.0.7": "", "10.0.0.7.1": "", "cp-10": "", "my-cp-1": "", "fd00::7:1": "", "1fd00::7": "", "": "",
		"10.0.0.70 10.0.0.7": "10.0.0.7",
	} {
		NewWithT(t).Expect(mentioned(text, []string{"10.0.0.7", "", "cp-1", "fd00::7"})).To(Equal(want), text)
	}
}

// Volumes on a disk that only the model has stay there, and so does a virtual IP, which goes with its network. What is left behind is told.
func TestJoinLeavesDisksAndVirtualIPs(t *testing.T) {
	g := NewWithT(t)
	plain := generated(t, v13, machine.TypeControlPlane)
	model := with(t, plain, "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: data\nprovisioning: {diskSelector: {match: disk.serial == 'SER-IAL'}, minSize: 1GiB}")
	model = with(t, model, "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: fast\nprovisioning: {diskSelector: {match: disk.transport == 'nvme'}, minSize: 1GiB}")
	model = with(t, model, "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nprovisioning: {diskSelector: {match: disk.wwid == 'WW-ID'}, maxSize: 40GiB}")
	model = with(t, model, "apiVersion: v1alpha1\nkind: Layer2VIPConfig\nname: 10.0.0.100\nlink: eth0")
	made, err := Join(from(model))
	g.Expect(err).NotTo(HaveOccurred())
	text := string(made.Whole)
	g.Expect(text).NotTo(Or(ContainSubstring("SER-IAL"), ContainSubstring("WW-ID"), ContainSubstring("10.0.0.100")))
	g.Expect(text).To(And(ContainSubstring("name: fast"), ContainSubstring("maxSize: 40GiB")))
	g.Expect(made.Left).To(Equal([]string{"UserVolumeConfig data", "the disk of VolumeConfig EPHEMERAL", "virtual IP 10.0.0.100"}))
	in := from(model)
	in.Siblings = [][]byte{model}
	made, err = Join(in)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(made.Whole)).To(And(ContainSubstring("SER-IAL"), ContainSubstring("WW-ID")), "all of the role have it")
}

// A first worker has to pull its images where the control planes do, with the same proxy, time and trust.
func TestFirstWorkerKnowsItsSurroundings(t *testing.T) {
	for _, version := range []string{v12, v13, v14} {
		g := NewWithT(t)
		model := generated(t, version, machine.TypeControlPlane)
		for _, patch := range []string{
			"machine: {env: {https_proxy: \"http://proxy.example:3128\"}, time: {servers: [time.example]}}",
			"apiVersion: v1alpha1\nkind: TrustedRootsConfig\nname: ours\ncertificates: |\n  -----BEGIN CERTIFICATE-----\n  -----END CERTIFICATE-----",
		} {
			model = with(t, model, patch)
		}
		if version == v14 {
			model = with(t, model, "apiVersion: v1alpha1\nkind: RegistryMirrorConfig\nname: docker.io\nendpoints: [{url: \"https://mirror.example\"}]")
		} else {
			model = with(t, model, "machine: {registries: {mirrors: {docker.io: {endpoints: [\"https://mirror.example\"]}}}}")
			model = with(t, model, "cluster: {discovery: {enabled: false}}")
		}
		worker, err := FirstWorker(model, version)
		g.Expect(err).NotTo(HaveOccurred())
		made, err := Join(Joining{Model: worker, Disk: "/dev/vda", Image: installer})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(made.Whole)).To(And(ContainSubstring("proxy.example"), ContainSubstring("time.example"), ContainSubstring("mirror.example"), ContainSubstring("name: ours")))
		provider, err := Load(made.Whole)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(provider.Machine().Type()).To(Equal(machine.TypeWorker))
		if version != v14 {
			g.Expect(provider.Cluster().Discovery().Enabled()).To(BeFalse())
		}
	}
}
