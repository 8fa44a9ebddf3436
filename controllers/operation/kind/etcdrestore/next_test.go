// SPDX-License-Identifier: Apache-2.0

package etcdrestore

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

func machineAt(name string, role v1alpha1.MachineRole) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-" + name}, Spec: v1alpha1.TalosMachineSpec{
		ClusterName: "c1", Role: role, Address: "at-" + name, UUID: "uuid-" + name, Approval: "Approved",
	}}
	m.Status.NodeName = name
	return m
}

// scope is that of a restore of a cluster of three control planes and a worker.
func scope() kind.Scope {
	s := kind.Scope{
		Owner: "default/c1-etcd-restore-x", OperationID: "0123456789abcdef",
		Spec: v1alpha1.TalosOperationSpec{Kind: "etcd-restore", ClusterName: "c1", EtcdRestore: &v1alpha1.EtcdRestoreParameters{SnapshotName: "s1", SafetySnapshot: "Take"}},
	}
	for _, m := range []*v1alpha1.TalosMachine{
		machineAt("cp-1", "ControlPlane"), machineAt("cp-2", "ControlPlane"), machineAt("cp-3", "ControlPlane"), machineAt("w-1", "Worker"),
	} {
		s.Approved, s.Known = append(s.Approved, m), append(s.Known, m)
	}
	s.Machines = len(s.Known)
	return s
}

func whole(stage string, step v1alpha1.OperationStep, changes ...func(*v1alpha1.UnitStatus)) kind.Unit {
	return kind.Unit{Status: statusOf(stage, stage, step, changes)}
}

func of(machine, stage string, step v1alpha1.OperationStep, changes ...func(*v1alpha1.UnitStatus)) kind.Unit {
	role := v1alpha1.ControlPlaneRole
	if machine == "w-1" {
		role = v1alpha1.WorkerRole
	}
	return kind.Unit{Status: statusOf("c1-"+machine, stage, step, changes), Machine: machineAt(machine, role)}
}

