// SPDX-License-Identifier: Apache-2.0

package poweroff

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/providers/kube"
	kubefake "ichor.maesh.dev/hub/providers/kube/fake"
	"ichor.maesh.dev/hub/providers/talos"
	talosfake "ichor.maesh.dev/hub/providers/talos/fake"
)

type change func(*v1alpha1.UnitStatus)

func unit(step v1alpha1.OperationStep, before string, changes ...change) kind.Unit {
	u := kind.Unit{
		Status:  v1alpha1.UnitStatus{Name: "c1-w-1", Stage: "Workers", Step: step, PreRebootBootID: before},
		Machine: &v1alpha1.TalosMachine{Spec: v1alpha1.TalosMachineSpec{Role: "Worker", Address: "10.0.1.1", UUID: "uuid-1"}},
	}
	u.Machine.Status.NodeName = "w-1"
	for _, c := range changes {
		c(&u.Status)
	}
	return u
}

func failed(class v1alpha1.ErrorClass) change {
	return func(u *v1alpha1.UnitStatus) {
		u.Outcome = &v1alpha1.CallOutcome{Result: "Failed", Class: class, Message: "it broke"}
	}
}

func heardPerhaps(u *v1alpha1.UnitStatus) { u.UnknownSince = metav1.Now() }

func gaveUp(u *v1alpha1.UnitStatus) { u.FailureTime = metav1.Now() }

// up is a machine that answers, of a boot and in a stage.
func up(boot, stage string) kind.Observation {
	return kind.Observation{Talos: talos.Machine{BootID: boot, UUID: "uuid-1", Stage: stage}, Node: &kube.Node{Name: "w-1", Ready: true}}
}

// silent is one that does not, and a Node that is Ready or not.
func silent(ready bool) kind.Observation {
	return kind.Observation{TalosTrouble: "no answer", TalosSilent: true, Node: &kube.Node{Name: "w-1", Ready: ready}}
}

var (
	off      = silent(false)
	deaf     = silent(true)
	blind    = kind.Observation{TalosTrouble: "no answer", TalosSilent: true, NodeTrouble: "no answer"}
	nameless = kind.Observation{TalosTrouble: "no answer", TalosSilent: true}
	rejects  = kind.Observation{TalosTrouble: "certificate signed by unknown authority", NodeTrouble: "no answer"}

	asked = kind.Action{Verdict: "Call", Step: "ShuttingDown", PreRebootBootID: "old"}
	waits = kind.Action{Verdict: "Wait", Step: "StayingOff", Message: "nobody answers: waiting whether it stays so"}
	back  = kind.Action{Verdict: "Fail", RetryStep: "ShuttingDown", Message: "it is back by itself, with another boot ID; keep it from that (its BMC, wake-on-LAN, a watchdog)"}
)

func still(why string) kind.Action {
	return kind.Action{Verdict: "Wait", Message: "not off yet: " + why + "; if it hangs, cut its power"}
}

func TestBegin(t *testing.T) {
	another := up("old", "running")
	another.Talos.UUID = "uuid-2"
	for name, row := range map[string]struct {
		seen kind.Observation
		want kind.Action
	}{
		"it answers":               {up("old", "running"), asked},
		"another machine (B10)":    {another, kind.Action{Verdict: "Fail", Message: `the machine at 10.0.1.1 has UUID "uuid-2", but c1-w-1 has UUID "uuid-1"`}},
		"off already":              {off, waits},
		"off, and the API as well": {blind, waits},
		"off, without a Node":      {nameless, waits},
		"cut off, and at work":     {deaf, kind.Action{Verdict: "Wait", Reason: "TargetReachable", Message: "machine c1-w-1 does not answer, and is not off: Node w-1 is Ready"}},
		"it does not trust us": {rejects, kind.Action{
			Verdict: "Wait", Reason: "TargetReachable", Message: "machine c1-w-1 does not answer, and is not off: the Talos API: certificate signed by unknown authority",
		}},
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(Begin(unit("", ""), row.seen)).To(Equal(row.want)) })
	}
}

