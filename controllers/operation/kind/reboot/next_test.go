// SPDX-License-Identifier: Apache-2.0

package reboot

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

const owner = "default/op-1"

// at is a unit in a step, whose reboot was asked for when the boot ID was "old" if the step is that far.
func at(step v1alpha1.OperationStep, change ...func(*v1alpha1.UnitStatus)) kind.Unit {
	unit := kind.Unit{
		Status: v1alpha1.UnitStatus{Name: "c1-cp-1", Step: step},
		Machine: &v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Name: "c1-cp-1"},
			Spec:       v1alpha1.TalosMachineSpec{Role: "ControlPlane", Address: "10.0.0.1", UUID: "uuid-1"},
			Status:     v1alpha1.TalosMachineStatus{NodeName: "cp-1"},
		},
	}
	switch step {
	case "Rebooting", "Verifying", "Uncordoning":
		unit.Status.PreRebootBootID = "old"
	}
	for _, c := range change {
		c(&unit.Status)
	}
	return unit
}

func succeeded(u *v1alpha1.UnitStatus) { u.Outcome = &v1alpha1.CallOutcome{Result: "Succeeded"} }

func failed(class v1alpha1.ErrorClass) func(*v1alpha1.UnitStatus) {
	return func(u *v1alpha1.UnitStatus) {
		u.Outcome = &v1alpha1.CallOutcome{Result: "Failed", Class: class, Message: "it broke"}
	}
}

func neverAsked(u *v1alpha1.UnitStatus) { u.PreRebootBootID = "" }

// gaveUp is a unit whose failure paused the operation.
func gaveUp(u *v1alpha1.UnitStatus) {
	failed("Permanent")(u)
	u.FailureTime = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
}

// well is a follower of three that runs with a boot ID, and whose Node agrees.
func well(bootID string, change ...func(*kind.Observation)) kind.Observation {
	seen := kind.Observation{
		Talos: talos.Machine{BootID: bootID, UUID: "uuid-1", Stage: "running", Ready: true, NodeName: "cp-1"},
		Etcd: &talos.Etcd{MemberID: 1, Leader: 2, Members: []talos.EtcdMember{
			{ID: 1, Started: true}, {ID: 2, Started: true}, {ID: 3, Started: true},
		}},
		Node: &kube.Node{Name: "cp-1", Ready: true, BootID: bootID},
	}
	for _, c := range change {
		c(&seen)
	}
	return seen
}

func leading(o *kind.Observation)  { o.Etcd.Leader = o.Etcd.MemberID }
func cordoned(o *kind.Observation) { o.Node.Unschedulable, o.Node.CordonedBy = true, owner }
func cordonedByOther(o *kind.Observation) {
	o.Node.Unschedulable, o.Node.CordonedBy = true, "default/op-0"
}
func cordonedByAdmin(o *kind.Observation) { o.Node.Unschedulable = true }
func rebootingStage(o *kind.Observation)  { o.Talos.Stage = "rebooting" }
func silent(o *kind.Observation) {
	*o = kind.Observation{TalosTrouble: "no answer", NodeTrouble: "no answer"}
}
func noKube(o *kind.Observation)    { o.Node, o.NodeTrouble = nil, "no answer" }
func noStorage(o *kind.Observation) { o.StorageTrouble = "no answer" }
func replicas(n int) func(*kind.Observation) {
	return func(o *kind.Observation) { o.Storage.Replicas = n }
}

func evacuatedBy(owner string) func(*kind.Observation) {
	return func(o *kind.Observation) { o.Storage.EvacuatedBy = owner }
}
func noNode(o *kind.Observation) { o.Node = nil }

func call(step v1alpha1.OperationStep) kind.Action { return kind.Action{Verdict: "Call", Step: step} }

func askReboot(bootID string) kind.Action {
	return kind.Action{Verdict: "Call", Step: "Rebooting", PreRebootBootID: bootID, NodeName: "cp-1"}
}

// unseen waits for the Kubernetes API, for as long as it takes.
var unseen = kind.Action{Verdict: "Wait", Reason: "TargetReachable", Message: "the Kubernetes API of the cluster cannot be read: no answer"}

