// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/kube"
)

// seen is a cluster of one control plane and one worker in which all is well, with its facts.
func seen(t *testing.T) (targets.Facts, probe) {
	t.Helper()
	whole := seeing(answering("10.0.0.1", "ControlPlane", "cp-1", "u1"), answering("10.0.1.1", "Worker", "w-1", "u2"))
	facts := targets.Facts{
		Cluster: &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "c1", Generation: 7, Annotations: map[string]string{
				approvedAt: "2026-01-01T00:00:00Z", v1alpha1.OwnerIDAnnotation: "this-hub",
			},
		}},
		Machines: []v1alpha1.TalosMachine{
			recorded("c1-cp-1", "cp-1", "ControlPlane", "10.0.0.1", "u1"), recorded("c1-w-1", "w-1", "Worker", "10.0.1.1", "u2"),
		},
	}
	for i := range facts.Machines {
		describe(&facts.Machines[i], whole)
	}
	whole.owner.record.OwnerID = "this-hub"
	return facts, whole
}

type state struct {
	status          metav1.ConditionStatus
	reason, message string
}

var (
	unobserved = state{"Unknown", "NotYetObserved", ""}
	noKube     = state{"Unknown", "CredentialsNotUsable", "the kubeconfig cannot be used"}
	noTalos    = state{"Unknown", "CredentialsNotUsable", "the talosconfig cannot be used"}
	available  = state{"True", "Available", ""}
)

const anotherHub = "another hub manages the cluster, under owner ID other; " +
	"forget it there, then take it over with: kubectl annotate taloscluster c1 ichor.maesh.dev/take-over=other"

func notAvailable(why string) state { return state{"False", "NotAvailable", why} }

func silence(p *probe, addresses ...string) {
	for _, address := range addresses {
		p.machines[address] = found{address: address, role: p.machines[address].role, trouble: "no answer"}
	}
}

