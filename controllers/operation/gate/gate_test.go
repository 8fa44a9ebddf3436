// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// cluster makes what gates judge: a cluster in which all is well. The first control plane, or worker without one, is to go away.
func cluster(controlPlanes, workers int) *Input {
	in := &Input{
		Cluster: &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{"ichor.maesh.dev/members-approved-at": "2026-01-01T00:00:00Z"},
		}},
		View:           View{Nodes: map[string]kube.Node{}, Etcd: map[string]EtcdView{}},
		Entering:       true,
		Away:           map[string]bool{},
		MaxUnavailable: 1,
	}
	var members []talos.EtcdMember
	for i := range controlPlanes {
		members = append(members, talos.EtcdMember{ID: uint64(i + 1), Hostname: fmt.Sprintf("cp-%d", i+1), Started: true})
	}
	for i := range controlPlanes {
		in.add("cp", i+1, "ControlPlane")
		in.View.Etcd[fmt.Sprintf("c1-cp-%d", i+1)] = EtcdView{Etcd: talos.Etcd{MemberID: uint64(i + 1), Leader: 1, RaftTerm: 4, Members: members}}
	}
	for i := range workers {
		in.add("w", i+1, "Worker")
	}
	in.Machine = in.Machines[0]
	return in
}

func (in *Input) add(kind string, number int, role v1alpha1.MachineRole) {
	node := fmt.Sprintf("%s-%d", kind, number)
	in.Machines = append(in.Machines, &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "c1-" + node},
		Spec:       v1alpha1.TalosMachineSpec{Role: role},
		Status:     v1alpha1.TalosMachineStatus{NodeName: node},
	})
	in.View.Nodes[node] = kube.Node{Name: node, Ready: true}
}

func (in *Input) etcd(name string, change func(*EtcdView)) {
	view := in.View.Etcd[name]
	change(&view)
	in.View.Etcd[name] = view
}

func (in *Input) node(name string, change func(*kube.Node)) {
	node := in.View.Nodes[name]
	change(&node)
	in.View.Nodes[name] = node
}

// choose takes the machine of a name as the one that is to go away.
func (in *Input) choose(name string) {
	for _, machine := range in.Machines {
		if machine.Name == name {
			in.Machine = machine
			return
		}
	}
	panic("no machine " + name)
}

type row struct {
	// controlPlanes is 3 and workers 2, unless a row says otherwise.
	controlPlanes, workers int
	change                 func(*Input)
	want                   Wait
}

func run(t *testing.T, rows map[string]row) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			if row.controlPlanes == 0 {
				row.controlPlanes, row.workers = 3, 2
			}
			in := cluster(row.controlPlanes, row.workers)
			if row.change != nil {
				row.change(in)
			}
			NewWithT(t).Expect(Check(*in)).To(Equal(row.want))
		})
	}
}

func TestAllIsWell(t *testing.T) {
	run(t, map[string]row{
		"control plane": {},
		"leader":        {change: func(in *Input) { in.choose("c1-cp-1") }},
		"worker":        {change: func(in *Input) { in.choose("c1-w-2") }},
		"a chosen control plane that is not ready itself": {change: func(in *Input) {
			in.node("cp-1", func(n *kube.Node) { n.Ready = false })
		}},
		"a cordoned control plane carries its load": {change: func(in *Input) {
			in.node("cp-2", func(n *kube.Node) { n.Unschedulable = true })
		}},
	})
}

// Case E8: the first gate that waits names itself and what it waits for.
func TestMachinesDiscoveredAndTargetReachable(t *testing.T) {
	undiscovered := Wait{"MachinesDiscovered", "initial discovery has not matched every etcd member and every Node to a machine yet"}
	run(t, map[string]row{
		"not discovered": {want: undiscovered, change: func(in *Input) { in.Cluster.Annotations = nil }},
		"not discovered comes before not reachable": {want: undiscovered, change: func(in *Input) {
			in.Cluster.Annotations = nil
			in.View.NodesTrouble = "no answer"
		}},
		"its Node is not known": {
			want:   Wait{"MachinesDiscovered", "the Node of c1-cp-1 is not known yet"},
			change: func(in *Input) { in.Machine.Status.NodeName = "" },
		},
		"its Node is not known, of a worker": {
			want: Wait{"MachinesDiscovered", "the Node of c1-w-2 is not known yet"},
			change: func(in *Input) {
				in.choose("c1-w-2")
				in.Machine.Status.NodeName = ""
			},
		},
		"not reachable, for workers too": {
			want: Wait{"TargetReachable", "the Kubernetes API of the cluster cannot be read: no answer"},
			change: func(in *Input) {
				in.choose("c1-w-1")
				in.View.NodesTrouble = "no answer"
			},
		},
	})
}