func statusOf(name, stage string, step v1alpha1.OperationStep, changes []func(*v1alpha1.UnitStatus)) v1alpha1.UnitStatus {
	s := v1alpha1.UnitStatus{Name: name, Stage: stage, Step: step}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func succeeded(u *v1alpha1.UnitStatus) {
	u.Outcome = &v1alpha1.CallOutcome{Result: v1alpha1.CallSucceeded, Message: "found"}
}

func failed(class v1alpha1.ErrorClass) func(*v1alpha1.UnitStatus) {
	return func(u *v1alpha1.UnitStatus) {
		u.Outcome = &v1alpha1.CallOutcome{Result: v1alpha1.CallFailed, Class: class, Message: "no"}
	}
}

func booted(id string) func(*v1alpha1.UnitStatus) {
	return func(u *v1alpha1.UnitStatus) { u.PreRebootBootID = id }
}

func started(at time.Time) func(*v1alpha1.UnitStatus) {
	return func(u *v1alpha1.UnitStatus) { u.ServiceStartTime = metav1.NewMicroTime(at) }
}

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// at is a look at a machine that has booted, whose etcd is in a state.
func at(machine, boot, etcd string, changes ...func(*kind.Observation, *View)) kind.Observation {
	own := View{
		Services: []talos.Service{{ID: "kubelet", State: "Running", Running: true, Healthy: true, Checked: true, Started: noon}, {ID: "etcd", State: etcd, Running: etcd == "Running"}},
		Volumes:  []talos.Volume{{ID: "EPHEMERAL", Partition: true}, {ID: "STATE", Partition: true}, {ID: "ETCD"}},
	}
	own.Machines = answers(nil).Machines
	seen := kind.Observation{Talos: talos.Machine{BootID: boot, UUID: "uuid-" + machine, NodeName: machine, Stage: "running", Ready: true}}
	if etcd == "Running" {
		seen.Etcd = &talos.Etcd{MemberID: 7, Leader: 7, Members: []talos.EtcdMember{{ID: 7, Started: true}}}
	} else {
		seen.EtcdTrouble = "no answer"
	}
	for _, change := range changes {
		change(&seen, &own)
	}
	seen.Own = own
	return seen
}

func silent(seen *kind.Observation, own *View) {
	*seen, *own = kind.Observation{TalosTrouble: "no answer", TalosSilent: true, EtcdTrouble: "no answer"}, View{Trouble: "no answer"}
}

func revision(is, wanted int64) func(*kind.Observation, *View) {
	return func(_ *kind.Observation, own *View) { own.Revision, own.Wanted = is, wanted }
}

// others are control planes that do not wait for an etcd.
func others(_ *kind.Observation, own *View) {
	own.Others = map[string]string{"c1-cp-3": "no answer", "c1-cp-2": "Running"}
}

func noEtcd(seen *kind.Observation, _ *View) { seen.Etcd, seen.EtcdTrouble = nil, "no answer" }

// told is another control plane than all is well with.
func told(name string, is Machine) func(*kind.Observation, *View) {
	return func(_ *kind.Observation, own *View) { own.Machines[name] = is }
}

// rebooted is a machine that was rebooted so many times, since its etcd had given up.
func rebooted(times int) func(*v1alpha1.UnitStatus) {
	return func(u *v1alpha1.UnitStatus) {
		for range times {
			u.Steps = append(u.Steps, v1alpha1.StepRecord{Stage: "Join", Step: "Rebooting"}, v1alpha1.StepRecord{Stage: "Join", Step: "Joining"})
		}
	}
}

// asked is a machine that was asked to wipe itself so many times.
func asked(times int) func(*v1alpha1.UnitStatus) {
	return func(u *v1alpha1.UnitStatus) {
		for range times {
			u.Steps = append(u.Steps, v1alpha1.StepRecord{Stage: "Wipe", Step: "Resetting"}, v1alpha1.StepRecord{Stage: "Wipe", Step: "Preparing"})
		}
	}
}

func withOthers(seen *kind.Observation, _ *View) {
	seen.Etcd.Members = append(seen.Etcd.Members, talos.EtcdMember{ID: 8, Started: true})
}

const lost = "; if it is lost, keep it off and go on without it: kubectl -n default delete talosmachine c1-"

func call(step v1alpha1.OperationStep, changes ...func(*kind.Action)) kind.Action {
	a := kind.Action{Verdict: kind.Call, Step: step}
	for _, change := range changes {
		change(&a)
	}
	return a
}

func waits(message string) kind.Action { return kind.Action{Verdict: kind.Wait, Message: message} }

func waitsIn(step v1alpha1.OperationStep, message string) kind.Action {
	return kind.Action{Verdict: kind.Wait, Step: step, Message: message}
}

func stands(gate, message string) kind.Action {
	return kind.Action{Verdict: kind.Wait, Reason: gate, Message: message}
}

func with(boot, node string) func(*kind.Action) {
	return func(a *kind.Action) { a.PreRebootBootID, a.NodeName = boot, node }
}

func TestNextOfControlPlanes(t *testing.T) {
	done := kind.Action{Verdict: kind.Done}
	for name, row := range map[string]struct {
		unit kind.Unit
		seen kind.Observation
		want kind.Action
	}{
		"wipe, begin":                      {of("cp-1", "Wipe", ""), at("cp-1", "b1", "Running"), call("Resetting", with("b1", "cp-1"))},
		"wipe, begin without etcd":         {of("cp-1", "Wipe", ""), at("cp-1", "b1", "Preparing"), call("Resetting", with("b1", "cp-1"))},
		"wipe, no answer":                  {of("cp-1", "Wipe", ""), at("cp-1", "", "", silent), stands("TargetReachable", "control plane c1-cp-1 does not answer: no answer"+lost+"cp-1")},
		"wipe, another machine":            {of("cp-1", "Wipe", ""), at("cp-9", "b1", "Running"), kind.Action{Verdict: kind.Fail, Message: `the machine at at-cp-1 has UUID "uuid-cp-9", but c1-cp-1 has UUID "uuid-cp-1"`}},
		"wipe, no volume":                  {of("cp-1", "Wipe", ""), at("cp-1", "b1", "Running", func(_ *kind.Observation, own *View) { own.Volumes = nil }), kind.Action{Verdict: kind.Fail, Message: "the machine does not tell where its volume EPHEMERAL is: it would keep its etcd"}},
		"asked, up":                        {of("cp-1", "Wipe", "Resetting", booted("b1"), succeeded), at("cp-1", "b1", "Running"), waits(`still up in stage "running"; if it hangs, cycle its power`)},
		"asked, away":                      {of("cp-1", "Wipe", "Resetting", booted("b1"), succeeded), at("cp-1", "", "", silent), waits("waiting for another boot ID: no answer" + lost + "cp-1")},
		"asked, booted":                    {of("cp-1", "Wipe", "Resetting", booted("b1"), succeeded), at("cp-1", "b2", "Waiting"), waitsIn("Preparing", "waiting until it has come up as far as etcd")},
		"asked, booted over a failure":     {of("cp-1", "Wipe", "Resetting", booted("b1"), failed("Permanent")), at("cp-1", "b2", "Waiting"), waitsIn("Preparing", "waiting until it has come up as far as etcd")},
		"refused":                          {of("cp-1", "Wipe", "Resetting", booted("b1"), failed("Permanent")), at("cp-1", "b1", "Running"), kind.Action{Verdict: kind.Fail, Message: "Resetting failed: no"}},
		"interrupted, not heard":           {of("cp-1", "Wipe", "Resetting", booted("b1"), failed("Interrupted")), at("cp-1", "b1", "Running"), call("Resetting", with("b1", "cp-1"))},
		"interrupted, heard":               {of("cp-1", "Wipe", "Resetting", booted("b1"), failed("Interrupted")), at("cp-1", "b1", "Running", func(s *kind.Observation, _ *View) { s.Talos.Stage = "resetting" }), waits(`still up in stage "resetting"; if it hangs, cycle its power`)},
		"retried":                          {of("cp-1", "Wipe", "Resetting", failed("Interrupted")), at("cp-1", "b2", "Running"), call("Resetting", with("b2", "cp-1"))},
		"preparing":                        {of("cp-1", "Wipe", "Preparing", booted("b1")), at("cp-1", "b2", "Waiting"), waits(`waiting until service etcd is Preparing, it is "Waiting"`)},
		"preparing, away":                  {of("cp-1", "Wipe", "Preparing", booted("b1")), at("cp-1", "", "", silent), waits("waiting for the Talos API: no answer" + lost + "cp-1")},
		"prepared":                         {of("cp-1", "Wipe", "Preparing", booted("b1")), at("cp-1", "b2", "Preparing"), done},
		"prepared before others":           {of("cp-1", "Wipe", "Preparing", booted("b1")), at("cp-1", "b2", "Preparing", others), waits(`waiting until no control plane has an etcd any more: service etcd of c1-cp-2 is "Running", service etcd of c1-cp-3 is "no answer"`)},
		"it has joined the others again":   {of("cp-1", "Wipe", "Preparing", booted("b1"), asked(1)), at("cp-1", "b2", "Running"), call("Resetting", with("b2", "cp-1"))},
		"it has, and they are gone":        {of("cp-1", "Wipe", "Preparing", booted("b1"), asked(2)), at("cp-1", "b2", "Running", noEtcd), call("Resetting", with("b2", "cp-1"))},
		"it does so each time":             {of("cp-1", "Wipe", "Preparing", booted("b1"), asked(10)), at("cp-1", "b2", "Running"), kind.Action{Verdict: kind.Fail, RetryStep: "Resetting", Message: "it was wiped 10 times, and runs an etcd each time: it was not wiped, or joins a control plane that the hub does not know"}},
		"it has given up":                  {of("cp-1", "Wipe", "Preparing", booted("b1"), asked(2)), at("cp-1", "b2", "Failed"), call("Resetting", with("b2", "cp-1"))},
		"it gives up each time":            {of("cp-1", "Wipe", "Preparing", booted("b1"), asked(10)), at("cp-1", "b2", "Failed"), kind.Action{Verdict: kind.Fail, RetryStep: "Resetting", Message: "it was wiped 10 times, and service etcd is Failed again; why: talosctl -n at-cp-1 service etcd"}},
		"told, and it cannot":              {of("cp-1", "Recover", "Verifying", booted("b2")), at("cp-1", "b2", "Failed"), kind.Action{Verdict: kind.Fail, RetryStep: "Recovering", Message: "etcd has not begun: service etcd is Failed; why: talosctl -n at-cp-1 service etcd"}},
		"told, rebooted, and given up":     {of("cp-1", "Recover", "Verifying", booted("b2")), at("cp-1", "b3", "Failed"), call("Recovering")},
		"join, given up":                   {of("cp-2", "Join", ""), at("cp-2", "b2", "Failed"), call("Rebooting", with("b2", "cp-2"))},
		"join, given up meanwhile":         {of("cp-2", "Join", "Joining", rebooted(2)), at("cp-2", "b2", "Failed"), call("Rebooting", with("b2", "cp-2"))},
		"join, gives up each time":         {of("cp-2", "Join", "Joining", rebooted(3)), at("cp-2", "b2", "Failed"), kind.Action{Verdict: kind.Fail, RetryStep: "Rebooting", Message: "it was rebooted 3 times, and service etcd is Failed again; why: talosctl -n at-cp-2 service etcd"}},
		"join, reboots":                    {of("cp-2", "Join", "Rebooting", booted("b2"), succeeded), at("cp-2", "", "", silent), waits("waiting for another boot ID: no answer" + lost + "cp-2")},
		"join, rebooted":                   {of("cp-2", "Join", "Rebooting", booted("b2"), succeeded), at("cp-2", "b3", "Preparing"), waitsIn("Joining", "waiting until it has come up as far as etcd")},
		"join, reboot refused":             {of("cp-2", "Join", "Rebooting", booted("b2"), failed("Permanent")), at("cp-2", "b2", "Failed"), kind.Action{Verdict: kind.Fail, Message: "Rebooting failed: no"}},
		"join, reboot retried":             {of("cp-2", "Join", "Rebooting"), at("cp-2", "b2", "Failed"), call("Rebooting", with("b2", "cp-2"))},
		"recover, begin, given up":         {of("cp-1", "Recover", ""), at("cp-1", "b2", "Failed"), call("Recovering")},
		"recover, begin":                   {of("cp-1", "Recover", ""), at("cp-1", "b2", "Preparing"), call("Recovering")},
		"recover, beside another etcd":     {of("cp-1", "Recover", ""), at("cp-1", "b2", "Preparing", others), stands("EtcdHealthy", `etcd begins where no other one is: service etcd of c1-cp-2 is "Running", service etcd of c1-cp-3 is "no answer"`)},
		"recover, no answer":               {of("cp-1", "Recover", ""), at("cp-1", "", "", silent), stands("TargetReachable", "control plane c1-cp-1, with which etcd begins, does not answer: no answer"+lost+"cp-1")},
		"sent":                             {of("cp-1", "Recover", "Recovering", succeeded), at("cp-1", "b2", "Preparing"), call("Bootstrapping", with("b2", ""))},
		"sending failed":                   {of("cp-1", "Recover", "Recovering", failed("Timeout")), at("cp-1", "b2", "Preparing"), kind.Action{Verdict: kind.Fail, RetryStep: "Recovering", Message: "Recovering failed: no"}},
		"told":                             {of("cp-1", "Recover", "Bootstrapping", succeeded, booted("b2")), at("cp-1", "b2", "Running"), waitsIn("Verifying", "waiting until etcd has begun")},
		"telling failed":                   {of("cp-1", "Recover", "Bootstrapping", failed("Permanent"), booted("b2")), at("cp-1", "b2", "Preparing"), kind.Action{Verdict: kind.Fail, RetryStep: "Recovering", Message: "Bootstrapping failed: no"}},
		"told, and rebooted (I1, I5)":      {of("cp-1", "Recover", "Verifying", booted("b2")), at("cp-1", "b3", "Preparing"), call("Recovering")},
		"told, starting":                   {of("cp-1", "Recover", "Verifying", booted("b2")), at("cp-1", "b2", "Preparing"), waits("waiting for etcd: no answer")},
		"told, away":                       {of("cp-1", "Recover", "Verifying", booted("b2")), at("cp-1", "", "", silent), waits("waiting for the Talos API: no answer")},
		"begun, no API server yet":         {of("cp-1", "Recover", "Verifying", booted("b2")), at("cp-1", "b2", "Running", func(_ *kind.Observation, own *View) { own.Wanted, own.RevisionTrouble = 12, "no answer" }), waits("waiting for the Kubernetes API: no answer")},
		"begun, not looked at since":       {of("cp-1", "Recover", "Verifying", booted("b2")), at("cp-1", "b2", "Running"), waits("waiting for a look at the revision")},
		"begun, the facts cannot be read":  {of("cp-1", "Recover", "Verifying", booted("b2")), at("cp-1", "b2", "Running", func(_ *kind.Observation, own *View) { own.WantedTrouble = "no" }), waits("waiting for the facts of the snapshot: no")},
		"begun with something else (I1)":   {of("cp-1", "Recover", "Verifying", booted("b2")), at("cp-1", "b2", "Running", revision(3, 12)), kind.Action{Verdict: kind.Fail, RetryStep: "Verifying", Message: "etcd is at revision 3, and the snapshot holds 12: it has not begun with the snapshot"}},
		"begun with the snapshot (I1)":     {of("cp-1", "Recover", "Verifying", booted("b2")), at("cp-1", "b2", "Running", revision(12, 12)), kind.Action{Verdict: kind.Done, Message: "etcd goes on from revision 12 of the snapshot"}},
		"join, no answer":                  {of("cp-2", "Join", ""), at("cp-2", "", "", silent), stands("TargetReachable", "control plane c1-cp-2 does not answer: no answer"+lost+"cp-2")},
		"join, no answer meanwhile":        {of("cp-2", "Join", "Joining"), at("cp-2", "", "", silent), stands("TargetReachable", "control plane c1-cp-2 does not answer: no answer"+lost+"cp-2")},
		"join, waiting":                    {of("cp-2", "Join", ""), at("cp-2", "b2", "Preparing"), waitsIn("Joining", "waiting for etcd: no answer")},
		"join, a learner":                  {of("cp-2", "Join", "Joining"), at("cp-2", "b2", "Running", withOthers, func(s *kind.Observation, _ *View) { s.Etcd.Learner = true }), waitsIn("Joining", "waiting until the etcd member is a voter")},
		"join, an etcd of its own":         {of("cp-2", "Join", "Joining"), at("cp-2", "b2", "Running"), waitsIn("Joining", "its etcd knows no other member: it is not the restored one")},
		"joined":                           {of("cp-2", "Join", "Joining"), at("cp-2", "b2", "Running", withOthers), done},
		"joined before it was looked at":   {of("cp-2", "Join", ""), at("cp-2", "b2", "Running", withOthers), done},
		"kubelet, begin":                   {of("w-1", "Kubelets", ""), at("w-1", "b1", ""), call("Restarting", func(a *kind.Action) { a.ServiceStart = noon })},
		"kubelet, no answer":               {of("w-1", "Kubelets", ""), at("w-1", "", "", silent), waitsIn("Awaiting", "waiting a while for the Talos API: no answer")},
		"kubelet, still no answer":         {of("w-1", "Kubelets", "Awaiting"), at("w-1", "", "", silent), kind.Action{Verdict: kind.Done, After: 5 * time.Minute, Message: "left out, since it does not answer: its kubelet has to be restarted when it does, as a boot does"}},
		"kubelet, an answer at last":       {of("w-1", "Kubelets", "Awaiting"), at("w-1", "b1", ""), call("Restarting", func(a *kind.Action) { a.ServiceStart = noon })},
		"kubelet, asked":                   {of("w-1", "Kubelets", "Restarting", succeeded, started(noon)), at("w-1", "b1", ""), waits("waiting until the kubelet has started anew")},
		"kubelet, asked and away":          {of("w-1", "Kubelets", "Restarting", succeeded, started(noon)), at("w-1", "", "", silent), waits("waiting for the Talos API: no answer")},
		"kubelet, interrupted, not heard":  {of("w-1", "Kubelets", "Restarting", failed("Interrupted"), started(noon)), at("w-1", "b1", ""), call("Restarting", func(a *kind.Action) { a.ServiceStart = noon })},
		"kubelet, refused":                 {of("w-1", "Kubelets", "Restarting", failed("Permanent"), started(noon)), at("w-1", "b1", ""), kind.Action{Verdict: kind.Fail, Message: "Restarting failed: no"}},
		"kubelet, restarted":               {of("w-1", "Kubelets", "Restarting", failed("Permanent"), started(noon.Add(-time.Second))), at("w-1", "b1", ""), done},
		"kubelet, restarted, not well yet": {of("w-1", "Kubelets", "Restarting", succeeded, started(noon.Add(-time.Second))), at("w-1", "b1", "", func(_ *kind.Observation, own *View) { own.Services[0].Healthy = false }), waits("waiting until the kubelet is healthy")},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(New(nil, nil, nil, nil).Next(scope(), row.unit, row.seen)).To(Equal(row.want))
		})
	}
}

