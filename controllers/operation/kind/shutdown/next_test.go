// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

const (
	ours  = "default/c1-shutdown-y"
	stops = "default/c1-shutdown-x" // The operation that has stopped the cluster, in the tests of a start.
)

// cluster is one of one control plane and two workers.
func cluster() kind.Scope {
	scope := kind.Scope{Owner: ours, OperationID: "0123456789abcdef", StoppedBy: stops}
	for name, role := range map[string]v1alpha1.MachineRole{"c1-cp-1": "ControlPlane", "c1-w-1": "Worker", "c1-w-2": "Worker"} {
		m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TalosMachineSpec{
			Role: role, Address: "at-" + name[3:], UUID: "uuid-" + name[3:], Approval: "Approved",
		}}
		m.Status.NodeName = name[3:]
		scope.Approved = append(scope.Approved, m)
	}
	scope.Machines = len(scope.Approved)
	return scope
}

// well is a look at it in which all is well.
func well(changes ...func(*View)) kind.Observation {
	seen := View{
		Target: gate.View{Nodes: map[string]kube.Node{}, Etcd: map[string]gate.EtcdView{
			"c1-cp-1": {Etcd: talos.Etcd{MemberID: 1, Leader: 1, Members: []talos.EtcdMember{{ID: 1, Started: true}}}},
		}},
		Machines: map[string]Machine{},
	}
	for _, machine := range cluster().Approved {
		node := machine.Status.NodeName
		seen.Target.Nodes[node] = kube.Node{Name: node, Ready: true, BootID: "boot-" + node}
		seen.Machines[machine.Name] = Machine{Machine: talos.Machine{BootID: "boot-" + node, UUID: machine.Spec.UUID, NodeName: node, Stage: "running", Ready: true}}
	}
	for _, change := range changes {
		change(&seen)
	}
	return kind.Observation{Own: seen}
}

func nodeIs(name string, change func(*kube.Node)) func(*View) {
	return func(v *View) {
		node := v.Target.Nodes[name]
		change(&node)
		v.Target.Nodes[name] = node
	}
}

func machineIs(name string, is Machine) func(*View) {
	return func(v *View) { v.Machines[name] = is }
}

func cordonedByThe(owner string) func(*kube.Node) {
	return func(n *kube.Node) { n.Unschedulable, n.CordonedBy = true, owner }
}

func apiAway(v *View) { v.Target.Nodes, v.Target.NodesTrouble = nil, "no answer" }

func etcdSick(v *View) { v.Target.Etcd["c1-cp-1"] = gate.EtcdView{Trouble: "no answer"} }

var (
	isOff    = Machine{Trouble: "no answer", Silent: true}
	distrust = Machine{Trouble: "certificate has expired"}
)

func allOff(v *View) {
	for name := range v.Machines {
		v.Machines[name] = isOff
	}
}

func without(names ...string) func(*View) {
	return func(v *View) {
		for _, name := range names {
			delete(v.Machines, name)
		}
	}
}

func whole(stage string, step v1alpha1.OperationStep, changes ...func(*v1alpha1.UnitStatus)) kind.Unit {
	u := kind.Unit{Status: v1alpha1.UnitStatus{Name: stage, Stage: stage, Step: step}}
	if step != "" {
		u.Status.Outcome = &v1alpha1.CallOutcome{Result: "Succeeded"}
	}
	for _, change := range changes {
		change(&u.Status)
	}
	return u
}

func failed(class v1alpha1.ErrorClass) func(*v1alpha1.UnitStatus) {
	return func(u *v1alpha1.UnitStatus) {
		u.Outcome = &v1alpha1.CallOutcome{Result: "Failed", Class: class, Message: "it broke"}
	}
}

func wait(reason, message string) kind.Action {
	return kind.Action{Verdict: "Wait", Reason: reason, Message: message}
}

func call(step v1alpha1.OperationStep) kind.Action { return kind.Action{Verdict: "Call", Step: step} }

var (
	done = kind.Action{Verdict: "Done"}
	park = kind.Action{Verdict: "Park"}
)

