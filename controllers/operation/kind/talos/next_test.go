// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

var (
	schematicA = strings.Repeat("a", 64)
	schematicB = strings.Repeat("b", 64)
)

func to(version, schematic string) kind.Scope {
	return kind.Scope{
		Owner: "default/op-1", Machines: 3,
		Target: v1alpha1.OperationTarget{TalosVersion: version, SchematicID: schematic},
	}
}

func unit(stage string, step v1alpha1.OperationStep, change ...func(*v1alpha1.UnitStatus)) kind.Unit {
	u := kind.Unit{
		Status:  v1alpha1.UnitStatus{Name: "c1-w-1", Stage: stage, Step: step, PreRebootBootID: "old"},
		Machine: &v1alpha1.TalosMachine{Spec: v1alpha1.TalosMachineSpec{Role: "Worker", Address: "10.0.1.1", UUID: "uuid-1"}},
	}
	u.Machine.Name, u.Machine.Status.NodeName = "c1-w-1", "w-1"
	if stage == "Upgrade" && step != "" && step != "Pulling" {
		u.Status.Steps = []v1alpha1.StepRecord{{Step: "Installing"}}
	}
	for _, c := range change {
		c(&u.Status)
	}
	return u
}

func succeeded(u *v1alpha1.UnitStatus) { u.Outcome = &v1alpha1.CallOutcome{Result: "Succeeded"} }

func failed(u *v1alpha1.UnitStatus) {
	u.Outcome = &v1alpha1.CallOutcome{Result: "Failed", Class: "Permanent", Message: "it broke"}
}

// gaveUp is a unit whose failure paused the operation.
func gaveUp(u *v1alpha1.UnitStatus) {
	failed(u)
	u.FailureTime = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
}

func resolved(image string) func(*v1alpha1.UnitStatus) {
	return func(u *v1alpha1.UnitStatus) { u.ResolvedImage = image }
}

// runs is a worker that is well and runs a version with a schematic.
func runs(version, schematic string, change ...func(*talos.Machine)) kind.Observation {
	seen := kind.Observation{
		Talos: talos.Machine{
			Version: version, SchematicID: schematic, BootID: "new", UUID: "uuid-1", Stage: "running", Ready: true, NodeName: "w-1", Platform: "metal",
		},
		Node: &kube.Node{Name: "w-1", Ready: true, BootID: "new"},
	}
	for _, c := range change {
		c(&seen.Talos)
	}
	return seen
}

// cordoned is what was seen, with the own cordon on the Node.
func cordoned(seen kind.Observation) kind.Observation {
	node := *seen.Node
	node.Unschedulable, node.CordonedBy = true, "default/op-1"
	seen.Node = &node
	return seen
}

func noPlatform(m *talos.Machine) { m.Platform = "" }
func stranger(m *talos.Machine)   { m.UUID = "uuid-2" }
func nameless(m *talos.Machine)   { m.UUID = "" }
func pendingKey(m *talos.Machine) { m.UpgradePending = true }
func booting(m *talos.Machine)    { m.Stage, m.Ready = "booting", false }
func notReady(m *talos.Machine)   { m.Ready = false }

func call(step v1alpha1.OperationStep) kind.Action { return kind.Action{Verdict: "Call", Step: step} }

func fail(message string, retryAt v1alpha1.OperationStep) kind.Action {
	return kind.Action{Verdict: "Fail", RetryStep: retryAt, Message: message}
}

var done = kind.Action{Verdict: "Done"}

func executor() *Executor { return New(nil, nil, "factory.talos.dev", nil) }