// Every row names a fault, and what each condition says of it. What a row does not name is as in a cluster in which all is well.
func TestConditions(t *testing.T) {
	well := map[string]state{
		"Available": available, "CredentialsValid": {"True", "Valid", ""}, "KubernetesReachable": {"True", "Reachable", ""},
		"TalosReachable": {"True", "Reachable", ""}, "MachinesDiscovered": {"True", "Discovered", ""}, "EtcdHealthy": {"True", "Healthy", ""},
		"SpecInSync": {"True", "NotDeclared", ""}, "Owned": {"True", "Owned", ""}, "BundleBackupStale": {"False", "Current", ""},
	}
	for name, row := range map[string]struct {
		change func(*targets.Facts, *probe)
		want   map[string]state
	}{
		"another hub manages it": {
			func(_ *targets.Facts, p *probe) { p.owner.record.OwnerID = "other" },
			map[string]state{"Owned": {"False", "OwnedByAnotherHub", anotherHub}, "Available": notAvailable("Owned: " + anotherHub)},
		},
		"all is well": {func(*targets.Facts, *probe) {}, nil},
		"both Secrets are missing": {
			func(_ *targets.Facts, p *probe) {
				*p = probe{
					kubeconfig:  credential{"Missing", "secret default/c1-kubeconfig is missing", true},
					talosconfig: credential{"Missing", "secret default/c1-talosconfig is missing", true},
				}
			},
			map[string]state{
				"Available":           notAvailable("CredentialsValid: secret default/c1-kubeconfig is missing; secret default/c1-talosconfig is missing"),
				"CredentialsValid":    {"False", "Missing", "secret default/c1-kubeconfig is missing; secret default/c1-talosconfig is missing"},
				"KubernetesReachable": noKube, "TalosReachable": noTalos, "MachinesDiscovered": noKube, "EtcdHealthy": noTalos,
				"Owned": {"Unknown", "NotYetObserved", "the hub's record on the cluster has not been read yet"},
			},
		},
		"the talosconfig has expired, and the cluster is well (A10)": {
			func(_ *targets.Facts, p *probe) {
				p.talosconfig, p.machines = credential{"TalosconfigExpired", "talosconfig: ended", true}, nil
				p.kubeconfig = credential{"ExpiringSoon", "kubeconfig: ends", false}
			},
			map[string]state{
				"Available": notAvailable("CredentialsValid: talosconfig: ended; kubeconfig: ends"), "CredentialsValid": {"False", "TalosconfigExpired", "talosconfig: ended; kubeconfig: ends"},
				"TalosReachable": noTalos, "MachinesDiscovered": noTalos, "EtcdHealthy": noTalos,
			},
		},
		"the kubeconfig is rejected (A12)": {
			func(_ *targets.Facts, p *probe) {
				p.kubeconfig, p.nodes = credential{"KubeconfigRejected", "kubeconfig: no", true}, nil
			},
			map[string]state{
				"Available": notAvailable("CredentialsValid: kubeconfig: no"), "CredentialsValid": {"False", "KubeconfigRejected", "kubeconfig: no"},
				"KubernetesReachable": noKube, "MachinesDiscovered": noKube,
			},
		},
		"both end soon (A10)": {
			func(_ *targets.Facts, p *probe) {
				p.kubeconfig, p.talosconfig = credential{"ExpiringSoon", "kubeconfig: ends", false}, credential{"ExpiringSoon", "talosconfig: ends", false}
			},
			map[string]state{"CredentialsValid": {"True", "ExpiringSoon", "kubeconfig: ends; talosconfig: ends"}},
		},
		"two records of one machine (B8)": {
			func(f *targets.Facts, _ *probe) { f.Machines[1].Spec.UUID = "U1" },
			map[string]state{"MachinesDiscovered": {"False", "Duplicate", `c1-cp-1 and c1-w-1 have the same UUID "u1": delete the TalosMachine that is not there any more`}},
		},
		"two records of one machine, and nothing answers (B8)": {
			func(f *targets.Facts, p *probe) {
				f.Machines[1].Status.NodeName = "CP-1"
				p.kubeTrouble, p.nodes = "no answer", nil
			},
			map[string]state{
				"Available": notAvailable("KubernetesReachable: no answer"), "KubernetesReachable": {"False", "NotReachable", "no answer"},
				"MachinesDiscovered": {"False", "Duplicate", `c1-cp-1 and c1-w-1 have the same node name "cp-1": delete the TalosMachine that is not there any more`},
			},
		},
		"two machines of one UUID (B8)": {
			func(_ *targets.Facts, p *probe) {
				clone := answering("10.0.1.2", "Worker", "w-2", "u2")
				clone.facts.BootID = "b2"
				p.machines["10.0.1.2"] = clone
			},
			map[string]state{"MachinesDiscovered": {"False", "Duplicate", `the machines at 10.0.1.1 (w-1) and 10.0.1.2 (w-2) have the same UUID "u2": the hub cannot tell them apart`}},
		},
		"two machines of one name (B7)": {
			func(_ *targets.Facts, p *probe) {
				namesake := answering("10.0.1.2", "Worker", "W-1", "u9")
				namesake.facts.BootID = "b2"
				p.machines["10.0.1.2"] = namesake
			},
			map[string]state{"MachinesDiscovered": {"False", "Duplicate", `the machines at 10.0.1.1 and 10.0.1.2 have the same node name "w-1": rename one of them`}},
		},
		"a Node that runs something else": {
			func(_ *targets.Facts, p *probe) {
				p.nodes = append(p.nodes, kube.Node{Name: "nas", OSImage: "Debian GNU/Linux 13"})
			},
			map[string]state{"MachinesDiscovered": {"True", "Discovered", "left alone, since they do not run Talos: nas (Debian GNU/Linux 13)"}},
		},
		"files of different clusters": {
			func(_ *targets.Facts, p *probe) {
				for i := range p.nodes {
					p.nodes[i].UUID, p.nodes[i].BootID = "another", "another"
				}
			},
			map[string]state{"MachinesDiscovered": {
				"False", "Unmatched", "the kubeconfig and the talosconfig are of different clusters: no Node is a machine that answers",
			}},
		},
		"a UUID that Kubernetes spells otherwise, of the same boot": {
			func(_ *targets.Facts, p *probe) {
				for i := range p.nodes {
					p.nodes[i].UUID, p.nodes[i].BootID = "another", "b1"
				}
			}, nil,
		},
		"no control plane (A17)": {
			func(f *targets.Facts, p *probe) {
				f.Machines, p.machines, p.nodes = f.Machines[1:], map[string]found{"10.0.1.1": p.machines["10.0.1.1"]}, p.nodes[1:]
			},
			map[string]state{
				"MachinesDiscovered": {"False", "Unmatched", "no control plane was found"},
				"EtcdHealthy":        {"False", "NotHealthy", "no control plane is known"},
			},
		},
		"Kubernetes does not answer": {
			func(_ *targets.Facts, p *probe) { p.kubeTrouble, p.nodes = "no answer", nil },
			map[string]state{
				"Available": notAvailable("KubernetesReachable: no answer"), "KubernetesReachable": {"False", "NotReachable", "no answer"},
				"MachinesDiscovered": {"Unknown", "NotYetObserved", "the target does not answer"},
			},
		},
		"Talos does not answer": {
			func(_ *targets.Facts, p *probe) {
				p.talosTrouble = "no answer"
				silence(p, "10.0.0.1", "10.0.1.1")
			},
			map[string]state{
				"Available":          notAvailable("TalosReachable: no answer"),
				"TalosReachable":     {"False", "NotReachable", "no answer"},
				"MachinesDiscovered": {"Unknown", "NotYetObserved", "the target does not answer"},
				"EtcdHealthy":        {"False", "NotHealthy", "the etcd member of c1-cp-1 cannot be asked: no answer"},
			},
		},
		"every machine is silent": {
			func(_ *targets.Facts, p *probe) { silence(p, "10.0.0.1", "10.0.1.1") },
			map[string]state{
				"Available":      notAvailable("TalosReachable: no machine answers"),
				"TalosReachable": {"False", "NotReachable", "no machine answers"},
				"EtcdHealthy":    {"False", "NotHealthy", "the etcd member of c1-cp-1 cannot be asked: no answer"},
			},
		},
		"every machine refuses": {
			func(_ *targets.Facts, p *probe) {
				for _, address := range []string{"10.0.0.1", "10.0.1.1"} {
					p.machines[address] = found{address: address, role: p.machines[address].role, trouble: "PermissionDenied: not authorized"}
				}
			},
			map[string]state{
				"Available":      notAvailable("TalosReachable: no machine answers: 10.0.0.1: PermissionDenied: not authorized"),
				"TalosReachable": {"False", "NotReachable", "no machine answers: 10.0.0.1: PermissionDenied: not authorized"},
				"EtcdHealthy":    {"False", "NotHealthy", "the etcd member of c1-cp-1 cannot be asked: PermissionDenied: not authorized"},
			},
		},
		"no machine was found": {
			func(_ *targets.Facts, p *probe) { p.machines, p.talosTrouble = nil, "no answer" },
			map[string]state{
				"Available":          notAvailable("TalosReachable: no answer"),
				"TalosReachable":     {"False", "NotReachable", "no answer"},
				"MachinesDiscovered": {"Unknown", "NotYetObserved", "the target does not answer"},
				"EtcdHealthy":        {"False", "NotHealthy", "the etcd member of c1-cp-1 has not been asked"},
			},
		},
		"a worker does not answer: the target works": {
			func(_ *targets.Facts, p *probe) { silence(p, "10.0.1.1") },
			map[string]state{"TalosReachable": {"False", "PartlyReachable", "10.0.1.1: no answer"}},
		},
		"an unknown address does not answer": {
			func(_ *targets.Facts, p *probe) { silence(p, "10.0.1.9") },
			map[string]state{
				"TalosReachable":     {"False", "PartlyReachable", "10.0.1.9: no answer"},
				"MachinesDiscovered": {"False", "Unmatched", "the machine at 10.0.1.9 is not known and does not answer: no answer"},
			},
		},
		"a Node without machine": {
			func(f *targets.Facts, _ *probe) { f.Machines[1].Status.NodeName = "another" },
			map[string]state{"MachinesDiscovered": {"False", "Unmatched", `Node "w-1" has no machine`}},
		},
		"a Node without machine, from the beginning": {
			func(f *targets.Facts, _ *probe) {
				f.Machines[1].Status.NodeName = "another"
				delete(f.Cluster.Annotations, approvedAt)
			},
			map[string]state{
				"Available":          notAvailable(`initial discovery: Node "w-1" has no machine`),
				"MachinesDiscovered": {"False", "Unmatched", `Node "w-1" has no machine`},
			},
		},
		"etcd is silent": {
			func(_ *targets.Facts, p *probe) {
				f := p.machines["10.0.0.1"]
				f.etcd, f.etcdTrouble = nil, "no answer"
				p.machines["10.0.0.1"] = f
			},
			map[string]state{"EtcdHealthy": {"False", "NotHealthy", "the etcd member of c1-cp-1 cannot be asked: no answer"}},
		},
		"a control plane that nobody approved does not count": {
			func(f *targets.Facts, _ *probe) { f.Machines[0].Spec.Approval = "Pending" },
			map[string]state{"EtcdHealthy": {"False", "NotHealthy", "no control plane is known"}},
		},
		"the spec asks for what runs": {
			func(f *targets.Facts, _ *probe) { f.Cluster.Spec.TalosVersion = "v1.13.9" },
			map[string]state{"SpecInSync": {"True", "InSync", ""}},
		},
		"the spec asks for more": {
			func(f *targets.Facts, _ *probe) { f.Cluster.Spec.TalosVersion = "v1.14.1" },
			map[string]state{"SpecInSync": {"False", "OutOfSync", "the machines run Talos v1.13.9 and the spec asks for v1.14.1; bring them there with: ichor upgrade talos v1.14.1 --cluster c1"}},
		},
		"the spec asks for what some run": {
			func(f *targets.Facts, _ *probe) {
				f.Cluster.Spec.TalosVersion = "v1.14.1"
				f.Machines[0].Status.TalosVersion = "v1.14.1"
			},
			map[string]state{"SpecInSync": {"False", "OutOfSync", "the machines run Talos v1.13.9, v1.14.1 and the spec asks for v1.14.1; bring them there with: ichor upgrade talos v1.14.1 --cluster c1"}},
		},
		"the spec asks for a version, and nobody has told one": {
			func(f *targets.Facts, _ *probe) {
				f.Cluster.Spec.TalosVersion = "v1.13.9"
				f.Machines[0].Status.TalosVersion, f.Machines[1].Status.TalosVersion = "", ""
			},
			map[string]state{"SpecInSync": {"Unknown", "NotYetObserved", "no machine has told its version"}},
		},
		"the spec asks for what runs, schematic included": {
			func(f *targets.Facts, _ *probe) {
				f.Cluster.Spec.TalosVersion, f.Cluster.Spec.SchematicID = "v1.13.9", "s1"
			},
			map[string]state{"SpecInSync": {"True", "InSync", ""}},
		},
		"the spec asks for a schematic that one machine does not run": {
			func(f *targets.Facts, _ *probe) {
				f.Cluster.Spec.TalosVersion, f.Cluster.Spec.SchematicID = "v1.13.9", "s1"
				f.Machines[1].Status.SchematicID = "s2"
			},
			map[string]state{"SpecInSync": {"False", "OutOfSync", "machines run another schematic than the spec asks for; bring them there with: ichor upgrade talos v1.13.9 --cluster c1"}},
		},
		"a machine that has not told its schematic does not count": {
			func(f *targets.Facts, _ *probe) {
				f.Cluster.Spec.TalosVersion, f.Cluster.Spec.SchematicID = "v1.13.9", "s1"
				f.Machines[1].Status.SchematicID = ""
			},
			map[string]state{"SpecInSync": {"True", "InSync", ""}},
		},
		"the schematic of a machine that nobody approved does not count": {
			func(f *targets.Facts, _ *probe) {
				f.Cluster.Spec.TalosVersion, f.Cluster.Spec.SchematicID = "v1.13.9", "s1"
				f.Machines[1].Status.SchematicID, f.Machines[1].Spec.Approval = "s2", "Pending"
			},
			map[string]state{"SpecInSync": {"True", "InSync", ""}},
		},
		"the spec asks for the Kubernetes that runs": {
			func(f *targets.Facts, p *probe) {
				f.Cluster.Spec.KubernetesVersion = runsKubernetes(f, p, "v1.35.2", "v1.35.2")
			},
			map[string]state{"SpecInSync": {"True", "InSync", ""}},
		},
		"the spec asks for another Kubernetes": {
			func(f *targets.Facts, p *probe) {
				runsKubernetes(f, p, "v1.35.2", "v1.35.2")
				f.Cluster.Spec.KubernetesVersion = "v1.36.1"
			},
			map[string]state{"SpecInSync": {"False", "OutOfSync", "Kubernetes v1.35.2 runs and the spec asks for v1.36.1; bring the cluster there with: ichor upgrade kubernetes v1.36.1 --cluster c1"}},
		},
		"the spec asks for a Kubernetes that kubelets do not run yet": {
			func(f *targets.Facts, p *probe) {
				f.Cluster.Spec.TalosVersion = "v1.13.9"
				f.Cluster.Spec.KubernetesVersion = runsKubernetes(f, p, "v1.36.1", "v1.35.2")
			},
			map[string]state{"SpecInSync": {"False", "OutOfSync", "Kubernetes v1.35.2, v1.36.1 runs and the spec asks for v1.36.1; bring the cluster there with: ichor upgrade kubernetes v1.36.1 --cluster c1"}},
		},
		"another Talos is said first": {
			func(f *targets.Facts, p *probe) {
				runsKubernetes(f, p, "v1.35.2", "v1.35.2")
				f.Cluster.Spec.TalosVersion, f.Cluster.Spec.KubernetesVersion = "v1.14.1", "v1.36.1"
			},
			map[string]state{"SpecInSync": {"False", "OutOfSync", "the machines run Talos v1.13.9 and the spec asks for v1.14.1; bring them there with: ichor upgrade talos v1.14.1 --cluster c1"}},
		},
		"the spec asks for a Kubernetes, and nobody has told one": {
			func(f *targets.Facts, p *probe) {
				runsKubernetes(f, p, "", "")
				f.Cluster.Spec.KubernetesVersion = "v1.36.1"
			},
			map[string]state{"SpecInSync": {"Unknown", "NotYetObserved", "nobody has told which Kubernetes runs"}},
		},
		"the spec asks for another version and schematic": {
			func(f *targets.Facts, _ *probe) {
				f.Cluster.Spec.TalosVersion, f.Cluster.Spec.SchematicID = "v1.14.1", "s2"
			},
			map[string]state{"SpecInSync": {"False", "OutOfSync", "the machines run Talos v1.13.9 and the spec asks for v1.14.1; bring them there with: ichor upgrade talos v1.14.1 --cluster c1"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			facts, p := seen(t)
			row.change(&facts, &p)
			summarize(facts, p, true, "")
			conditions := facts.Cluster.Status.Conditions
			g.Expect(conditions).To(HaveLen(len(well)))
			for _, c := range conditions {
				want, named := row.want[c.Type]
				if !named {
					want = well[c.Type]
				}
				g.Expect(state{c.Status, c.Reason, c.Message}).To(Equal(want), c.Type)
				g.Expect(c.ObservedGeneration).To(BeEquivalentTo(7))
			}
			before := facts.Cluster.DeepCopy()
			summarize(facts, p, true, "")
			g.Expect(facts.Cluster.Status).To(Equal(before.Status), "the same probe writes the same status")
		})
	}
}

// Case E8, and worse than saying nothing: to call an outage what somebody has brought about on purpose.
func TestStoppedOnPurpose(t *testing.T) {
	const words = `the cluster was stopped on purpose by TalosOperation "default/off" at 2026-01-02T03:04:05Z`
	for name, row := range map[string]struct {
		power  string
		change func(*probe)
		want   map[string]state
	}{
		"everything is off": {"Stopped", func(p *probe) {
			silence(p, "10.0.0.1", "10.0.1.1")
			p.kubeTrouble = "no answer"
		}, map[string]state{
			"Available": {"False", "Stopped", words}, "KubernetesReachable": {"False", "Stopped", words}, "TalosReachable": {"False", "Stopped", words},
			"EtcdHealthy": {"False", "Stopped", words},
		}},
		"and is being started": {"Starting", func(p *probe) {
			silence(p, "10.0.0.1", "10.0.1.1")
			p.kubeTrouble = "no answer"
		}, map[string]state{"Available": {"False", "Stopped", words}}},
		"is not yet all off": {"Stopping", func(p *probe) {
			silence(p, "10.0.0.1", "10.0.1.1")
			p.kubeTrouble = "no answer"
		}, map[string]state{"KubernetesReachable": {"False", "NotReachable", "no answer"}}},
		"one machine answers that should not": {"Stopped", func(p *probe) {
			silence(p, "10.0.0.1")
			p.kubeTrouble = "no answer"
		}, map[string]state{"Available": {"False", "Stopped", words}, "TalosReachable": {"False", "PartlyReachable", "10.0.0.1: no answer"}}},
		"its credentials are of no use": {"Stopped", func(p *probe) { p.kubeconfig.unusable = true }, map[string]state{"KubernetesReachable": noKube}},
		"it runs":                       {"Stopped", func(*probe) {}, map[string]state{"Available": available}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			facts, p := seen(t)
			facts.Cluster.Annotations[v1alpha1.PowerAnnotation], facts.Cluster.Annotations[v1alpha1.StoppedByAnnotation] = row.power, "default/off"
			facts.Cluster.Annotations[v1alpha1.StoppedAtAnnotation] = "2026-01-02T03:04:05Z"
			row.change(&p)
			summarize(facts, p, true, "")
			for kind, want := range row.want {
				c := meta.FindStatusCondition(facts.Cluster.Status.Conditions, kind)
				g.Expect(state{c.Status, c.Reason, c.Message}).To(Equal(want), kind)
			}
		})
	}
}