func wait(message string) kind.Action { return kind.Action{Verdict: "Wait", Message: message} }

func proven(kind.Unit, kind.Observation) *kind.Action { return nil }

func scope(machines int) kind.Scope { return kind.Scope{Owner: owner, Machines: machines} }

// Case C1, D7, B23: leadership first, then the drain, then the reboot; a single machine has nowhere to drain to.
func TestCaseD7Begin(t *testing.T) {
	for name, row := range map[string]struct {
		machines int
		seen     kind.Observation
		want     kind.Action
	}{
		"follower":                      {3, well("b"), call("Draining")},
		"leader":                        {3, well("b", leading), call("Forfeiting")},
		"worker":                        {3, well("b", func(o *kind.Observation) { o.Etcd = nil }), call("Draining")},
		"leader of itself":              {3, well("b", leading, func(o *kind.Observation) { o.Etcd.Members = o.Etcd.Members[:1] }), call("Draining")},
		"single machine":                {1, well("b", leading, func(o *kind.Observation) { o.Etcd.Members = o.Etcd.Members[:1] }), askReboot("b")},
		"single machine, no Kubernetes": {1, well("b", noKube), askReboot("b")},
		"no Kubernetes":                 {3, well("b", noKube), unseen},
		"replicas":                      {3, well("b", replicas(2)), call("Evacuating")},
		"replicas of a leader":          {3, well("b", replicas(2), leading), call("Forfeiting")},
		"replicas, single machine":      {1, well("b", replicas(2)), askReboot("b")},
		"no sight of the storage":       {3, well("b", noStorage), kind.Action{Verdict: "Wait", Reason: "TargetReachable", Message: "the storage of the cluster cannot be read: no answer"}},
		"single machine, no sight":      {1, kind.Observation{TalosTrouble: "no answer"}, kind.Action{Verdict: "Wait", Reason: "TargetReachable", Message: "machine c1-cp-1 does not answer: no answer"}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Begin(scope(row.machines), at(""), row.seen, Way{})).To(Equal(row.want))
		})
	}
}