func TestBegin(t *testing.T) {
	pulled := resolved("factory.talos.dev/metal-installer/" + schematicA + ":v1.14.1")
	another := fail(`the machine at 10.0.1.1 has UUID "uuid-2", but c1-w-1 has UUID "uuid-1"`, "")
	unsettled := kind.Action{Verdict: "Wait", Reason: "MachineSettled", Message: "c1-w-1 has not found its new system good yet"}
	for name, row := range map[string]struct {
		scope kind.Scope
		stage string
		seen  kind.Observation
		want  kind.Action
	}{
		"pull":                           {to("v1.14.1", ""), "Pull", runs("v1.13.9", schematicA), call("Pulling")},
		"install":                        {to("v1.14.1", ""), "Upgrade", runs("v1.13.9", schematicA), call("Installing")},
		"there already (F1)":             {to("v1.14.1", ""), "Upgrade", runs("v1.14.1", schematicA), done},
		"there, cordoned by a failure":   {to("v1.14.1", ""), "Upgrade", cordoned(runs("v1.14.1", schematicA)), call("Uncordoning")},
		"there, with the schematic":      {to("v1.14.1", schematicA), "Upgrade", runs("v1.14.1", schematicA), done},
		"there, with another schematic":  {to("v1.14.1", schematicB), "Upgrade", runs("v1.14.1", schematicA), call("Installing")},
		"there, not found good yet":      {to("v1.14.1", ""), "Upgrade", runs("v1.14.1", schematicA, pendingKey), unsettled},
		"there, not found good, pull":    {to("v1.14.1", schematicA), "Pull", runs("v1.14.1", schematicA, pendingKey), unsettled},
		"installed, not rebooted":        {to("v1.14.1", ""), "Upgrade", runs("v1.13.9", schematicA, pendingKey), call("Installing")},
		"dark":                           {to("v1.14.1", ""), "Upgrade", kind.Observation{TalosTrouble: "no answer"}, kind.Action{Verdict: "Wait", Reason: "TargetReachable", Message: "machine c1-w-1 does not answer: no answer"}},
		"another machine (B10)":          {to("v1.14.1", ""), "Upgrade", runs("v1.13.9", schematicA, stranger), another},
		"another, to be pulled for":      {to("v1.14.1", ""), "Pull", runs("v1.13.9", schematicA, stranger), another},
		"another, which is there":        {to("v1.14.1", ""), "Upgrade", runs("v1.14.1", schematicA, stranger), another},
		"another, too old a host":        {to("v1.14.1", ""), "Pull", runs("v1.10.9", schematicA, stranger), another},
		"does not tell who it is":        {to("v1.14.1", ""), "Upgrade", runs("v1.14.1", schematicA, nameless), kind.Action{Verdict: "Wait", Reason: "MachineSettled", Message: "waiting until the machine tells its UUID"}},
		"too old a host":                 {to("v1.12.4", ""), "Pull", runs("v1.10.9", schematicA), fail("c1-w-1 runs Talos v1.10.9; this hub upgrades machines from v1.11.0 on", "")},
		"skips a minor (C16)":            {to("v1.14.1", ""), "Pull", runs("v1.12.4", schematicA), fail("c1-w-1: v1.14.1 skips a minor version after v1.12.4: go by way of the latest v1.13 first", "")},
		"no platform (C9)":               {to("v1.14.1", ""), "Pull", runs("v1.13.9", schematicA, noPlatform), kind.Action{Verdict: "Wait", Reason: "MachineSettled", Message: "c1-w-1 does not tell its platform yet"}},
		"newer than the target":          {to("v1.14.1", ""), "Pull", runs("v1.14.2", schematicA), fail("c1-w-1: v1.14.1 is older than the running v1.14.2: a downgrade is no upgrade", "")},
		"schematic unknown (C10)":        {to("v1.14.1", ""), "Pull", runs("v1.13.9", ""), fail("c1-w-1 does not tell its schematic: set spec.schematicID of the TalosCluster", "")},
		"schematic unknown, but ordered": {to("v1.14.1", schematicA), "Pull", runs("v1.13.9", ""), call("Pulling")},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(executor().Next(row.scope, unit(row.stage, "", pulled), row.seen)).To(Equal(row.want))
		})
	}
}

// A machine that came too late for the first stage, or whose status was lost, pulls before it installs.
func TestPullsBeforeItInstalls(t *testing.T) {
	g := NewWithT(t)
	scope, seen := to("v1.14.1", ""), runs("v1.13.9", schematicA)
	g.Expect(executor().Next(scope, unit("Upgrade", ""), seen)).To(Equal(call("Pulling")))
	g.Expect(executor().Next(scope, unit("Upgrade", "Pulling", succeeded), seen)).To(Equal(call("Installing")))
	g.Expect(executor().Next(scope, unit("Upgrade", "Pulling", succeeded), kind.Observation{})).To(Equal(call("Installing")), "without a look")
	g.Expect(executor().Next(scope, unit("Upgrade", "Pulling", failed), seen)).To(Equal(fail("Pulling failed: it broke", "")))
	g.Expect(executor().Next(scope, unit("Upgrade", ""), runs("v1.14.1", schematicA))).To(Equal(done), "what is there needs no image")
	g.Expect(executor().Next(scope, unit("Pull", "Pulling", succeeded), seen)).To(Equal(done), "the first stage only pulls")
	g.Expect(executor().Settle(scope, unit("Upgrade", "Pulling", succeeded), seen)).To(Equal(kind.Action{Verdict: "Park"}), "nothing is installed yet")
}