// looked is a look at a cluster in which all is well.
func looked(changes ...func(*View)) View {
	own := View{Target: gate.View{Nodes: map[string]kube.Node{}, Etcd: map[string]gate.EtcdView{}}, Revision: 12, Wanted: 12}
	members := []talos.EtcdMember{{ID: 1, Started: true}, {ID: 2, Started: true}, {ID: 3, Started: true}}
	for i, name := range []string{"cp-1", "cp-2", "cp-3", "w-1"} {
		own.Target.Nodes[name] = kube.Node{Name: name, Ready: true}
		if i < 3 {
			own.Target.Etcd["c1-"+name] = gate.EtcdView{Etcd: talos.Etcd{MemberID: uint64(i + 1), Leader: 1, Members: members}}
			own.Pods = append(own.Pods, kube.ComponentPod{Component: "kube-apiserver", Node: name, Ready: true})
		}
	}
	for _, change := range changes {
		change(&own)
	}
	return own
}

func nodeIs(name string, ready bool) func(*View) {
	return func(own *View) { own.Target.Nodes[name] = kube.Node{Name: name, Ready: ready} }
}

func answers(changes map[string]Machine) View {
	own := View{Machines: map[string]Machine{}}
	for _, name := range []string{"cp-1", "cp-2", "cp-3"} {
		own.Machines["c1-"+name] = Machine{UUID: "uuid-" + name}
	}
	for name, is := range changes {
		own.Machines[name] = is
	}
	return own
}