// Case D16 is the order; this is what lets the next machine go.
func TestNext(t *testing.T) {
	failure := kind.Action{Verdict: "Fail", Message: "ShuttingDown failed: it broke"}
	for name, row := range map[string]struct {
		unit kind.Unit
		seen kind.Observation
		want kind.Action
	}{
		"asked, and up still":             {unit("ShuttingDown", "old"), up("old", "running"), still(`it answers, in stage "running"`)},
		"on its way":                      {unit("ShuttingDown", "old"), up("old", "shutting down"), still(`it answers, in stage "shutting down"`)},
		"silent, its Node Ready":          {unit("ShuttingDown", "old"), deaf, still("Node w-1 is Ready")},
		"another authority answers":       {unit("ShuttingDown", "old"), rejects, still("the Talos API: certificate signed by unknown authority")},
		"silent":                          {unit("ShuttingDown", "old"), off, waits},
		"silent, and so is the API":       {unit("ShuttingDown", "old"), blind, waits},
		"it rebooted instead":             {unit("ShuttingDown", "old"), up("new", "running"), back},
		"refused":                         {unit("ShuttingDown", "old", failed("Permanent")), up("old", "running"), failure},
		"refused once, heard before":      {unit("ShuttingDown", "old", failed("Permanent"), heardPerhaps), up("old", "shutting down"), still(`it answers, in stage "shutting down"`)},
		"not heard":                       {unit("ShuttingDown", "old", failed("Retryable")), up("old", "running"), asked},
		"heard after all":                 {unit("ShuttingDown", "old", failed("Retryable")), up("old", "shutting down"), still(`it answers, in stage "shutting down"`)},
		"gone over its answer":            {unit("ShuttingDown", "old", failed("Retryable")), off, waits},
		"the hub stopped in between":      {unit("ShuttingDown", "old", failed("Interrupted")), up("old", "running"), asked},
		"a retry after it came back":      {unit("ShuttingDown", "", failed("Interrupted")), up("new", "running"), kind.Action{Verdict: "Call", Step: "ShuttingDown", PreRebootBootID: "new"}},
		"a retry, its power was cut":      {unit("ShuttingDown", "", failed("Interrupted")), off, waits},
		"stays off":                       {unit("StayingOff", "old"), off, kind.Action{Verdict: "Done", After: 10 * time.Second}},
		"stays off, and so does the API":  {unit("StayingOff", "old"), blind, kind.Action{Verdict: "Done", After: 10 * time.Second}},
		"was only cut off":                {unit("StayingOff", "old"), up("old", "running"), asked},
		"came back":                       {unit("StayingOff", "old"), up("new", "booting"), back},
		"was off before, and comes on":    {unit("StayingOff", ""), up("old", "running"), asked},
		"its Node is Ready again, though": {unit("StayingOff", "old"), deaf, kind.Action{Verdict: "Wait", Step: "ShuttingDown", Message: "not off yet: Node w-1 is Ready"}},
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(Next(row.unit, row.seen)).To(Equal(row.want)) })
	}
}

// A pause finds a safe point at once for a machine that was not told, and waits for one that was.
func TestSettle(t *testing.T) {
	g := NewWithT(t)
	park := kind.Action{Verdict: "Park"}
	g.Expect(Settle(unit("", ""), up("old", "running"))).To(Equal(park))
	g.Expect(Settle(unit("ShuttingDown", "old"), up("old", "shutting down"))).To(Equal(still(`it answers, in stage "shutting down"`)))
	g.Expect(Settle(unit("ShuttingDown", "old"), off)).To(Equal(waits))
	g.Expect(Settle(unit("StayingOff", "old"), off).Verdict).To(BeEquivalentTo("Done"))
	g.Expect(Settle(unit("ShuttingDown", "old", failed("Permanent"), gaveUp), up("old", "running"))).To(Equal(park), "there is nothing to take back")
}

func TestUnsafe(t *testing.T) {
	may := "is asked to power off and is not known to be off"
	for name, row := range map[string]struct {
		unit kind.Unit
		want string
	}{
		"not begun":              {unit("", ""), ""},
		"asked":                  {unit("ShuttingDown", "old"), may},
		"it hangs":               {unit("ShuttingDown", "old", failed("Timeout"), gaveUp), may},
		"refused":                {unit("ShuttingDown", "old", failed("Permanent"), gaveUp), ""},
		"refused, heard perhaps": {unit("ShuttingDown", "old", failed("Permanent"), heardPerhaps, gaveUp), may},
		"off":                    {unit("StayingOff", "old"), ""},
		"came back":              {unit("StayingOff", "old", failed("Permanent"), gaveUp), ""},
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(Unsafe(row.unit)).To(Equal(row.want)) })
	}
}

func TestDo(t *testing.T) {
	for name, row := range map[string]struct {
		prepare func(*talosfake.Talos)
		calls   []string
		failure string
	}{
		"it is as it was":     {func(*talosfake.Talos) {}, []string{"Shutdown 10.0.1.1"}, ""},
		"it has booted since": {func(m *talosfake.Talos) { m.PowerCycle("10.0.1.1") }, nil, ""},
		"it goes down already": {func(m *talosfake.Talos) {
			m.Change("10.0.1.1", func(f *talos.Machine, _ *talos.Etcd) { f.Stage = "shutting down" })
		}, nil, ""},
		"another machine (B10)": {func(m *talosfake.Talos) {
			m.Change("10.0.1.1", func(f *talos.Machine, _ *talos.Etcd) { f.UUID = "uuid-2" })
		}, nil, `has UUID "uuid-2"`},
		"it may have heard": {
			func(m *talosfake.Talos) { m.FailNext("Shutdown", "10.0.1.1", status.Error(codes.Unknown, "EOF")) }, nil, "EOF",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			machines := talosfake.New()
			machines.Add("10.0.1.1", talos.Machine{BootID: "old", UUID: "uuid-1", NodeName: "w-1", Stage: "running"}, nil)
			row.prepare(machines)
			scope := kind.Scope{Guard: func(context.Context) error { return nil }}
			_, err := Do(t.Context(), reboot.New(machines, kubefake.New()), scope, unit("ShuttingDown", "old"))
			if row.failure == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(row.failure)))
			}
			if row.failure == "EOF" {
				g.Expect(reboot.Classify(err)).To(BeEquivalentTo("Retryable"))
			}
			g.Expect(machines.Calls()).To(Equal(row.calls))
		})
	}
}
