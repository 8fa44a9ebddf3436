// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"testing"

	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/kube"
	kubefake "ichor.maesh.dev/hub/providers/kube/fake"
	"ichor.maesh.dev/hub/providers/talos"
	talosfake "ichor.maesh.dev/hub/providers/talos/fake"
)

var oldImage = "factory.talos.dev/metal-installer/" + schematicA + ":v1.13.9"

func askUpgrade(image string) kind.Action {
	return kind.Action{Verdict: "Call", Step: "Upgrading", PreRebootBootID: "new", NodeName: "w-1", Image: image}
}

func installing(m *talos.Machine) { m.Stage, m.Ready = "upgrading", false }

// Talos before 1.13 pulls nothing beforehand. It is drained first, and told to upgrade then, with the image that is checked after its reboot.
func TestNextOnTalosBefore113(t *testing.T) {
	scope := to("v1.13.9", "")
	seen := runs("v1.12.4", schematicA)
	told := func(change func(*v1alpha1.UnitStatus)) kind.Unit {
		return unit("Upgrade", "Upgrading", change, resolved(oldImage), func(u *v1alpha1.UnitStatus) { u.PreRebootBootID = "new" })
	}
	verify := func(seen kind.Observation) kind.Action {
		return executor().Next(scope, unit("Upgrade", "Verifying", resolved(oldImage)), seen)
	}
	for name, row := range map[string]struct {
		unit kind.Unit
		seen kind.Observation
		want kind.Action
	}{
		"there is nothing to pull by":    {unit("Pull", ""), seen, done},
		"drained first":                  {unit("Upgrade", ""), seen, call("Draining")},
		"of an image pulled by another":  {unit("Upgrade", "", resolved("an/image:v1")), seen, call("Draining")},
		"drained, then told":             {unit("Upgrade", "Draining", succeeded), cordoned(seen), askUpgrade(oldImage)},
		"drained, and uncordoned since":  {unit("Upgrade", "Draining", succeeded), seen, call("Draining")},
		"accepted":                       {told(succeeded), cordoned(runs("v1.12.4", schematicA, installing)), kind.Action{Verdict: "Wait", Message: `still up in stage "upgrading", boot ID unchanged; why an installation failed is in: talosctl -n 10.0.1.1 dmesg`}},
		"the hub stopped, it is told":    {told(failedAs("Interrupted")), cordoned(runs("v1.12.4", schematicA, installing)), kind.Action{Verdict: "Wait", Message: `still up in stage "upgrading", boot ID unchanged; why an installation failed is in: talosctl -n 10.0.1.1 dmesg`}},
		"the hub stopped before it was":  {told(failedAs("Interrupted")), cordoned(seen), askUpgrade(oldImage)},
		"refused":                        {told(failed), seen, fail("Upgrading failed: it broke", "Draining")},
		"there already":                  {unit("Upgrade", ""), runs("v1.13.9", schematicA), done},
		"at 1.13 already, but not there": {unit("Upgrade", ""), runs("v1.13.1", schematicA), call("Pulling")},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(executor().Next(scope, row.unit, row.seen)).To(Equal(row.want))
		})
	}
	t.Run("proves itself like any other", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(verify(runs("v1.13.9", schematicA))).To(Equal(done))
		g.Expect(verify(seen).Message).To(Equal("rebooted and runs v1.12.4 instead of v1.13.9: it did not reach the new system, or fell back to the old one"))
		g.Expect(verify(runs("v1.13.9", schematicB)).Verdict).To(BeEquivalentTo("Fail"), "the claim has kept which schematic it was (C10)")
	})
	t.Run("the leader forfeits first", func(t *testing.T) {
		leader := seen
		leader.Etcd = &talos.Etcd{MemberID: 1, Leader: 1, Members: []talos.EtcdMember{{ID: 1}, {ID: 2}, {ID: 3}}}
		NewWithT(t).Expect(executor().Next(scope, unit("Upgrade", ""), leader)).To(Equal(call("Forfeiting")))
	})
	t.Run("a single machine is not drained (D7)", func(t *testing.T) {
		alone := scope
		alone.Machines = 1
		NewWithT(t).Expect(executor().Next(alone, unit("Upgrade", ""), seen)).To(Equal(askUpgrade(oldImage)))
	})
}