func TestNext(t *testing.T) {
	verify := kind.Action{Verdict: "Wait", Step: "Verifying", Message: "waiting until the machine is ready"}
	otherBoot := wait("waiting for another boot ID: no answer")
	stillUp := func(stage string) kind.Action {
		return wait(`still up in stage "` + stage + `", boot ID unchanged; if it hangs: talosctl -n 10.0.0.1 reboot --mode force, or cycle its power`)
	}
	for name, row := range map[string]struct {
		unit     kind.Unit
		machines int
		seen     kind.Observation
		want     kind.Action
	}{
		"forfeited":                          {at("Forfeiting", succeeded), 3, well("b"), call("Draining")},
		"forfeited, single machine":          {at("Forfeiting", succeeded), 1, well("b"), askReboot("b")},
		"forfeiting failed":                  {at("Forfeiting", failed("Permanent")), 3, well("b"), kind.Action{Verdict: "Fail", Message: "Forfeiting failed: it broke"}},
		"forfeited, replicas":                {at("Forfeiting", succeeded), 3, well("b", replicas(1)), call("Evacuating")},
		"forfeited, no Kubernetes":           {at("Forfeiting", succeeded), 3, well("b", noKube), unseen},
		"evacuated":                          {at("Evacuating", succeeded), 3, well("b"), call("Draining")},
		"evacuating timed out":               {at("Evacuating", failed("Timeout")), 3, well("b", replicas(1)), kind.Action{Verdict: "Fail", Message: "Evacuating failed: it broke"}},
		"drained, replicas came back":        {at("Draining", succeeded), 3, well("b", cordoned, replicas(1)), call("Evacuating")},
		"drained, no sight of the storage":   {at("Draining", succeeded), 3, well("b", cordoned, noStorage), kind.Action{Verdict: "Wait", Reason: "TargetReachable", Message: "the storage of the cluster cannot be read: no answer"}},
		"back, the storage to be restored":   {at("Verifying"), 3, well("new", evacuatedBy(owner)), kind.Action{Verdict: "Call", Step: "Uncordoning", PreRebootBootID: "old"}},
		"back, evacuated by another":         {at("Verifying"), 3, well("new", evacuatedBy("somebody")), kind.Action{Verdict: "Done"}},
		"back, no sight of the storage":      {at("Verifying"), 3, well("new", noStorage), wait("waiting for the storage: no answer")},
		"drained":                            {at("Draining", succeeded), 3, well("b", cordoned), askReboot("b")},
		"drained, then silent":               {at("Draining", succeeded), 3, well("b", silent), kind.Action{Verdict: "Wait", Reason: "TargetReachable", Message: "machine c1-cp-1 does not answer: no answer"}},
		"drained, and uncordoned since":      {at("Draining", succeeded), 3, well("b"), call("Draining")},
		"drained, cordoned by an admin":      {at("Draining", succeeded), 3, well("b", cordonedByAdmin), askReboot("b")},
		"drained, cordoned by another":       {at("Draining", succeeded), 3, well("b", cordonedByOther), askReboot("b")},
		"drained, no Kubernetes":             {at("Draining", succeeded), 3, well("b", noKube), unseen},
		"drained, the Node is gone":          {at("Draining", succeeded), 3, well("b", noNode), askReboot("b")},
		"drain failed (D1)":                  {at("Draining", failed("Timeout")), 3, well("b"), kind.Action{Verdict: "Fail", Message: "Draining failed: it broke"}},
		"reboot asked, nothing yet":          {at("Rebooting", succeeded), 3, well("old"), stillUp("running")},
		"reboot asked, dark":                 {at("Rebooting", succeeded), 3, well("", silent), otherBoot},
		"another boot ID (A4)":               {at("Rebooting", succeeded), 3, well("new", func(o *kind.Observation) { o.Talos.Stage = "booting" }), verify},
		"failed, and rebooted anyway (C18)":  {at("Rebooting", failed("Permanent")), 3, well("new"), verify},
		"refused":                            {at("Rebooting", failed("Permanent")), 3, well("old"), kind.Action{Verdict: "Fail", RetryStep: "Draining", Message: "Rebooting failed: it broke"}},
		"refused, single machine":            {at("Rebooting", failed("Permanent")), 1, well("old"), kind.Action{Verdict: "Fail", Message: "Rebooting failed: it broke"}},
		"hub stopped before it arrived (E6)": {at("Rebooting", failed("Interrupted")), 3, well("old", cordoned), askReboot("old")},
		"hub stopped, uncordoned since":      {at("Rebooting", failed("Interrupted")), 3, well("old"), call("Draining")},
		"hub stopped, no Kubernetes":         {at("Rebooting", failed("Interrupted")), 3, well("old", noKube), unseen},
		"hub stopped, single machine":        {at("Rebooting", failed("Interrupted")), 1, well("old", noKube), askReboot("old")},
		"hub stopped, the Node is gone":      {at("Rebooting", failed("Interrupted")), 3, well("old", noNode), askReboot("old")},
		"rebooted, no Kubernetes":            {at("Rebooting", failed("Interrupted")), 3, well("new", noKube), verify},
		"hub stopped after it arrived":       {at("Rebooting", failed("Interrupted")), 3, well("old", rebootingStage), stillUp("rebooting")},
		"hub stopped, dark":                  {at("Rebooting", failed("Interrupted")), 3, well("", silent), otherBoot},
		"connection lost, still there":       {at("Rebooting", failed("Retryable")), 3, well("old", cordoned), askReboot("old")},
		"another sequence runs (B18)":        {at("Rebooting", failed("InProgress")), 3, well("old", cordoned), askReboot("old")},
		"back":                               {at("Verifying"), 3, well("new"), kind.Action{Verdict: "Done"}},
		"back, to be uncordoned":             {at("Verifying"), 3, well("new", cordoned), kind.Action{Verdict: "Call", Step: "Uncordoning", PreRebootBootID: "old"}},
		"back, cordoned by another (D3)":     {at("Verifying"), 3, well("new", cordonedByOther), kind.Action{Verdict: "Done"}},
		"back, cordoned by an admin (D3)":    {at("Verifying"), 3, well("new", cordonedByAdmin), kind.Action{Verdict: "Done"}},
		"not back":                           {at("Verifying"), 3, well("new", noNode), wait("waiting for the Node to register")},
		"uncordoned":                         {at("Uncordoning", succeeded), 3, well("new"), kind.Action{Verdict: "Done"}},
		"uncordoning failed":                 {at("Uncordoning", failed("Timeout")), 3, well("new", cordoned), kind.Action{Verdict: "Fail", Message: "Uncordoning failed: it broke"}},
		"uncordoned before the reboot":       {at("Uncordoning", succeeded, neverAsked), 3, well("old"), kind.Action{Verdict: "Park"}},
		"uncordoned, without a look":         {at("Uncordoning", succeeded), 3, kind.Observation{}, kind.Action{Verdict: "Done"}},
		"uncordoned early, without a look":   {at("Uncordoning", succeeded, neverAsked), 3, kind.Observation{}, kind.Action{Verdict: "Park"}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Next(scope(row.machines), row.unit, row.seen, Way{Proof: proven})).To(Equal(row.want))
		})
	}
}