func TestNextOfAStop(t *testing.T) {
	blind := cluster()
	blind.Blind = true
	unread := wait("TargetReachable", "the Kubernetes API of the cluster cannot be read: no answer")
	sick := wait("EtcdHealthy", "the etcd member of c1-cp-1 cannot be asked: no answer")
	back := kind.Action{Verdict: "Fail", RetryStep: "ShuttingDown", Message: "back by itself: c1-w-2; keep it from that (its BMC, wake-on-LAN, a watchdog)"}
	offBut := func(name string, is Machine) kind.Observation {
		return well(without("c1-cp-1"), allOff, machineIs(name, is))
	}
	workersOff := well(without("c1-cp-1"), allOff)
	running := Machine{Machine: talos.Machine{BootID: "new", Stage: "running"}}
	for name, row := range map[string]struct {
		scope kind.Scope
		unit  kind.Unit
		seen  kind.Observation
		want  kind.Action
	}{
		"a snapshot of what is well":           {cluster(), whole("Snapshot", ""), well(), call("Snapshotting")},
		"none of what is sick":                 {cluster(), whole("Snapshot", ""), well(etcdSick), sick},
		"the snapshot is stored":               {cluster(), whole("Snapshot", "Snapshotting"), well(), done},
		"the snapshot is not stored":           {cluster(), whole("Snapshot", "Snapshotting", failed("Permanent")), well(), kind.Action{Verdict: "Fail", Message: "Snapshotting failed: it broke"}},
		"cordons":                              {cluster(), whole("Cordon", ""), well(), call("Cordoning")},
		"etcd has to be well at the beginning": {cluster(), whole("Cordon", ""), well(etcdSick), sick},
		"no Node is known":                     {cluster(), whole("Cordon", ""), well(apiAway), unread},
		"somebody says to go on without":       {blind, whole("Cordon", ""), well(apiAway), kind.Action{Verdict: "Done", Message: "nothing is cordoned: the Kubernetes API does not tell of Nodes"}},
		"cordoned":                             {cluster(), whole("Cordon", "Cordoning"), well(nodeIs("w-1", cordonedByThe(ours))), done},
		"cordoned, and some before (D3)":       {cluster(), whole("Cordon", "Cordoning"), well(nodeIs("w-1", cordonedByThe("")), nodeIs("w-2", cordonedByThe(stops))), kind.Action{Verdict: "Done", Message: "cordoned before, and left so: w-1, w-2"}},
		"not cordoned":                         {cluster(), whole("Cordon", "Cordoning", failed("Permanent")), well(), kind.Action{Verdict: "Fail", Message: "Cordoning failed: it broke"}},
		"a pause was lifted":                   {cluster(), whole("Cordon", "Uncordoning"), kind.Observation{}, park},
		"all workers are off":                  {cluster(), whole("WorkersOff", ""), workersOff, done},
		"a worker is back":                     {cluster(), whole("WorkersOff", ""), offBut("c1-w-2", running), back},
		"a worker says something":              {cluster(), whole("WorkersOff", ""), offBut("c1-w-2", distrust), wait("TargetReachable", "not known to be off: c1-w-2: certificate has expired")},
		"told again, and up":                   {cluster(), whole("WorkersOff", "ShuttingDown"), offBut("c1-w-2", running), wait("", "not off yet: c1-w-2")},
		"told again, and off":                  {cluster(), whole("WorkersOff", "ShuttingDown"), workersOff, kind.Action{Verdict: "Wait", Step: "StayingOff", Message: "nobody answers: waiting whether it stays so"}},
		"told again, and off for a while":      {cluster(), whole("WorkersOff", "StayingOff"), workersOff, kind.Action{Verdict: "Done", After: 10 * time.Second}},
		"told again, and back again":           {cluster(), whole("WorkersOff", "StayingOff"), offBut("c1-w-2", running), back},
		"the hub stopped before it was told":   {cluster(), whole("Off", "ShuttingDown", failed("Interrupted")), offBut("c1-w-2", running), call("ShuttingDown")},
		"it may not be told":                   {cluster(), whole("Off", "ShuttingDown", failed("Permanent")), offBut("c1-w-2", running), kind.Action{Verdict: "Fail", Message: "ShuttingDown failed: it broke"}},
		"no control plane is back":             {cluster(), whole("Off", ""), well(without("c1-w-1", "c1-w-2"), allOff), done},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(New(nil, nil, nil).Next(row.scope, row.unit, row.seen)).To(Equal(row.want))
		})
	}
}