func noQuorum(own *View) {
	for name, etcd := range own.Target.Etcd {
		etcd.Leader = 0
		own.Target.Etcd[name] = etcd
	}
}

func TestNextOfTheCluster(t *testing.T) {
	found := kind.Action{Verdict: kind.Done, Message: "found"}
	for name, row := range map[string]struct {
		unit kind.Unit
		seen View
		want kind.Action
	}{
		"check": {whole("Check", ""), answers(nil), call("Checking")},
		"check, one does not answer": {whole("Check", ""), answers(map[string]Machine{"c1-cp-2": {Trouble: "no answer"}}),
			stands("TargetReachable", "control plane c1-cp-2 does not answer (no answer): power it on"+lost+"cp-2")},
		"check, one is another": {whole("Check", ""), answers(map[string]Machine{"c1-cp-3": {UUID: "x"}}),
			kind.Action{Verdict: kind.Fail, Message: `the machine at at-cp-3 has UUID "x", and control plane c1-cp-3 has "uuid-cp-3"`}},
		"checked":             {whole("Check", "Checking", succeeded), answers(nil), found},
		"check failed":        {whole("Check", "Checking", failed("Permanent")), answers(nil), kind.Action{Verdict: kind.Fail, Message: "Checking failed: no"}},
		"snapshot":            {whole("Snapshot", ""), looked(), call("Snapshotting")},
		"snapshot, one is up": {whole("Snapshot", ""), looked(noQuorum, func(own *View) { own.Target.Etcd["c1-cp-2"] = gate.EtcdView{Etcd: talos.Etcd{MemberID: 2, Leader: 2}} }), call("Snapshotting")},
		"snapshot, no etcd": {whole("Snapshot", ""), looked(noQuorum), stands("EtcdHealthy", "the etcd member of c1-cp-1 has no leader: no snapshot of what runs now can be taken. "+
			"To go on without one, delete this operation and start it with: --no-safety-snapshot")},
		"snapshot taken":     {whole("Snapshot", "Snapshotting", succeeded), View{}, kind.Action{Verdict: kind.Done}},
		"snapshot not taken": {whole("Snapshot", "Snapshotting", failed("Permanent")), View{}, kind.Action{Verdict: kind.Fail, Message: "Snapshotting failed: no"}},
		"clean":              {whole("Clean", ""), looked(), call("Cleaning")},
		"clean, no API":      {whole("Clean", ""), looked(func(own *View) { own.Target.NodesTrouble = "no answer" }), stands("TargetReachable", "the Kubernetes API of the cluster cannot be read: no answer")},
		"clean, one that is not gone yet": {whole("Clean", ""), looked(nodeIs("w-9", true)), stands("NodesReady", "Node w-9 came back with the snapshot, and no machine of the cluster is it: "+
			"waiting until Kubernetes finds that it is not Ready; if it is not to be deleted, bring its machine to the hub")},
		"clean, one that is gone": {whole("Clean", ""), looked(nodeIs("w-9", false)), call("Cleaning")},
		"clean, a foreigner":      {whole("Clean", ""), looked(func(own *View) { own.Target.Nodes["x"] = kube.Node{Name: "x", OSImage: "Windows", Ready: true} }), call("Cleaning")},
		"cleaned":                 {whole("Clean", "Cleaning", succeeded), View{}, found},
		"cleaning failed":         {whole("Clean", "Cleaning", failed("Permanent")), View{}, kind.Action{Verdict: kind.Fail, Message: "Cleaning failed: no"}},
		"verify":                  {whole("Verify", ""), looked(), kind.Action{Verdict: kind.Done}},
		"verify, a worker away":   {whole("Verify", ""), looked(nodeIs("w-1", false)), kind.Action{Verdict: kind.Done, Message: "not Ready: c1-w-1"}},
		"verify, etcd":            {whole("Verify", ""), looked(noQuorum), waitsIn("Verifying", "the etcd member of c1-cp-1 has no leader")},
		"verify, no API":          {whole("Verify", ""), looked(func(own *View) { own.PodsTrouble = "no answer" }), waitsIn("Verifying", "the Kubernetes API of the cluster cannot be read: no answer")},
		"verify, no Node":         {whole("Verify", "Verifying"), looked(nodeIs("cp-2", false)), waitsIn("Verifying", "Node cp-2 of control plane c1-cp-2 is not Ready")},
		"verify, no API server":   {whole("Verify", ""), looked(func(own *View) { own.Pods[1].Ready = false }), waitsIn("Verifying", "kube-apiserver on cp-2 is not ready")},
		"verify, another etcd":    {whole("Verify", ""), looked(func(own *View) { own.Revision = 3 }), kind.Action{Verdict: kind.Fail, Message: "etcd is at revision 3, and the snapshot holds 12: it has not begun with the snapshot"}},
		"verify, no facts":        {whole("Verify", ""), looked(func(own *View) { own.WantedTrouble = "gone" }), waitsIn("Verifying", "gone")},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(New(nil, nil, nil, nil).Next(scope(), row.unit, kind.Observation{Own: row.seen})).To(Equal(row.want))
		})
	}
}