// Cases B1 and B22: quorum must be there without the machine that goes away.
func TestCaseB1B22Quorum(t *testing.T) {
	for members, down := range map[int]int{1: 0, 2: -1, 3: 0, 4: 0, 5: 0, 7: 0} {
		t.Run(fmt.Sprintf("%d members", members), func(t *testing.T) {
			g := NewWithT(t)
			in := cluster(members, 1)
			wait := Check(*in)
			if down < 0 {
				g.Expect(wait).To(Equal(Wait{"EtcdHealthy", "etcd has 2 members and needs 2 of them"}))
				in.choose("c1-w-1")
				g.Expect(Check(*in)).To(BeZero(), "a worker is none of etcd's business")
				return
			}
			g.Expect(wait).To(BeZero())
		})
	}
	for _, members := range []int{2, 3, 4, 5, 7} {
		t.Run(fmt.Sprintf("%d members, one is down", members), func(t *testing.T) {
			in := cluster(members, 1)
			last := fmt.Sprintf("c1-cp-%d", members)
			in.etcd(last, func(e *EtcdView) { *e = EtcdView{Trouble: "no answer"} })
			NewWithT(t).Expect(Check(*in)).To(Equal(Wait{"EtcdHealthy", "the etcd member of " + last + " cannot be asked: no answer"}))
		})
	}
}

// Cases B2, B3, B14, B17: Node Ready is not enough, etcd must be well on every member, and every member must say so.
func TestCaseB3B14B17EtcdHealthy(t *testing.T) {
	sick := func(message string) Wait { return Wait{"EtcdHealthy", message} }
	run(t, map[string]row{
		"not asked": {want: sick("the etcd member of c1-cp-2 has not been asked"), change: func(in *Input) {
			delete(in.View.Etcd, "c1-cp-2")
		}},
		"chosen member is sick": {want: sick("the etcd member of c1-cp-1 cannot be asked: no answer"), change: func(in *Input) {
			in.etcd("c1-cp-1", func(e *EtcdView) { e.Trouble = "no answer" })
		}},
		"no leader": {want: sick("the etcd member of c1-cp-3 has no leader"), change: func(in *Input) {
			in.etcd("c1-cp-3", func(e *EtcdView) { e.Leader = 0 })
		}},
		"cut off with another leader": {want: sick("the etcd member of c1-cp-3 follows another leader than the others"), change: func(in *Input) {
			in.etcd("c1-cp-3", func(e *EtcdView) { e.Leader = 3 })
		}},
		"says that it is a learner": {want: sick("the etcd member of c1-cp-2 is a learner"), change: func(in *Input) {
			in.etcd("c1-cp-2", func(e *EtcdView) { e.Learner = true })
		}},
		"errors": {want: sick("the etcd member of c1-cp-2 reports corrupt, slow"), change: func(in *Input) {
			in.etcd("c1-cp-2", func(e *EtcdView) { e.Errors = []string{"corrupt", "slow"} })
		}},
		"alarm": {want: sick("etcd has an alarm: NOSPACE on member 0000000000000001"), change: func(in *Input) {
			in.etcd("c1-cp-2", func(e *EtcdView) { e.Alarms = []string{"NOSPACE on member 0000000000000001"} })
		}},
		"knows other members": {want: sick("the etcd member of c1-cp-3 knows other members than the others"), change: func(in *Input) {
			in.etcd("c1-cp-3", func(e *EtcdView) { e.Members = e.Members[:2] })
		}},
		"same members in another order": {change: func(in *Input) {
			in.etcd("c1-cp-3", func(e *EtcdView) { e.Members = []talos.EtcdMember{e.Members[2], e.Members[0], e.Members[1]} })
		}},
		"a member has not started": {want: sick("etcd member 0000000000000009 has not started"), change: func(in *Input) {
			joining(in, talos.EtcdMember{ID: 9})
		}},
		"a member is learning": {want: sick("etcd member new is a learner"), change: func(in *Input) {
			joining(in, talos.EtcdMember{ID: 9, Hostname: "new", Started: true, Learner: true})
		}},
		"a member that nobody approved": {want: sick("etcd has 4 members and the cluster 3 approved control planes"), change: func(in *Input) {
			joining(in, talos.EtcdMember{ID: 9, Hostname: "new", Started: true})
		}},
		"no control plane is known": {want: sick("no control plane is known"), change: func(in *Input) {
			in.Machines = in.Machines[3:]
		}},
	})
}