// A machine that answers must prove itself, even before it is ready.
func TestVerifyingAsksForProof(t *testing.T) {
	g := NewWithT(t)
	bad := kind.Action{Verdict: "Fail", Message: "fell back"}
	proof := func(kind.Unit, kind.Observation) *kind.Action { return &bad }
	booting := func(o *kind.Observation) { o.Talos.Stage = "booting" }
	g.Expect(Next(scope(3), at("Verifying"), well("new", booting), Way{Proof: proof})).To(Equal(bad))
	g.Expect(Next(scope(3), at("Verifying"), well("new", silent), Way{Proof: proof})).To(Equal(wait("waiting for the Talos API: no answer")), "a dark machine proves nothing")
}

// Case B10: the machine that came back must be the one that went away.
func TestCaseB10CheckIdentity(t *testing.T) {
	for uuid, want := range map[string]*kind.Action{
		"uuid-1": nil,
		"uuid-2": {Verdict: "Fail", Message: `the machine at 10.0.0.1 has UUID "uuid-2", but c1-cp-1 has UUID "uuid-1"`},
		"":       {Verdict: "Wait", Message: "waiting until the machine tells its UUID"},
	} {
		seen := well("new", func(o *kind.Observation) { o.Talos.UUID = uuid })
		NewWithT(t).Expect(CheckIdentity(at("Verifying"), seen)).To(Equal(want), uuid)
	}
}

// Case B17: Node Ready is not enough, and neither is Talos.
func TestCaseB17NotBack(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*kind.Observation)
		want   string
	}{
		"back":                {func(*kind.Observation) {}, ""},
		"worker":              {func(o *kind.Observation) { o.Etcd = nil }, ""},
		"cordoned":            {cordonedByAdmin, ""},
		"dark":                {silent, "waiting for the Talos API: no answer"},
		"booting":             {func(o *kind.Observation) { o.Talos.Stage = "booting" }, `waiting for stage running, the machine is in stage "booting"`},
		"unmet":               {func(o *kind.Observation) { o.Talos.Ready, o.Talos.Unmet = false, []string{"time: not in sync"} }, "waiting until the machine is ready: [time: not in sync]"},
		"no Kubernetes":       {noKube, "waiting for the Kubernetes API: no answer"},
		"no Node":             {noNode, "waiting for the Node to register"},
		"Node not Ready":      {func(o *kind.Observation) { o.Node.Ready = false }, "waiting until the Node is Ready"},
		"Node of before":      {func(o *kind.Observation) { o.Node.BootID = "old" }, "waiting until the Node is Ready"},
		"etcd is dark":        {func(o *kind.Observation) { o.Etcd, o.EtcdTrouble = nil, "no answer" }, "waiting for etcd: no answer"},
		"no leader":           {func(o *kind.Observation) { o.Etcd.Leader = 0 }, "waiting until etcd has a leader"},
		"learner (B14)":       {func(o *kind.Observation) { o.Etcd.Learner = true }, "waiting until the etcd member is a voter"},
		"etcd errors":         {func(o *kind.Observation) { o.Etcd.Errors = []string{"corrupt"} }, "waiting until the etcd member is healthy: [corrupt]"},
		"member lost (B3)":    {func(o *kind.Observation) { o.Etcd.MemberID = 9 }, "waiting until the etcd member is back among the members"},
		"member not started":  {func(o *kind.Observation) { o.Etcd.Members[0].Started = false }, "waiting until the etcd member is back among the members"},
		"another not started": {func(o *kind.Observation) { o.Etcd.Members[2].Started = false }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(NotBack(kind.Scope{}, well("new", row.change))).To(Equal(row.want))
		})
	}
}

