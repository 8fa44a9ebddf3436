// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

// ordered is an order about one machine of a cluster of so many control planes and one worker.
func ordered(controlPlanes int, machine string, action v1alpha1.NodeAction, change func(*v1alpha1.NodeParameters)) plan.Facts {
	f := facts(controlPlanes, machine, action)
	f.Cluster = &v1alpha1.TalosCluster{Status: v1alpha1.TalosClusterStatus{EtcdLeader: "cp-1"}}
	for i := range f.Machines {
		f.Machines[i].Namespace, f.Machines[i].Status.NodeName = "default", "node-"+f.Machines[i].Name
		if f.Machines[i].Spec.Role == "ControlPlane" {
			f.Machines[i].Status.EtcdMemberID = "1a2b"
		}
	}
	if change != nil {
		change(f.Spec.Node)
	}
	return f
}

func reset(manner v1alpha1.ResetManner, after v1alpha1.AfterReset, wipe ...v1alpha1.WipeTarget) func(*v1alpha1.NodeParameters) {
	return func(n *v1alpha1.NodeParameters) {
		n.Reset = &v1alpha1.ResetParameters{Manner: manner, After: after, Wipe: wipe}
	}
}

func disarm(n *v1alpha1.NodeParameters) { n.Alarms = "Disarm" }

// Cases B1 and B2: what is refused of each action, by the shape of the cluster: nobody takes away what etcd's quorum, or the cluster, needs.
func TestCaseB1RefusalsByShape(t *testing.T) {
	userVolumes, userVolumesOff := reset("", "", "UserVolumes"), reset("", "PowerOff", "UserVolumes")
	for name, row := range map[string]struct {
		facts plan.Facts
		gate  string
	}{
		"1+1 shutdown of the control plane":             {ordered(1, "cp-1", "Shutdown", nil), "Quorum"},
		"1+1 shutdown of the worker":                    {ordered(1, "w-1", "Shutdown", nil), ""},
		"2+1 shutdown of a control plane":               {ordered(2, "cp-1", "Shutdown", nil), "Quorum"},
		"2+1 shutdown of the worker":                    {ordered(2, "w-1", "Shutdown", nil), ""},
		"3+1 shutdown of a control plane":               {ordered(3, "cp-1", "Shutdown", nil), ""},
		"1+1 reset of the control plane":                {ordered(1, "cp-1", "Reset", nil), "Quorum"},
		"1+1 reset of the control plane by force":       {ordered(1, "cp-1", "Reset", reset("Forced", "")), "Quorum"},
		"1+1 reset of its user volumes":                 {ordered(1, "cp-1", "Reset", userVolumes), ""},
		"1+1 reset of its user volumes, then off":       {ordered(1, "cp-1", "Reset", userVolumesOff), "Quorum"},
		"2+1 reset of a control plane":                  {ordered(2, "cp-2", "Reset", nil), "Quorum"},
		"2+1 reset of a control plane by force":         {ordered(2, "cp-2", "Reset", reset("Forced", "")), "Quorum"},
		"2+1 reset of its user volumes":                 {ordered(2, "cp-2", "Reset", userVolumes), "Quorum"},
		"2+1 reset of the worker":                       {ordered(2, "w-1", "Reset", nil), ""},
		"3+1 reset of a control plane":                  {ordered(3, "cp-1", "Reset", nil), ""},
		"5+1 reset of a control plane":                  {ordered(5, "cp-1", "Reset", nil), ""},
		"1+1 defragmentation":                           {ordered(1, "", "EtcdDefrag", disarm), ""},
		"2+1 defragmentation":                           {ordered(2, "", "EtcdDefrag", nil), "Quorum"},
		"2+1 defragmentation of one":                    {ordered(2, "cp-1", "EtcdDefrag", nil), "Quorum"},
		"3+1 defragmentation":                           {ordered(3, "", "EtcdDefrag", disarm), ""},
		"3+1 defragmentation of one":                    {ordered(3, "cp-1", "EtcdDefrag", nil), ""},
		"3+1 alarms after one of three":                 {ordered(3, "cp-1", "EtcdDefrag", disarm), "EtcdMember"},
		"1+1 alarms after the only one":                 {ordered(1, "cp-1", "EtcdDefrag", disarm), ""},
		"defragmentation of a worker":                   {ordered(3, "w-1", "EtcdDefrag", nil), "EtcdMember"},
		"defragmentation of nothing (A17)":              {ordered(0, "", "EtcdDefrag", nil), "MachineKnown"},
		"1+1 leadership of the only one":                {ordered(1, "cp-1", "EtcdForfeitLeadership", nil), "EtcdMember"},
		"2+1 leadership: nobody goes away":              {ordered(2, "cp-1", "EtcdForfeitLeadership", nil), ""},
		"leadership of a worker":                        {ordered(3, "w-1", "EtcdForfeitLeadership", nil), "EtcdMember"},
		"1+1 service of the only control plane":         {ordered(1, "cp-1", "RestartService", nil), ""},
		"2+1 service of a control plane":                {ordered(2, "cp-1", "RestartService", nil), ""},
		"service of a machine that nobody approved":     {ordered(2, "w-9", "RestartService", nil), "MachineKnown"},
		"shutdown of a machine that nobody knows (A17)": {ordered(2, "w-7", "Shutdown", nil), "MachineKnown"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, refusals := Planner{}.Plan(row.facts)
			if row.gate == "" {
				g.Expect(refusals).To(BeEmpty())
				return
			}
			g.Expect(refusals).To(ConsistOf(And(HaveField("Gate", row.gate), HaveField("Message", Not(BeEmpty())), HaveField("Help", Not(BeEmpty())))))
			g.Expect(refusals[0].Overridable).To(BeFalse(), "an etcd without quorum is nobody's choice")
		})
	}
}