// joining adds a member to every list.
func joining(in *Input, member talos.EtcdMember) {
	for name := range in.View.Etcd {
		in.etcd(name, func(e *EtcdView) { e.Members = append(e.Members[:3:3], member) })
	}
}

// Case B11: control planes go one at a time, so the others must be ready.
func TestCaseB11ControlPlanesReady(t *testing.T) {
	waits := Wait{"ControlPlanesReady", "control plane c1-cp-2 is not ready"}
	run(t, map[string]row{
		"another is not ready": {want: waits, change: func(in *Input) { in.node("cp-2", func(n *kube.Node) { n.Ready = false }) }},
		"another has no Node":  {want: waits, change: func(in *Input) { delete(in.View.Nodes, "cp-2") }},
		"no matter for a worker": {change: func(in *Input) {
			in.choose("c1-w-1")
			in.node("cp-2", func(n *kube.Node) { n.Ready = false })
		}},
		"workers do not matter": {change: func(in *Input) { in.node("w-1", func(n *kube.Node) { n.Ready = false }) }},
	})
}

func TestWorkersWithinTheBudget(t *testing.T) {
	away := func(count, most int, names string) Wait {
		return Wait{"WorkersAvailable", fmt.Sprintf("%d of at most %d workers are away: %s", count, most, names)}
	}
	chosen := func(change func(*Input)) func(*Input) {
		return func(in *Input) {
			in.choose("c1-w-1")
			change(in)
		}
	}
	notReady := func(n *kube.Node) { n.Ready = false }
	cordoned := func(n *kube.Node) { n.Unschedulable = true }
	run(t, map[string]row{
		"another is not ready": {1, 4, chosen(func(in *Input) { in.node("w-2", notReady) }), away(1, 1, "c1-w-2 (not ready)")},
		"cordoned by others":   {1, 4, chosen(func(in *Input) { in.node("w-3", cordoned) }), away(1, 1, "c1-w-3 (cordoned)")},
		"cordoned by an operation": {1, 4, chosen(func(in *Input) {
			in.node("w-3", func(n *kube.Node) { n.Unschedulable, n.CordonedBy = true, "default/first" })
		}), away(1, 1, `c1-w-3 (cordoned by TalosOperation "default/first")`)},
		"no Node":                       {1, 4, chosen(func(in *Input) { delete(in.View.Nodes, "w-4") }), away(1, 1, "c1-w-4 (no Node)")},
		"in hand, and still looks well": {1, 4, chosen(func(in *Input) { in.Away["c1-w-2"] = true }), away(1, 1, "c1-w-2 (in hand)")},
		"counted once": {1, 4, chosen(func(in *Input) {
			in.MaxUnavailable = 2
			in.Away["c1-w-2"] = true
			in.node("w-2", func(n *kube.Node) { n.Ready, n.Unschedulable = false, true })
		}), Wait{}},
		"within two": {1, 4, chosen(func(in *Input) {
			in.MaxUnavailable = 2
			in.node("w-2", notReady)
		}), Wait{}},
		"beyond two, by name": {1, 4, chosen(func(in *Input) {
			in.MaxUnavailable = 2
			in.node("w-4", notReady)
			in.node("w-2", cordoned)
		}), away(2, 2, "c1-w-2 (cordoned), c1-w-4 (not ready)")},
		"not against itself": {1, 4, chosen(func(in *Input) {
			in.node("w-1", func(n *kube.Node) { n.Ready, n.Unschedulable = false, true })
			in.Away["c1-w-1"] = true
		}), Wait{}},
		"control planes do not count":   {3, 4, chosen(func(in *Input) { in.node("cp-1", notReady) }), Wait{}},
		"no matter for a control plane": {3, 4, func(in *Input) { in.node("w-2", notReady) }, Wait{}},
		"no matter once it is drained": {1, 4, chosen(func(in *Input) {
			in.Entering = false
			in.node("w-1", cordoned)
			in.node("w-2", notReady)
			in.Away["c1-w-3"] = true
		}), Wait{}},
	})
}