// Cases D2 and D4: before the reboot the way goes back, and takes only an own cordon off; after it the way goes on.
func TestCaseD2D4Settle(t *testing.T) {
	for name, row := range map[string]struct {
		unit kind.Unit
		seen kind.Observation
		want kind.Action
	}{
		"not begun":                    {at(""), well("b"), kind.Action{Verdict: "Park"}},
		"forfeited":                    {at("Forfeiting", succeeded), well("b"), kind.Action{Verdict: "Park"}},
		"drained":                      {at("Draining", succeeded), well("b", cordoned), call("Uncordoning")},
		"drain cancelled":              {at("Draining", failed("Interrupted")), well("b"), kind.Action{Verdict: "Park"}},
		"drained, Talos is dark":       {at("Draining", succeeded), well("b", cordoned, func(o *kind.Observation) { o.TalosTrouble = "no answer" }), call("Uncordoning")},
		"drained, cordon of another":   {at("Draining", succeeded), well("b", cordonedByOther), kind.Action{Verdict: "Park"}},
		"drained, cordon of an admin":  {at("Draining", succeeded), well("b", cordonedByAdmin), kind.Action{Verdict: "Park"}},
		"drained, no sight of it":      {at("Draining", succeeded), well("b", noKube), wait("waiting for the Kubernetes API, to take the cordon off: no answer")},
		"evacuated":                    {at("Evacuating", succeeded), well("b", evacuatedBy(owner)), call("Uncordoning")},
		"evacuated by another":         {at("Evacuating", succeeded), well("b", evacuatedBy("somebody")), kind.Action{Verdict: "Park"}},
		"evacuated, no sight of it":    {at("Evacuating", succeeded), well("b", noStorage), wait("waiting for the storage, to give the Node back to it: no answer")},
		"drained, the Node is gone":    {at("Draining", succeeded), well("b", noNode), kind.Action{Verdict: "Park"}},
		"uncordoned before the reboot": {at("Uncordoning", succeeded, neverAsked), well("b"), kind.Action{Verdict: "Park"}},
		"reboot asked":                 {at("Rebooting", succeeded), well("old", cordoned), wait(`still up in stage "running", boot ID unchanged; if it hangs: talosctl -n 10.0.0.1 reboot --mode force, or cycle its power`)},
		"verifying":                    {at("Verifying"), well("new", cordoned), kind.Action{Verdict: "Call", Step: "Uncordoning", PreRebootBootID: "old"}},
		"uncordoned after the reboot":  {at("Uncordoning", succeeded), well("new"), kind.Action{Verdict: "Done"}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Settle(scope(3), row.unit, row.seen, Way{Proof: proven})).To(Equal(row.want))
		})
	}
}