func TestSettle(t *testing.T) {
	park := kind.Action{Verdict: kind.Park}
	gaveUp := func(u *v1alpha1.UnitStatus) { u.FailureTime = metav1.NewTime(noon) }
	for name, row := range map[string]struct {
		unit kind.Unit
		seen kind.Observation
		want kind.Action
	}{
		"not begun":          {of("cp-1", "Wipe", ""), at("cp-1", "b1", "Running"), park},
		"failed":             {of("cp-1", "Wipe", "Resetting", gaveUp, failed("Permanent")), at("cp-1", "b1", "Running"), park},
		"asked":              {of("cp-1", "Wipe", "Resetting", booted("b1"), succeeded), at("cp-1", "b2", "Waiting"), waitsIn("Preparing", "waiting until it has come up as far as etcd")},
		"sent":               {of("cp-1", "Recover", "Recovering", succeeded), at("cp-1", "b2", "Preparing"), call("Bootstrapping", with("b2", ""))},
		"joining":            {of("cp-2", "Join", "Joining"), at("cp-2", "b2", "Preparing"), park},
		"awaited":            {of("w-1", "Kubelets", "Awaiting"), at("w-1", "", "", silent), park},
		"kubelet restarting": {of("w-1", "Kubelets", "Restarting", succeeded, started(noon)), at("w-1", "b1", ""), waits("waiting until the kubelet has started anew")},
		"checked":            {whole("Check", "Checking", succeeded), kind.Observation{}, kind.Action{Verdict: kind.Done, Message: "found"}},
		"cleaning":           {whole("Clean", "Cleaning", failed("Interrupted")), kind.Observation{}, park},
		"verifying":          {whole("Verify", "Verifying"), kind.Observation{}, park},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(New(nil, nil, nil, nil).Settle(scope(), row.unit, row.seen)).To(Equal(row.want))
		})
	}
}