// A skipped minor is the only path that may be overridden.
func TestOverridden(t *testing.T) {
	g := NewWithT(t)
	scope := to("v1.14.1", "")
	g.Expect(overridden(scope, "TalosVersionPath")).To(BeFalse())
	scope.Spec.Overrides = []v1alpha1.GateOverride{{Gate: "TalosVersionPath", Reason: "x"}}
	g.Expect(overridden(scope, "TalosVersionPath")).To(BeTrue())
	g.Expect(overridden(scope, "TalosHostVersion")).To(BeFalse())
	g.Expect(executor().Next(scope, unit("Upgrade", ""), runs("v1.12.4", schematicA))).To(Equal(call("Draining")), "two minors at once")
	g.Expect(executor().Next(scope, unit("Pull", ""), runs("v1.14.2", schematicA)).Verdict).To(BeEquivalentTo("Fail"), "a downgrade stays refused")
}

func TestNext(t *testing.T) {
	installed := resolved("factory.talos.dev/metal-installer/" + schematicA + ":v1.14.1@sha256:" + schematicB)
	fellBack := "rebooted and runs v1.13.9 instead of v1.14.1: it did not reach the new system, or fell back to the old one"
	for name, row := range map[string]struct {
		scope kind.Scope
		unit  kind.Unit
		seen  kind.Observation
		want  kind.Action
	}{
		"pulled":                         {to("v1.14.1", ""), unit("Pull", "Pulling", succeeded), runs("v1.13.9", schematicA), done},
		"pull failed":                    {to("v1.14.1", ""), unit("Pull", "Pulling", failed), runs("v1.13.9", schematicA), fail("Pulling failed: it broke", "")},
		"installed":                      {to("v1.14.1", ""), unit("Upgrade", "Installing", succeeded), runs("v1.13.9", schematicA), call("Draining")},
		"installed, then dark":           {to("v1.14.1", ""), unit("Upgrade", "Installing", succeeded), kind.Observation{TalosTrouble: "no answer"}, kind.Action{Verdict: "Wait", Reason: "TargetReachable", Message: "machine c1-w-1 does not answer: no answer"}},
		"install failed":                 {to("v1.14.1", ""), unit("Upgrade", "Installing", failed, resolved("image")), runs("v1.13.9", schematicA), fail("Installing failed: it broke", "")},
		"install failed without image":   {to("v1.14.1", ""), unit("Upgrade", "Installing", failed), runs("v1.13.9", schematicA), fail("Installing failed: it broke", "Pulling")},
		"drained, does not install (C1)": {to("v1.14.1", ""), unit("Upgrade", "Draining", succeeded), cordoned(runs("v1.13.9", schematicA)), kind.Action{Verdict: "Call", Step: "Rebooting", PreRebootBootID: "new", NodeName: "w-1"}},
		"drained, and uncordoned since":  {to("v1.14.1", ""), unit("Upgrade", "Draining", succeeded), runs("v1.13.9", schematicA), call("Draining")},
		"there":                          {to("v1.14.1", ""), unit("Upgrade", "Verifying", installed), runs("v1.14.1", schematicA), done},
		"fell back (C2)":                 {to("v1.14.1", ""), unit("Upgrade", "Verifying", installed), runs("v1.13.9", schematicA), fail(fellBack, "Installing")},
		"fell back, seen early":          {to("v1.14.1", ""), unit("Upgrade", "Verifying", installed), runs("v1.13.9", schematicA, booting), fail(fellBack, "Installing")},
		"schematic fell back":            {to("v1.14.1", schematicB), unit("Upgrade", "Verifying", installed), runs("v1.14.1", schematicA), fail("runs v1.14.1 with schematic "+schematicA+" instead of "+schematicB+": it did not reach the new system, or fell back to the old one", "Installing")},
		"schematic lost (C10)":           {to("v1.14.1", ""), unit("Upgrade", "Verifying", installed), runs("v1.14.1", schematicB), fail("runs v1.14.1 with schematic "+schematicB+" instead of "+schematicA+": it did not reach the new system, or fell back to the old one", "Installing")},
		"schematic not known yet":        {to("v1.14.1", ""), unit("Upgrade", "Verifying", installed), runs("v1.14.1", "", booting), kind.Action{Verdict: "Wait", Message: `waiting for stage running, the machine is in stage "booting"`}},
		"not committed":                  {to("v1.14.1", ""), unit("Upgrade", "Verifying", installed), runs("v1.14.1", schematicA, pendingKey), kind.Action{Verdict: "Wait", Message: "waiting until Talos has found the new system good"}},
		"not committed, not ready":       {to("v1.14.1", ""), unit("Upgrade", "Verifying", installed), runs("v1.14.1", schematicA, pendingKey, notReady), kind.Action{Verdict: "Wait", Message: "waiting until the machine is ready: []"}},
		"another machine (B10)":          {to("v1.14.1", ""), unit("Upgrade", "Verifying", installed), runs("v1.13.9", schematicA, stranger), fail(`the machine at 10.0.1.1 has UUID "uuid-2", but c1-w-1 has UUID "uuid-1"`, "")},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(executor().Next(row.scope, row.unit, row.seen)).To(Equal(row.want))
		})
	}
}