// Who leaves etcd alone needs it well, and not more members than there are.
func TestKeepsEtcd(t *testing.T) {
	keeps := func(change func(*Input)) func(*Input) {
		return func(in *Input) {
			in.Stage.KeepsEtcd = true
			change(in)
		}
	}
	run(t, map[string]row{
		"two members":        {2, 1, keeps(func(*Input) {}), Wait{}},
		"two, and one to go": {2, 1, func(*Input) {}, Wait{"EtcdHealthy", "etcd has 2 members and needs 2 of them"}},
		"one is a learner": {3, 1, keeps(func(in *Input) {
			in.etcd("c1-cp-2", func(e *EtcdView) { e.Learner = true })
		}), Wait{"EtcdHealthy", "the etcd member of c1-cp-2 is a learner"}},
	})
}

// The budget is about who may begin. All other gates are asked again before the reboot.
func TestBeforeTheReboot(t *testing.T) {
	entered := func(change func(*Input)) func(*Input) {
		return func(in *Input) {
			in.Entering = false
			change(in)
		}
	}
	run(t, map[string]row{
		"all is well": {change: entered(func(*Input) {})},
		"not discovered": {
			change: entered(func(in *Input) { in.Cluster.Annotations = nil }),
			want:   Wait{"MachinesDiscovered", "initial discovery has not matched every etcd member and every Node to a machine yet"},
		},
		"not reachable": {
			change: entered(func(in *Input) { in.View.NodesTrouble = "no answer" }),
			want:   Wait{"TargetReachable", "the Kubernetes API of the cluster cannot be read: no answer"},
		},
		"not reachable, for a worker": {
			change: entered(func(in *Input) {
				in.choose("c1-w-1")
				in.View.NodesTrouble = "no answer"
			}),
			want: Wait{"TargetReachable", "the Kubernetes API of the cluster cannot be read: no answer"},
		},
		"etcd is sick": {
			change: entered(func(in *Input) { in.etcd("c1-cp-2", func(e *EtcdView) { e.Leader = 0 }) }),
			want:   Wait{"EtcdHealthy", "the etcd member of c1-cp-2 has no leader"},
		},
		"another control plane is not ready": {
			change: entered(func(in *Input) { in.node("cp-2", func(n *kube.Node) { n.Ready = false }) }),
			want:   Wait{"ControlPlanesReady", "control plane c1-cp-2 is not ready"},
		},
	})
}

func TestLeader(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*Input)
		want   string
	}{
		"is known":        {func(*Input) {}, "c1-cp-1"},
		"does not answer": {func(in *Input) { in.etcd("c1-cp-1", func(e *EtcdView) { e.Trouble = "no answer" }) }, ""},
		"is nobody":       {func(in *Input) { in.View.Etcd = map[string]EtcdView{"c1-cp-1": {}} }, ""},
		"is somebody else now": {func(in *Input) {
			for n := range in.View.Etcd {
				in.etcd(n, func(e *EtcdView) { e.Leader = 3 })
			}
		}, "c1-cp-3"},
		"nothing has been seen": {func(in *Input) { in.View = View{} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := cluster(3, 0)
			row.change(in)
			NewWithT(t).Expect(in.View.Leader()).To(Equal(row.want))
		})
	}
}

