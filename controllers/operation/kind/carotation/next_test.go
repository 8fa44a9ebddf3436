// SPDX-License-Identifier: Apache-2.0

package carotation

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

const hash = "1111111111111111111111111111111111111111111111111111111111111111"

// on is the unit of a machine in a stage.
func on(stage string, step v1alpha1.OperationStep, change ...func(*kind.Unit)) kind.Unit {
	unit := kind.Unit{
		Status:  v1alpha1.UnitStatus{Name: "c-w1", Stage: stage, Step: step},
		Machine: &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "c-w1"}, Spec: v1alpha1.TalosMachineSpec{UUID: "u", Address: "10.0.0.9"}},
	}
	unit.Machine.Status.NodeName = "w1"
	for _, c := range change {
		c(&unit)
	}
	return unit
}

func of(stage string, step v1alpha1.OperationStep, change ...func(*kind.Unit)) kind.Unit {
	unit := kind.Unit{Status: v1alpha1.UnitStatus{Name: stage, Stage: stage, Step: step}}
	for _, c := range change {
		c(&unit)
	}
	return unit
}

func failed(u *kind.Unit) {
	u.Status.Outcome = &v1alpha1.CallOutcome{Result: v1alpha1.CallFailed, Class: v1alpha1.ErrorPermanent, Message: "no"}
}

func succeeded(u *kind.Unit) {
	u.Status.Outcome = &v1alpha1.CallOutcome{Result: v1alpha1.CallSucceeded}
}

func held(u *kind.Unit) {
	u.Machine.Annotations = map[string]string{v1alpha1.UpgradeHoldAnnotation: ""}
}

func seen(own any) kind.Observation {
	return kind.Observation{Talos: talos.Machine{UUID: "u"}, Own: own}
}

var apply = kind.Action{Verdict: kind.Call, Step: "Applying", ConfigHash: hash, NodeName: "w1"}

func waits(gate, message string) kind.Action {
	return kind.Action{Verdict: kind.Wait, Reason: gate, Message: message}
}

func proves(message string) kind.Action {
	return kind.Action{Verdict: kind.Wait, Step: "Verifying", Message: message}
}