func TestStages(t *testing.T) {
	away := func(name, machine string, sick bool) []plan.Stage {
		return []plan.Stage{{Name: name, Machines: []string{machine}, Batch: plan.Batch{Tiered: true}, Disruptive: true, Sick: sick}}
	}
	removed := func(machine string, sick bool) []plan.Stage {
		stages := away("Reset", machine, sick)
		stages[0].Gates = []string{"MachinesDiscovered", "TargetReachable", "EtcdHealthy", "ControlPlanesReady", "WorkersAvailable", "MachineSettled"}
		return stages
	}
	there := func(name, machine string) []plan.Stage {
		return []plan.Stage{{Name: name, Machines: []string{machine}, Batch: plan.Batch{Parallel: 1}}}
	}
	defrag := func(machines ...string) plan.Stage {
		return plan.Stage{Name: "Defragment", Machines: machines, Batch: plan.Batch{Tiered: true}, Disruptive: true, EtcdOnly: true, Gates: etcdGates}
	}
	for name, row := range map[string]struct {
		facts  plan.Facts
		effect plan.Effect
		stages []plan.Stage
	}{
		"force":    {ordered(3, "cp-1", "Reboot", func(n *v1alpha1.NodeParameters) { n.RebootMode = "Force" }), "Reboot", away("Reboot", "cp-1", true)},
		"shutdown": {ordered(3, "cp-1", "Shutdown", nil), "Stop", away("Shutdown", "cp-1", false)},
		"service":  {ordered(3, "cp-1", "RestartService", nil), "RestartComponents", there("Restart", "cp-1")},
		"forfeit":  {ordered(3, "cp-1", "EtcdForfeitLeadership", nil), "None", there("Forfeit", "cp-1")},
		"reset":    {ordered(3, "cp-1", "Reset", nil), "Reset", removed("cp-1", false)},
		"forced":   {ordered(3, "cp-1", "Reset", reset("Forced", "")), "Reset", removed("cp-1", true)},
		"one":      {ordered(3, "cp-2", "EtcdDefrag", nil), "RestartComponents", []plan.Stage{defrag("cp-2")}},
		"all, the leader last": {ordered(3, "", "EtcdDefrag", disarm), "RestartComponents", []plan.Stage{
			defrag("cp-2", "cp-3", "cp-1"), {Name: "Disarm", Machines: []string{"cp-2"}, Batch: plan.Batch{Parallel: 1}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, refusals := Planner{}.Plan(row.facts)
			g.Expect(refusals).To(BeEmpty())
			g.Expect(p.Effect).To(Equal(row.effect))
			g.Expect(p.Stages).To(Equal(row.stages))
		})
	}
}

// Whoever starts something knows what it costs, and what is theirs to do afterwards.
func TestWarningsAndLosses(t *testing.T) {
	off := "cp-1 stays off until somebody powers it on, and its Node stays cordoned; then give it back with: kubectl uncordon node-cp-1"
	system := ": its machine config, its container images and logs, and what pods keep there in emptyDir, hostPath and local volumes " +
		"(volumes STATE, EPHEMERAL, and those of ETCD, CRI, KUBELET and LOG that have a partition of their own)"
	member := "cp-1: its etcd member 1a2b"
	disks := ": its user volumes, with the disks that they lie on as a whole, and on the system disk their partitions"
	stays := func(name string) string {
		return "TalosMachine " + name + " stays, and nothing answers for it; if the machine is not to come back: kubectl delete talosmachine -n default " +
			name + "; on its cluster: kubectl delete node node-" + name
	}
	outage := "the only control plane reboots: the Kubernetes API of the cluster is away meanwhile"
	for name, row := range map[string]struct {
		facts    plan.Facts
		warnings []string
		losses   []string
	}{
		"force": {ordered(1, "cp-1", "Reboot", func(n *v1alpha1.NodeParameters) { n.RebootMode = "Force" }), []string{
			outage, "mode Force: no pod is evicted, no replica moved, and no service stopped in good order",
		}, nil},
		"shutdown": {ordered(3, "cp-1", "Shutdown", nil), []string{
			off, "etcd goes on with 2 of 3 members: until cp-1 is back, operations on other control planes wait",
		}, nil},
		"defragmentation of the only one": {ordered(1, "", "EtcdDefrag", nil), []string{
			"the only etcd member answers nothing while it is defragmented: the Kubernetes API of the cluster pauses meanwhile",
		}, nil},
		"leadership of who leads": {ordered(3, "cp-1", "EtcdForfeitLeadership", nil), nil, nil},
		"leadership of who doesn't": {ordered(3, "cp-2", "EtcdForfeitLeadership", nil), []string{
			"cp-1 led etcd when it was last looked at: unless that has changed, there is nothing to do",
		}, nil},
		"reset of a worker": {ordered(3, "w-1", "Reset", nil), []string{stays("w-1")}, []string{"w-1" + system}},
		"reset of a control plane and its disks": {ordered(3, "cp-1", "Reset", reset("Forced", "", "System", "UserVolumes")), []string{
			"manner Forced: no pod is evicted, no replica moved, and the etcd member does not leave but is removed",
			"etcd goes on with 2 members and can lose 0 of them: operations on control planes wait until TalosMachine cp-1 is deleted or joins anew",
			stays("cp-1"),
		}, []string{"cp-1" + system, member, "cp-1" + disks}},
		"reset of user volumes": {ordered(1, "cp-1", "Reset", reset("", "", "UserVolumes")), []string{outage}, []string{"cp-1" + disks}},
		"reset of user volumes, then off": {ordered(3, "w-1", "Reset", reset("", "PowerOff", "UserVolumes")), []string{
			"w-1 stays off until somebody powers it on, and its Node stays cordoned; then give it back with: kubectl uncordon node-w-1",
		}, []string{"w-1" + disks}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, refusals := Planner{}.Plan(row.facts)
			g.Expect(refusals).To(BeEmpty())
			var warnings []string
			for _, warning := range p.Warnings {
				warnings = append(warnings, warning.Message)
			}
			g.Expect(warnings).To(Equal(row.warnings))
			g.Expect(p.Losses).To(Equal(row.losses))
		})
	}
}

// A refusal of a reset tells what it would have cost all the same.
func TestRefusedResetTellsItsLosses(t *testing.T) {
	g := NewWithT(t)
	p, refusals := Planner{}.Plan(ordered(1, "cp-1", "Reset", nil))
	g.Expect(refusals).To(HaveLen(1))
	g.Expect(p.Losses).To(HaveLen(2))
}

// Where only etcd members go away, nothing is asked about Nodes; the plan says so as the engine does.
func TestLiveGatesOfEtcdWork(t *testing.T) {
	f := ordered(3, "", "EtcdDefrag", nil)
	p, _ := Planner{}.Plan(f)
	NewWithT(t).Expect(p.LiveGates(f.Cluster, f.Approved())).To(Equal([]string{
		"ControlPlaneTransitioning", "TargetOwned", "MachinesDiscovered", "EtcdHealthy",
	}))
}