func TestNextOfAStart(t *testing.T) {
	unready := Machine{Machine: talos.Machine{BootID: "boot-w-1", UUID: "uuid-w-1", Stage: "running", Unmet: []string{"time: not in sync"}}}
	stranger := Machine{Machine: talos.Machine{UUID: "uuid-9", Stage: "running"}}
	verifying := func(message string) kind.Action {
		return kind.Action{Verdict: "Wait", Step: "Verifying", Message: message}
	}
	stranded := whole("Verify", "Verifying", failed("Permanent"))
	for name, row := range map[string]struct {
		unit kind.Unit
		seen kind.Observation
		want kind.Action
	}{
		"everything is off":               {whole("PowerOn", ""), well(allOff), wait("MachinesPoweredOn", "power on the control planes c1-cp-1, then the workers c1-w-1, c1-w-2")},
		"the control planes are on":       {whole("PowerOn", ""), well(machineIs("c1-w-2", isOff)), wait("MachinesPoweredOn", "power on the workers c1-w-2")},
		"the workers are on":              {whole("PowerOn", ""), well(machineIs("c1-cp-1", isOff)), wait("MachinesPoweredOn", "power on the control planes c1-cp-1")},
		"our credentials are of no use":   {whole("PowerOn", ""), well(machineIs("c1-cp-1", distrust)), wait("MachinesPoweredOn", "not known to be on: c1-cp-1: certificate has expired")},
		"another machine is there (B10)":  {whole("PowerOn", ""), well(machineIs("c1-w-1", stranger)), wait("MachinesPoweredOn", "another machine answers at the address of c1-w-1")},
		"everything is on":                {whole("PowerOn", ""), well(), done},
		"all is well":                     {whole("Verify", ""), well(), done},
		"a machine goes off again":        {whole("Verify", ""), well(machineIs("c1-w-1", isOff)), verifying("machine c1-w-1 does not answer: no answer")},
		"a machine is not ready":          {whole("Verify", ""), well(machineIs("c1-w-1", unready)), verifying("machine c1-w-1 is not ready: time: not in sync")},
		"a machine boots":                 {whole("Verify", ""), well(machineIs("c1-w-1", Machine{Machine: talos.Machine{Stage: "booting"}})), verifying(`machine c1-w-1 is in stage "booting"`)},
		"etcd is not well (B17)":          {whole("Verify", ""), well(etcdSick), verifying("the etcd member of c1-cp-1 cannot be asked: no answer")},
		"the Kubernetes API is away":      {whole("Verify", ""), well(apiAway), verifying("the Kubernetes API of the cluster cannot be read: no answer")},
		"a Node is not Ready":             {whole("Verify", ""), well(nodeIs("w-1", func(n *kube.Node) { n.Ready = false })), verifying("Node w-1 is not Ready")},
		"a Node tells of the boot before": {whole("Verify", ""), well(nodeIs("w-1", func(n *kube.Node) { n.BootID = "old" })), verifying("Node w-1 is not Ready")},
		"a Node is missing":               {whole("Verify", ""), well(func(v *View) { delete(v.Target.Nodes, "w-1") }), verifying("the Node of machine c1-w-1 is not there")},
		"it failed":                       {stranded, well(etcdSick), kind.Action{Verdict: "Fail", Message: "Verifying failed: it broke"}},
		"gives back what is recorded":     {whole("Uncordon", ""), well(nodeIs("w-1", cordonedByThe(stops))), call("Uncordoning")},
		"leaves what others did (D3)":     {whole("Uncordon", ""), well(nodeIs("w-1", cordonedByThe("")), nodeIs("w-2", cordonedByThe("default/c1-talos-z"))), done},
		"cannot see what is cordoned":     {whole("Uncordon", ""), well(apiAway), wait("TargetReachable", "the Kubernetes API of the cluster cannot be read: no answer")},
		"gave it back":                    {whole("Uncordon", "Uncordoning"), kind.Observation{}, done},
		"could not give it back":          {whole("Uncordon", "Uncordoning", failed("Permanent")), well(), kind.Action{Verdict: "Fail", Message: "Uncordoning failed: it broke"}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(New(nil, nil, nil).Next(cluster(), row.unit, row.seen)).To(Equal(row.want))
		})
	}
}

// A pause between two machines leaves the cordons where they are; one in the middle of cordoning, and a deletion (D4), take them off.
func TestSettle(t *testing.T) {
	running := Machine{Machine: talos.Machine{BootID: "new", Stage: "running"}}
	for name, row := range map[string]struct {
		unit kind.Unit
		seen kind.Observation
		want kind.Action
	}{
		"a snapshot that was called off":  {whole("Snapshot", "Snapshotting", failed("Interrupted")), well(), park},
		"cordoned":                        {whole("Cordon", "Cordoning"), well(nodeIs("w-1", cordonedByThe(ours))), call("Uncordoning")},
		"cordoned by others":              {whole("Cordon", "Cordoning"), well(nodeIs("w-1", cordonedByThe(stops))), park},
		"cordoned, and nobody can see it": {whole("Cordon", "Cordoning"), well(apiAway), wait("", "waiting for the Kubernetes API, to take the cordons off: no answer")},
		"deleted later":                   {whole("Cordon", ""), well(nodeIs("w-1", cordonedByThe(ours))), call("Uncordoning")},
		"deleted when the API is gone":    {whole("Cordon", ""), well(apiAway), park},
		"taken off":                       {whole("Cordon", "Uncordoning"), kind.Observation{}, park},
		"not taken off":                   {whole("Cordon", "Uncordoning", failed("Retryable")), well(nodeIs("w-1", cordonedByThe(ours))), call("Uncordoning")},
		"told once more":                  {whole("Off", "ShuttingDown"), well(without("c1-w-1", "c1-w-2"), machineIs("c1-cp-1", running)), wait("", "not off yet: c1-cp-1")},
		"waiting whether it stays off":    {whole("Off", "StayingOff"), well(allOff), park},
		"waiting for people":              {whole("Verify", "Verifying"), well(allOff), park},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(New(nil, nil, nil).Settle(cluster(), row.unit, row.seen)).To(Equal(row.want))
		})
	}
}

// Messages have room for a few names.
func TestSome(t *testing.T) {
	g := NewWithT(t)
	g.Expect(some(nil)).To(BeEmpty())
	g.Expect(some([]string{"b", "a"})).To(Equal("a, b"))
	g.Expect(some([]string{"h", "g", "f", "e", "d", "c", "b", "a"})).To(Equal("a, b, c, d, e, f and 2 more"))
}