// Every condition is there from the first visit, and Unknown is not False. What was observed stays when a look is not fresh.
func TestConditionsBeforeTheFirstLook(t *testing.T) {
	g := NewWithT(t)
	facts, p := seen(t)
	summarize(facts, probe{}, false, "")
	g.Expect(facts.Cluster.Status.Conditions).To(HaveLen(len(conditions)))
	for _, c := range facts.Cluster.Status.Conditions {
		if c.Type == "BundleBackupStale" { // The management cluster alone says so.
			continue
		}
		g.Expect(state{c.Status, c.Reason, c.Message}).To(Equal(unobserved), c.Type)
	}
	summarize(facts, p, true, "")
	before := facts.Cluster.DeepCopy()
	summarize(facts, probe{}, false, "")
	g.Expect(facts.Cluster.Status).To(Equal(before.Status))
}

func TestSummarizeTheRest(t *testing.T) {
	g := NewWithT(t)
	facts, p := seen(t)
	facts.Machines[1].Spec.Approval = "Pending"
	p.nodes[1].Ready = false
	describe(&facts.Machines[1], p)
	summarize(facts, p, true, "ichor-controller/op/default/op-1")
	status := facts.Cluster.Status
	status.Conditions = nil
	g.Expect(status).To(Equal(v1alpha1.TalosClusterStatus{
		ObservedGeneration: 7,
		Initialization:     &v1alpha1.TalosClusterInitialization{Provisioned: ptr.To(true)},
		LockHolder:         "ichor-controller/op/default/op-1",
		TalosVersions:      []string{"v1.13.9"},
		KubernetesVersion:  "v1.35.2",
		EtcdLeader:         "c1-cp-1",
		Machines:           &v1alpha1.MachineCounts{Total: ptr.To(int32(2)), Ready: ptr.To(int32(1)), ControlPlane: ptr.To(int32(1)), PendingApproval: ptr.To(int32(1))},
	}))
}