func TestNextOfAMachine(t *testing.T) {
	done := kind.Action{Verdict: kind.Done}
	proved := func(what string) kind.Action {
		return kind.Action{Verdict: kind.Done, Message: what + " Talos authority, asked at 10.0.0.9"}
	}
	accepts, serves, refuses := proved("accepts clients of the new"), kind.Action{Verdict: kind.Done, Message: "serves a client that trusts the new Talos authority alone, asked at 10.0.0.9"}, proved("refuses clients of the old")
	back := kind.Scope{TurnBack: true}
	for name, row := range map[string]struct {
		scope kind.Scope
		unit  kind.Unit
		seen  kind.Observation
		want  kind.Action
	}{
		"it begins to accept":                  {kind.Scope{}, on("TalosAccept", ""), seen(Look{At: untouched, Desired: hash}), apply},
		"it accepts already, and has shown":    {kind.Scope{}, on("TalosAccept", ""), seen(Look{At: accepted}), accepts},
		"it accepts already, and shows it not": {kind.Scope{}, on("TalosAccept", ""), seen(Look{At: accepted, Unproven: "its Talos API: no answer"}), proves("waiting for c-w1: its Talos API: no answer")},
		"it was rendered by the pass to come":  {kind.Scope{}, on("TalosAccept", ""), seen(Look{At: swapped}), accepts},
		"it has the config":                    {kind.Scope{}, on("TalosSwap", "Applying", succeeded), seen(Look{At: accepted}), proves("waiting until the machine proves it")},
		"it did not take the config": {
			kind.Scope{}, on("TalosSwap", "Applying", failed), seen(Look{At: accepted}),
			kind.Action{Verdict: kind.Fail, RetryStep: "Verifying", Message: "Applying failed: no"},
		},
		"after a retry it is looked at afresh": {kind.Scope{}, on("TalosSwap", "Verifying"), seen(Look{At: accepted, Desired: hash}), apply},
		"it proves its swap":                   {kind.Scope{}, on("TalosSwap", "Verifying"), seen(Look{At: swapped}), serves},
		"it does not prove its swap":           {kind.Scope{}, on("TalosSwap", "Verifying"), seen(Look{At: swapped, Unproven: "x"}), proves("waiting for c-w1: x")},
		"it is down before it is begun with":   {kind.Scope{}, on("TalosSwap", ""), kind.Observation{TalosTrouble: "no answer"}, waits("TargetReachable", "machine c-w1 does not answer: no answer")},
		"it is down before it has proved":      {kind.Scope{}, on("TalosSwap", "Verifying"), kind.Observation{TalosTrouble: "no answer"}, waits("TargetReachable", "machine c-w1 does not answer: no answer")},
		"it is another machine":                {kind.Scope{}, on("TalosSwap", ""), kind.Observation{Talos: talos.Machine{UUID: "other"}, Own: Look{At: accepted}}, kind.Action{Verdict: kind.Fail, Message: `the machine at 10.0.0.9 has UUID "other", but c-w1 has UUID "u"`}},
		"it is held":                           {kind.Scope{}, on("TalosSwap", "", held), seen(Look{At: accepted, Desired: hash}), waits("MachineHeld", "machine c-w1 is held, and a rotation leaves none out; go on with: ichor machine unhold c-w1")},
		"it is held once it is in hand":        {kind.Scope{}, on("TalosSwap", "Verifying", held), seen(Look{At: swapped}), serves},
		"somebody tries another config":        {kind.Scope{}, on("TalosSwap", ""), seen(Look{At: accepted, Pending: true}), waits("MachineConfigPending", "a machine config is staged or tried on c-w1, which a change would wipe: whoever did that lets the trial end, or reboots it: ichor node reboot c-w1")},
		"it has a third authority":             {kind.Scope{}, on("TalosSwap", ""), seen(Look{At: foreign}), kind.Action{Verdict: kind.Fail, Message: "its machine config has another authority than the old and the new one: somebody else rotates"}},
		"what was kept is gone":                {kind.Scope{}, on("TalosSwap", ""), seen(Look{Lost: "gone"}), kind.Action{Verdict: kind.Fail, Message: "gone"}},
		"its config cannot be read":            {kind.Scope{}, on("TalosSwap", ""), seen(Look{Trouble: "x"}), waits("MachineConfigKnown", "c-w1: x")},
		"it drops":                             {kind.Scope{}, on("TalosDrop", ""), seen(Look{At: swapped, Desired: hash}), apply},
		"it does not drop before others are so far": {
			kind.Scope{}, on("TalosDrop", ""), seen(Look{At: swapped, Desired: hash, Lagging: []string{"machine c-w2 does not answer: no answer", "machine c-w3 is held"}}),
			waits("RotationPass", "machine c-w2 does not answer: no answer (and 1 more)"),
		},
		"it brings those along that joined late": {kind.Scope{}, on("TalosDrop", ""), seen(Look{At: swapped, Desired: hash, Late: true, Lagging: []string{"x"}}), kind.Action{Verdict: kind.Call, Step: "CatchingUp"}},
		"it has brought them along":              {kind.Scope{}, on("TalosDrop", "CatchingUp", succeeded), seen(Look{At: swapped, Desired: hash}), apply},
		"it has, and they do not prove it yet":   {kind.Scope{}, on("TalosDrop", "CatchingUp", succeeded), seen(Look{At: swapped, Desired: hash, Lagging: []string{"x"}}), waits("RotationPass", "x")},
		"it could not bring them along": {
			kind.Scope{}, on("TalosDrop", "CatchingUp", failed), seen(Look{At: swapped}), kind.Action{Verdict: kind.Fail, RetryStep: "Verifying", Message: "CatchingUp failed: no"},
		},
		"it joined late, and catches up whatever others do": {kind.Scope{}, on("TalosDrop", ""), seen(Look{At: untouched, Desired: hash}), apply},
		"it joined late, has caught up and proves it":       {kind.Scope{}, on("TalosDrop", "Verifying"), seen(Look{At: swapped, Desired: hash}), apply},
		"it joined late, and others lag":                    {kind.Scope{}, on("TalosDrop", "Verifying"), seen(Look{At: swapped, Desired: hash, Lagging: []string{"x"}}), waits("RotationPass", "x")},
		"it does not drop before it is sure itself":         {kind.Scope{}, on("TalosDrop", ""), seen(Look{At: swapped, Desired: hash, Unproven: "x"}), waits("RotationPass", "c-w1: x")},
		"it is turned back in the swap":                     {back, on("TalosSwap", "Verifying"), kind.Observation{TalosTrouble: "no answer"}, done},
		"it is turned back after it failed":                 {back, on("TalosSwap", "Applying", failed), seen(Look{At: accepted}), done},
		"there is no way back in the drop":                  {back, on("TalosDrop", "Verifying"), seen(Look{At: dropped}), refuses},
		"there is no way back in the drop, and it waits":    {back, on("TalosDrop", "Verifying"), seen(Look{At: dropped, Unproven: "x"}), proves("waiting for c-w1: x")},
		"it swaps back":                         {back, on("TalosBackSwap", ""), seen(Look{At: swapped, Desired: hash}), apply},
		"it never swapped":                      {back, on("TalosBackSwap", ""), seen(Look{At: accepted}), kind.Action{Verdict: kind.Done, Message: "serves a client that trusts the old Talos authority alone, asked at 10.0.0.9"}},
		"a hold keeps nobody from the way back": {back, on("TalosBackSwap", "", held), seen(Look{At: swapped, Desired: hash}), apply},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect((&Executor{}).Next(row.scope, row.unit, row.seen)).To(Equal(row.want))
		})
	}
}