// A unit that failed is not taken on: what the operation left on its Node goes, however often that has to be tried, and that is all.
func TestGiveUp(t *testing.T) {
	park := kind.Action{Verdict: "Park"}
	for name, row := range map[string]struct {
		step v1alpha1.OperationStep
		seen kind.Observation
		want kind.Action
	}{
		"nothing begun":                   {"", well("b"), park},
		"no leader moved":                 {"Forfeiting", well("b"), park},
		"replicas stayed":                 {"Evacuating", well("b", evacuatedBy(owner)), call("Uncordoning")},
		"the drain failed":                {"Draining", well("b", cordoned), call("Uncordoning")},
		"the drain failed and was undone": {"Draining", well("b"), park},
		"the reboot failed":               {"Rebooting", well("old", cordoned), call("Uncordoning")},
		"the reboot failed, dark":         {"Rebooting", well("old", silent), wait("waiting for the Kubernetes API, to take the cordon off: no answer")},
		"did not come back":               {"Verifying", well("new", cordoned, func(o *kind.Observation) { o.Talos, o.TalosTrouble = talos.Machine{}, "no answer" }), call("Uncordoning")},
		"came back as another":            {"Verifying", well("new", cordoned, func(o *kind.Observation) { o.Talos.UUID = "uuid-2" }), call("Uncordoning")},
		"cordoned by another (D3)":        {"Verifying", well("new", cordonedByOther), park},
		"cordoned by an admin (D3)":       {"Verifying", well("new", cordonedByAdmin), park},
		"no Kubernetes":                   {"Verifying", well("new", noKube), wait("waiting for the Kubernetes API, to take the cordon off: no answer")},
		"the Node is gone":                {"Verifying", well("new", noNode), park},
		"uncordoning failed":              {"Uncordoning", well("new", cordoned), call("Uncordoning")},
		"uncordoned, without a look":      {"Uncordoning", kind.Observation{}, park},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(GiveUp(scope(3), at(row.step, gaveUp), row.seen)).To(Equal(row.want))
		})
	}
}

// The kill tests, the deadlines and the fences are made from this table.
func TestSteps(t *testing.T) {
	NewWithT(t).Expect(Steps()).To(Equal([]kind.Step{
		{Name: "Forfeiting", Repeat: "Safe", Timeout: 2 * time.Minute},
		{Name: "Evacuating", Repeat: "Safe", Cancel: true, Timeout: 30 * time.Minute},
		{Name: "Draining", Repeat: "Safe", Cancel: true, Timeout: 10 * time.Minute},
		{Name: "Rebooting", Repeat: "BootIDGuarded", Gated: true, Timeout: 15 * time.Minute},
		{Name: "Verifying", Waits: true, Timeout: 15 * time.Minute},
		{Name: "Uncordoning", Repeat: "Safe", Blind: true, Harmless: true, Timeout: 2 * time.Minute},
	}))
}

// Case C7: a machine that comes back as another Node stops the operation. Its name is judged once it has booted, and may be written in
// another case (B7).
func TestCaseC7NodeRenamed(t *testing.T) {
	was := func(name string) func(*v1alpha1.UnitStatus) {
		return func(u *v1alpha1.UnitStatus) { u.NodeName = name }
	}
	is := func(name string) func(*kind.Observation) {
		return func(o *kind.Observation) { o.Talos.NodeName = name }
	}
	unready := func(o *kind.Observation) { o.Talos.Ready, o.Talos.Unmet = false, []string{"nodeReady: x"} }
	booting := func(o *kind.Observation) { o.Talos.Stage = "booting" }
	renamed := kind.Action{Verdict: "Fail", Message: "NodeRenamed: it was Node cp-1 and came back as talos-x1; give it its old hostname in its machine config and remove Node talos-x1"}
	done := kind.Action{Verdict: "Done"}
	for name, row := range map[string]struct {
		unit kind.Unit
		seen kind.Observation
		want kind.Action
	}{
		"the same":             {at("Verifying", was("cp-1")), well("new", is("cp-1")), done},
		"in another case (B7)": {at("Verifying", was("CP-1")), well("new", is("cp-1")), done},
		"renamed":              {at("Verifying", was("cp-1")), well("new", is("talos-x1")), renamed},
		"renamed, not ready":   {at("Verifying", was("cp-1")), well("new", is("talos-x1"), unready), renamed},
		"still booting":        {at("Verifying", was("cp-1")), well("new", is("talos-x1"), booting), wait(`waiting for stage running, the machine is in stage "booting"`)},
		"no name yet":          {at("Verifying", was("cp-1")), well("new", is("")), done},
		"of an older hub":      {at("Verifying"), well("new", is("talos-x1")), done},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Next(scope(3), row.unit, row.seen, Way{Proof: proven})).To(Equal(row.want))
		})
	}
	t.Run("the hub has taken note of the new name", func(t *testing.T) {
		unit := at("Verifying", was("cp-1"))
		unit.Machine.Status.NodeName = "talos-x1"
		NewWithT(t).Expect(Next(scope(3), unit, well("new", is("talos-x1")), Way{Proof: proven})).To(Equal(renamed))
	})
}