// Case C14: who says so, with a reason, takes machines away although others are not ready, as where the upgrade mends what keeps them from
// it; and what is bypassed is told. Nobody bypasses the gate of etcd.
func TestCaseC14Overrides(t *testing.T) {
	override := func(in *Input, gates ...string) {
		for _, gate := range gates {
			in.Overrides = append(in.Overrides, v1alpha1.GateOverride{Gate: gate, Reason: "the new version mends it"})
		}
	}
	notReady := func(in *Input, nodes ...string) {
		for _, name := range nodes {
			in.node(name, func(n *kube.Node) { n.Ready = false })
		}
	}
	waitsForWorkers := Wait{"WorkersAvailable", "1 of at most 1 workers are away: c1-w-2 (not ready)"}
	waitsForControlPlanes := Wait{"ControlPlanesReady", "control plane c1-cp-2 is not ready"}
	waitsForEtcd := Wait{"EtcdHealthy", "the etcd member of c1-cp-2 is a learner"}
	for name, row := range map[string]struct {
		change   func(*Input)
		want     Wait
		bypassed []Wait
	}{
		"workers":        {func(in *Input) { in.choose("c1-w-1"); notReady(in, "w-2"); override(in, "WorkersAvailable") }, Wait{}, []Wait{waitsForWorkers}},
		"control planes": {func(in *Input) { notReady(in, "cp-2"); override(in, "ControlPlanesReady") }, Wait{}, []Wait{waitsForControlPlanes}},
		"the other gate": {func(in *Input) { notReady(in, "cp-2"); override(in, "WorkersAvailable") }, waitsForControlPlanes, nil},
		"not needed":     {func(in *Input) { override(in, "ControlPlanesReady", "WorkersAvailable") }, Wait{}, nil},
		"etcd": {func(in *Input) {
			in.etcd("c1-cp-2", func(e *EtcdView) { e.Learner = true })
			override(in, "EtcdHealthy", "ControlPlanesReady", "WorkersAvailable")
		}, waitsForEtcd, nil},
		"out of reach": {func(in *Input) { in.View.NodesTrouble = "no answer"; override(in, "TargetReachable") },
			Wait{"TargetReachable", "the Kubernetes API of the cluster cannot be read: no answer"}, nil},
		"not discovered": {func(in *Input) { in.Cluster.Annotations = nil; override(in, "MachinesDiscovered") },
			Wait{"MachinesDiscovered", "initial discovery has not matched every etcd member and every Node to a machine yet"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			in := cluster(3, 2)
			row.change(in)
			g.Expect(Check(*in)).To(Equal(row.want))
			g.Expect(Bypassed(*in)).To(Equal(row.bypassed))
		})
	}
}

// Case B22: how many members etcd has decides whether it can lose one; and as long as any member is missing, it loses no other one, however
// many would be left.
func TestCaseB22QuorumOfEverySize(t *testing.T) {
	for members, allowed := range map[int]bool{1: true, 2: false, 3: true, 4: true, 5: true, 6: true, 7: true} {
		t.Run(fmt.Sprintf("%d members", members), func(t *testing.T) {
			g := NewWithT(t)
			in := cluster(members, 1)
			if allowed {
				g.Expect(Check(*in)).To(BeZero())
			} else {
				g.Expect(Check(*in)).To(Equal(Wait{"EtcdHealthy", fmt.Sprintf("etcd has %d members and needs %d of them", members, members/2+1)}))
			}
			for down := 1; down < members; down++ {
				name := fmt.Sprintf("c1-cp-%d", down+1)
				in.etcd(name, func(e *EtcdView) { e.Trouble = "no answer" })
				g.Expect(Check(*in)).To(Equal(Wait{"EtcdHealthy", "the etcd member of c1-cp-2 cannot be asked: no answer"}), "%d down", down)
			}
		})
	}
}

// A plan tells of every gate that is asked live, in the order in which they are asked.
func TestPlansNameTheGates(t *testing.T) {
	in := cluster(3, 2)
	var all []string
	for _, machine := range in.Machines {
		all = append(all, machine.Name)
	}
	told := plan.Plan{Stages: []plan.Stage{{Machines: all, Disruptive: true}}}.LiveGates(in.Cluster, in.Machines)
	var asked []string
	for _, g := range gates {
		asked = append(asked, g.name)
	}
	NewWithT(t).Expect(slices.DeleteFunc(told, func(name string) bool { return !slices.Contains(asked, name) })).To(Equal(asked))
}