// What is installed is what the next boot takes, so settling goes on from there, and back only from before.
func TestSettle(t *testing.T) {
	park := kind.Action{Verdict: "Park"}
	for name, row := range map[string]struct {
		unit kind.Unit
		want kind.Action
	}{
		"begun again":    {unit("Upgrade", ""), call("Uncordoning")},
		"pulled":         {unit("Pull", "Pulling", succeeded), park},
		"pull cancelled": {unit("Pull", "Pulling", failed), park},
		"installed":      {unit("Upgrade", "Installing", succeeded), call("Draining")},
		"drained":        {unit("Upgrade", "Draining", succeeded), kind.Action{Verdict: "Call", Step: "Rebooting", PreRebootBootID: "new", NodeName: "w-1"}},
		"install failed": {unit("Upgrade", "Installing", failed, resolved("image")), fail("Installing failed: it broke", "")},
		"drain fenced":   {unit("Upgrade", "Draining", failedAs("Interrupted")), call("Draining")},
		"drain failed":   {unit("Upgrade", "Draining", failedAs("Timeout")), fail("Draining failed: it broke", "")},
		"was fenced":     {unit("Upgrade", "Installing", failedAs("Interrupted"), resolved("image")), call("Installing")},
		"no exit code":   {unit("Upgrade", "Installing", failedAs("Timeout"), resolved("image")), call("Installing")},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(executor().Settle(to("v1.14.1", ""), row.unit, cordoned(runs("v1.13.9", schematicA)))).To(Equal(row.want))
		})
	}
}

// What failed is given up, even where the new system waits for its boot: the own cordon goes, and nothing is installed or rebooted.
func TestSettleAfterAFailure(t *testing.T) {
	park := kind.Action{Verdict: "Park"}
	before, after := runs("v1.13.9", schematicA), runs("v1.14.1", schematicB)
	noKube := kind.Observation{Talos: before.Talos, NodeTrouble: "no answer"}
	for name, row := range map[string]struct {
		stage string
		step  v1alpha1.OperationStep
		seen  kind.Observation
		want  kind.Action
	}{
		"before anything":            {"Upgrade", "", before, park},
		"pull":                       {"Pull", "Pulling", before, park},
		"install":                    {"Upgrade", "Installing", before, park},
		"install, cordoned before":   {"Upgrade", "Installing", cordoned(before), call("Uncordoning")},
		"drain":                      {"Upgrade", "Draining", before, park},
		"drain, still cordoned":      {"Upgrade", "Draining", cordoned(before), call("Uncordoning")},
		"reboot":                     {"Upgrade", "Rebooting", cordoned(before), call("Uncordoning")},
		"fell back":                  {"Upgrade", "Verifying", cordoned(before), call("Uncordoning")},
		"schematic lost":             {"Upgrade", "Verifying", cordoned(after), call("Uncordoning")},
		"no Kubernetes":              {"Upgrade", "Verifying", noKube, kind.Action{Verdict: "Wait", Message: "waiting for the Kubernetes API, to take the cordon off: no answer"}},
		"uncordoning failed":         {"Upgrade", "Uncordoning", cordoned(after), call("Uncordoning")},
		"uncordoned, without a look": {"Upgrade", "Uncordoning", kind.Observation{}, park},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(executor().Settle(to("v1.14.1", ""), unit(row.stage, row.step, gaveUp), row.seen)).To(Equal(row.want))
		})
	}
}

func TestSteps(t *testing.T) {
	NewWithT(t).Expect(executor().Steps()).To(Equal([]kind.Step{
		{Name: "Pulling", Repeat: "Safe", Blind: true, Cancel: true, Timeout: 10 * time.Minute},
		{Name: "Snapshotting", Repeat: "Safe", Blind: true, Cancel: true, Timeout: 30 * time.Minute},
		{Name: "Installing", Repeat: "Safe", Gated: true, Timeout: 10 * time.Minute},
		{Name: "Upgrading", Repeat: "BootIDGuarded", Gated: true, Timeout: 35 * time.Minute},
		{Name: "Forfeiting", Repeat: "Safe", Timeout: 2 * time.Minute},
		{Name: "Evacuating", Repeat: "Safe", Timeout: 30 * time.Minute},
		{Name: "Draining", Repeat: "Safe", Timeout: 10 * time.Minute},
		{Name: "Rebooting", Repeat: "BootIDGuarded", Gated: true, Timeout: 15 * time.Minute},
		{Name: "Verifying", Waits: true, Timeout: 15 * time.Minute},
		{Name: "Uncordoning", Repeat: "Safe", Blind: true, Harmless: true, Timeout: 2 * time.Minute},
	}))
}