// Case D9: a reboot that hangs says so, and says what helps; a retry does not ask for another one while it is under way.
func TestCaseD9RebootHangs(t *testing.T) {
	g := NewWithT(t)
	hangs := wait(`still up in stage "rebooting", boot ID unchanged; if it hangs: talosctl -n 10.0.0.1 reboot --mode force, or cycle its power`)
	for name, unit := range map[string]kind.Unit{
		"asked":                      at("Rebooting", succeeded),
		"timed out":                  at("Rebooting", failed("Timeout")),
		"retried, or the hub killed": at("Rebooting", failed("Interrupted")),
	} {
		g.Expect(Next(scope(3), unit, well("old", cordoned, rebootingStage), Way{Proof: proven})).To(Equal(hangs), name)
	}
	upgrading := func(o *kind.Observation) { o.Talos.Stage = "upgrading" }
	g.Expect(Next(scope(3), at("Rebooting", failed("Interrupted")), well("old", cordoned, upgrading), Way{Proof: proven}).Verdict).To(BeEquivalentTo("Wait"))
}

// A kind's own call that ends in a reboot goes the way of a reboot, with the image in its claim.
func TestNextWithAnotherCall(t *testing.T) {
	way := Way{Proof: proven, Step: "Upgrading", Image: "an/image:v1"}
	ask := kind.Action{Verdict: "Call", Step: "Upgrading", PreRebootBootID: "b", NodeName: "cp-1", Image: "an/image:v1"}
	asked := func(change ...func(*v1alpha1.UnitStatus)) kind.Unit {
		return at("Upgrading", append(change, func(u *v1alpha1.UnitStatus) { u.PreRebootBootID = "b" })...)
	}
	upgrading := func(o *kind.Observation) { o.Talos.Stage = "upgrading" }
	up := func(stage string) kind.Action {
		return wait(`still up in stage "` + stage + `", boot ID unchanged; why an installation failed is in: talosctl -n 10.0.0.1 dmesg`)
	}
	for name, row := range map[string]struct {
		unit kind.Unit
		seen kind.Observation
		want kind.Action
	}{
		"drained":                      {at("Draining", succeeded), well("b", cordoned), ask},
		"told":                         {asked(succeeded), well("b", cordoned), up("running")},
		"installs":                     {asked(succeeded), well("b", cordoned, upgrading), up("upgrading")},
		"dark":                         {asked(succeeded), well("b", silent), wait("waiting for another boot ID: no answer")},
		"rebooted":                     {asked(succeeded), well("new", cordoned), kind.Action{Verdict: "Wait", Step: "Verifying", Message: "waiting until the machine is ready"}},
		"refused":                      {asked(failed("Permanent")), well("b"), kind.Action{Verdict: "Fail", RetryStep: "Draining", Message: "Upgrading failed: it broke"}},
		"hub stopped, it had not":      {asked(failed("Interrupted")), well("b", cordoned), ask},
		"hub stopped, it had":          {asked(failed("Interrupted")), well("b", cordoned, upgrading), up("upgrading")},
		"hub stopped, it has rebooted": {asked(failed("Interrupted")), well("new", cordoned), kind.Action{Verdict: "Wait", Step: "Verifying", Message: "waiting until the machine is ready"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(Next(scope(3), row.unit, row.seen, way)).To(Equal(row.want))
			if row.unit.Status.Step == "Upgrading" {
				g.Expect(Settle(scope(3), row.unit, row.seen, way)).To(Equal(row.want), "there is no way back from it")
			}
		})
	}
}