func TestNextOfTheCluster(t *testing.T) {
	scope := kind.Scope{Owner: "prod/rotate", Cluster: target.Target{TalosconfigSecret: "c1-talosconfig", KubeconfigSecret: "c1-kubeconfig"}}
	confirmed, back := scope, scope
	confirmed.ConfirmedStage, back.TurnBack = "TalosAwaitingCredentials", true
	other := scope
	other.ConfirmedStage = "KubernetesAwaitingCredentials"
	const asks = "the new credentials are in Secret c1-talosconfig: give it to whoever has a copy, then: ichor operation confirm rotate"
	done, call := kind.Action{Verdict: kind.Done}, func(step v1alpha1.OperationStep) kind.Action { return kind.Action{Verdict: kind.Call, Step: step} }
	for name, row := range map[string]struct {
		scope kind.Scope
		unit  kind.Unit
		seen  kind.Observation
		want  kind.Action
	}{
		"it generates":                   {scope, of("Prepare", ""), seen(Overview{}), call("Generating")},
		"not while a machine is away":    {scope, of("Prepare", ""), seen(Overview{Lagging: []string{"machine c-w1 does not answer: no answer"}}), waits("RotationPass", "machine c-w1 does not answer: no answer")},
		"nor while nothing is known":     {scope, of("Prepare", ""), seen(Overview{Trouble: "x"}), waits("RotationPass", "x")},
		"nor what cannot be":             {scope, of("Prepare", ""), seen(Overview{Lost: "x"}), kind.Action{Verdict: kind.Fail, Message: "x"}},
		"it has generated":               {scope, of("Prepare", "Generating", succeeded), kind.Observation{}, done},
		"it has not generated":           {scope, of("Prepare", "Generating", failed), seen(Overview{}), kind.Action{Verdict: kind.Fail, Message: "Generating failed: no"}},
		"credentials trust both":         {scope, of("TalosTrust", ""), seen(Overview{}), call("Trusting")},
		"only once all accept":           {scope, of("TalosTrust", ""), seen(Overview{Lagging: []string{"machine c-w1 is not approved"}}), waits("RotationPass", "machine c-w1 is not approved")},
		"credentials are handed over":    {scope, of("TalosAwaitingCredentials", ""), seen(Overview{}), call("HandingOver")},
		"only once all have swapped":     {scope, of("TalosAwaitingCredentials", ""), seen(Overview{Lagging: []string{"x"}}), waits("RotationPass", "x")},
		"people are asked":               {scope, of("TalosAwaitingCredentials", "HandingOver", succeeded), seen(Overview{}), kind.Action{Verdict: kind.Wait, Step: "AwaitingCredentials", Message: asks}},
		"people are waited for":          {scope, of("TalosAwaitingCredentials", "AwaitingCredentials"), seen(Overview{}), waits("CredentialsConfirmed", asks)},
		"of the other authority":         {other, of("TalosAwaitingCredentials", "AwaitingCredentials"), seen(Overview{}), waits("CredentialsConfirmed", asks)},
		"people have confirmed":          {confirmed, of("TalosAwaitingCredentials", "AwaitingCredentials"), seen(Overview{}), done},
		"and a machine joins meanwhile":  {confirmed, of("TalosAwaitingCredentials", "AwaitingCredentials"), seen(Overview{Lagging: []string{"machine c-w9 is not approved"}}), waits("RotationPass", "machine c-w9 is not approved")},
		"somebody writes the Secret":     {confirmed, of("TalosAwaitingCredentials", "AwaitingCredentials"), seen(Overview{Stale: "x"}), waits("CredentialsConfirmed", "x")},
		"it is turned back before":       {back, of("Prepare", ""), seen(Overview{Lagging: []string{"machine c-w1 does not answer"}}), done},
		"nor is it generated then":       {back, of("Prepare", "Generating", failed), seen(Overview{}), done},
		"it is turned back instead":      {back, of("TalosAwaitingCredentials", "AwaitingCredentials"), seen(Overview{Lagging: []string{"x"}}), done},
		"credentials trust both again":   {back, of("TalosBackTrust", ""), seen(Overview{}), call("Trusting")},
		"credentials are what they were": {back, of("TalosBackCredentials", ""), seen(Overview{}), call("Trusting")},
		"it is over":                     {scope, of("Finish", ""), seen(Overview{}), call("Finishing")},
		"not before all have proved it":  {scope, of("Finish", ""), seen(Overview{Lagging: []string{"x"}}), waits("RotationPass", "x")},
		"all is done":                    {scope, of("Finish", "Finishing", succeeded), kind.Observation{}, done},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect((&Executor{}).Next(row.scope, row.unit, row.seen)).To(Equal(row.want))
		})
	}
}