// Nobody is wiped before every control plane has been looked at once more: a safety snapshot may have come in between, or a pause.
func TestNobodyIsWipedBeforeAllHaveAnswered(t *testing.T) {
	begin := of("cp-1", "Wipe", "")
	for name, row := range map[string]struct {
		change func(*kind.Observation, *View)
		begun  bool
		want   kind.Action
	}{
		"all answer": {change: func(*kind.Observation, *View) {}, want: call("Resetting", with("b1", "cp-1"))},
		"one has gone away": {change: told("c1-cp-3", Machine{Trouble: "no answer"}),
			want: stands("TargetReachable", "control plane c1-cp-3 does not answer (no answer): power it on"+lost+"cp-3")},
		"one is booting": {change: told("c1-cp-3", Machine{}),
			want: stands("TargetReachable", "control plane c1-cp-3 does not answer (it tells no UUID yet): power it on"+lost+"cp-3")},
		"one has come since": {change: func(_ *kind.Observation, own *View) { delete(own.Machines, "c1-cp-3") },
			want: stands("TargetReachable", "control plane c1-cp-3 does not answer (it was not asked yet): power it on"+lost+"cp-3")},
		"one is another": {change: told("c1-cp-3", Machine{UUID: "x"}),
			want: kind.Action{Verdict: kind.Fail, Message: `the machine at at-cp-3 has UUID "x", and control plane c1-cp-3 has "uuid-cp-3"`}},
		"one has another key by now": {change: told("c1-cp-3", Machine{UUID: "uuid-cp-3", Objections: []string{"c1-cp-3: no"}}),
			want: kind.Action{Verdict: kind.Fail, Message: "nothing was wiped, since things have changed since the check: c1-cp-3: no"}},
		"nobody can tell of the snapshot": {change: func(_ *kind.Observation, own *View) { own.WantedTrouble = "no" }, want: waits("waiting for the facts of the snapshot: no")},
		"another one is wiped already":    {change: told("c1-cp-3", Machine{Trouble: "no answer"}), begun: true, want: call("Resetting", with("b1", "cp-1"))},
	} {
		t.Run(name, func(t *testing.T) {
			s := scope()
			if row.begun {
				s.Units = []v1alpha1.UnitStatus{{Name: "c1-cp-3", Steps: []v1alpha1.StepRecord{{Stage: "Wipe", Step: "Resetting"}}}}
			}
			NewWithT(t).Expect(New(nil, nil, nil, nil).Next(s, begin, at("cp-1", "b1", "Running", row.change))).To(Equal(row.want))
		})
	}
}