// What does not answer is kept as it was last seen.
func TestVersionsAndLeaderAreKept(t *testing.T) {
	g := NewWithT(t)
	facts, p := seen(t)
	summarize(facts, p, true, "")
	silence(&p, "10.0.0.1")
	p.kubernetesVersion = ""
	summarize(facts, p, true, "")
	g.Expect(facts.Cluster.Status.EtcdLeader).To(Equal("c1-cp-1"))
	g.Expect(facts.Cluster.Status.KubernetesVersion).To(Equal("v1.35.2"))
	g.Expect(facts.Cluster.Status.TalosVersions).To(Equal([]string{"v1.13.9"}))
}

func TestVersionsAreOrderedAsVersions(t *testing.T) {
	g := NewWithT(t)
	facts := targets.Facts{Cluster: &v1alpha1.TalosCluster{}}
	for _, version := range []string{"v1.14.10", "v1.9.5", "", "v1.14.9", "v1.14.10", "v1.14.0-rc.1"} {
		machine := v1alpha1.TalosMachine{Status: v1alpha1.TalosMachineStatus{TalosVersion: version}}
		facts.Machines = append(facts.Machines, machine)
	}
	setVersions(facts, probe{})
	g.Expect(facts.Cluster.Status.TalosVersions).To(Equal([]string{"v1.9.5", "v1.14.0-rc.1", "v1.14.9", "v1.14.10"}))
}

func TestReadyMachinesAreCounted(t *testing.T) {
	g := NewWithT(t)
	facts, _ := seen(t)
	meta.RemoveStatusCondition(&facts.Machines[0].Status.Conditions, "Ready")
	countMachines(facts)
	g.Expect(facts.Cluster.Status.Machines.Ready).To(HaveValue(BeEquivalentTo(1)))
}

// runsKubernetes makes API server and kubelets run versions, and returns that of the API server.
func runsKubernetes(f *targets.Facts, p *probe, server, kubelets string) string {
	f.Cluster.Status.KubernetesVersion, p.kubernetesVersion = server, server
	for i := range f.Machines {
		f.Machines[i].Status.KubeletVersion = kubelets
	}
	return server
}