// Before the one call there is a way back; from it on there is none.
func TestSettleOnTalosBefore113(t *testing.T) {
	park := kind.Action{Verdict: "Park"}
	seen := runs("v1.12.4", schematicA)
	evacuated := cordoned(seen)
	evacuated.Storage.EvacuatedBy = "default/op-1"
	for name, row := range map[string]struct {
		unit kind.Unit
		seen kind.Observation
		want kind.Action
	}{
		"forfeited":       {unit("Upgrade", "Forfeiting", succeeded, steps("Forfeiting")), seen, park},
		"evacuated":       {unit("Upgrade", "Evacuating", succeeded, steps("Evacuating")), evacuated, call("Uncordoning")},
		"drained":         {unit("Upgrade", "Draining", succeeded, steps("Draining")), cordoned(seen), call("Uncordoning")},
		"drain fenced":    {unit("Upgrade", "Draining", failedAs("Interrupted"), steps("Draining")), cordoned(seen), call("Uncordoning")},
		"drained, dark":   {unit("Upgrade", "Draining", succeeded, steps("Draining")), kind.Observation{TalosTrouble: "no answer", Node: cordoned(seen).Node}, call("Uncordoning")},
		"told":            {unit("Upgrade", "Upgrading", succeeded, resolved(oldImage)), kind.Observation{TalosTrouble: "no answer"}, kind.Action{Verdict: "Wait", Message: "waiting for another boot ID: no answer"}},
		"has rebooted":    {unit("Upgrade", "Upgrading", succeeded, resolved(oldImage)), runs("v1.13.9", schematicA), kind.Action{Verdict: "Wait", Step: "Verifying", Message: "waiting until the machine is ready"}},
		"proves itself":   {unit("Upgrade", "Verifying", resolved(oldImage)), runs("v1.13.9", schematicA), done},
		"installed, 1.13": {unit("Upgrade", "Draining", succeeded), cordoned(runs("v1.13.1", schematicA)), kind.Action{Verdict: "Call", Step: "Rebooting", PreRebootBootID: "new", NodeName: "w-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(executor().Settle(to("v1.13.9", ""), row.unit, row.seen)).To(Equal(row.want))
		})
	}
}

func TestUpgrade(t *testing.T) {
	upgrade := func(stage, boot string) (*talosfake.Talos, error) {
		machines := talosfake.New()
		machines.Add("10.0.1.1", runs("v1.12.4", schematicA, func(m *talos.Machine) { m.Stage = stage }).Talos, nil)
		_, _, scope := world()
		e := New(machines, kubefake.New(), "factory.talos.dev", nil)
		u := unit("Upgrade", "Upgrading", resolved(oldImage), func(u *v1alpha1.UnitStatus) { u.PreRebootBootID = boot })
		_, err := e.Do(t.Context(), scope, u, "Upgrading")
		return machines, err
	}
	for name, row := range map[string]struct {
		stage, boot string
		calls       []string
	}{
		"told once":                   {"running", "new", []string{"Upgrade 10.0.1.1"}},
		"has rebooted since (E6)":     {"running", "old", nil},
		"installs already":            {"upgrading", "new", nil},
		"reboots already":             {"rebooting", "new", nil},
		"not ready, and still itself": {"booting", "new", []string{"Upgrade 10.0.1.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			machines, err := upgrade(row.stage, row.boot)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(machines.Calls()).To(Equal(row.calls))
		})
	}
	t.Run("boots what it was told", func(t *testing.T) {
		machines, _ := upgrade("running", "new")
		NewWithT(t).Expect(machines.Facts("10.0.1.1").Version).To(Equal("v1.13.9"))
	})
}

// An upgrade that was refused has not begun, even where the machine has no better word for it than "unknown". One that may have been heard keeps
// the cordon.
func TestUndoUpgrading(t *testing.T) {
	for name, row := range map[string]struct {
		cause error
		stays bool
	}{
		"no such image": {status.Error(codes.Unknown, "error validating installer image"), false},
		"refused":       {status.Error(codes.FailedPrecondition, "not installed"), false},
		"away":          {status.Error(codes.Unavailable, "x"), true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, machines, scope := world()
			api := kubefake.New()
			api.Set(kube.Node{Name: "w-1", Unschedulable: true, CordonedBy: "default/op-1"})
			e := New(machines, api, "factory.talos.dev", nil)
			g.Expect(e.Undo(t.Context(), scope, unit("Upgrade", "Upgrading"), "Upgrading", row.cause)).To(Succeed())
			g.Expect(api.Get("w-1").Unschedulable).To(Equal(row.stays))
		})
	}
}