// Between the swap and the drop nobody else takes the lock, whatever has failed.
func TestUnsafe(t *testing.T) {
	for stage, unsafe := range map[string]bool{
		"Prepare": false, "TalosAccept": false, "TalosTrust": false, "TalosSwap": true, "TalosAwaitingCredentials": true, "TalosDrop": true,
		"KubernetesDropWorkers": true, "KubernetesBackSwap": true, "TalosBackTrust": true, "TalosBackAccept": false, "KubernetesBackAcceptWorkers": false, "Finish": false,
	} {
		why := BeEmpty()
		if unsafe {
			why = Not(why)
		}
		NewWithT(t).Expect((&Executor{}).Unsafe(of(stage, "Applying"))).To(why, stage)
	}
	NewWithT(t).Expect((&Executor{}).Unsafe(on("TalosSwap", "Applying"))).To(Equal("is between two Talos authorities"))
}

// A pause sees through what a machine was given, and begins with nothing.
func TestSettle(t *testing.T) {
	park := kind.Action{Verdict: kind.Park}
	given := func(u *kind.Unit) { u.Status.FailureTime = metav1.Now() }
	for name, row := range map[string]struct {
		unit kind.Unit
		seen kind.Observation
		want kind.Action
	}{
		"not begun with":        {on("TalosSwap", ""), seen(Look{At: accepted}), park},
		"given its config":      {on("TalosSwap", "Applying", succeeded), seen(Look{At: swapped}), proves("waiting until the machine proves it")},
		"proving it":            {on("TalosSwap", "Verifying"), seen(Look{At: swapped, Unproven: "x"}), proves("waiting for c-w1: x")},
		"through with it":       {on("TalosSwap", "Verifying"), seen(Look{At: swapped}), kind.Action{Verdict: kind.Done, Message: "serves a client that trusts the new Talos authority alone, asked at 10.0.0.9"}},
		"not through":           {on("TalosDrop", "Verifying"), seen(Look{At: swapped, Desired: hash}), park},
		"did not take it":       {on("TalosSwap", "Applying", failed), seen(Look{At: accepted}), park},
		"failed":                {on("TalosSwap", "Verifying", failed, given), seen(Look{At: accepted}), park},
		"waiting for people":    {of("TalosAwaitingCredentials", "AwaitingCredentials"), seen(Overview{}), park},
		"handing something out": {of("TalosTrust", "Trusting", succeeded), kind.Observation{}, park},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect((&Executor{}).Settle(kind.Scope{}, row.unit, row.seen)).To(Equal(row.want))
		})
	}
}