// Nobody else may have the cluster from the first wipe until every control plane has joined.
func TestUnsafe(t *testing.T) {
	e := New(nil, nil, nil, nil)
	for _, unit := range []kind.Unit{
		of("cp-1", "Wipe", "Resetting"), of("cp-1", "Wipe", "Resetting", failed("Interrupted")), of("cp-1", "Wipe", "Preparing"), of("cp-1", "Recover", ""),
		of("cp-1", "Recover", "Recovering", failed("Permanent")), of("cp-1", "Recover", "Bootstrapping"), of("cp-1", "Recover", "Verifying"), of("cp-2", "Join", "Joining"),
	} {
		NewWithT(t).Expect(e.Unsafe(unit)).NotTo(BeEmpty(), "%s %s", unit.Status.Stage, unit.Status.Step)
	}
	for _, unit := range []kind.Unit{
		whole("Check", "Checking"), whole("Snapshot", "Snapshotting"), of("cp-1", "Wipe", ""), of("cp-1", "Wipe", "Resetting", failed("Permanent")),
		of("w-1", "Kubelets", "Restarting"), whole("Clean", "Cleaning"), whole("Verify", "Verifying"),
	} {
		NewWithT(t).Expect(e.Unsafe(unit)).To(BeEmpty(), "%s %s", unit.Status.Stage, unit.Status.Step)
	}
}
