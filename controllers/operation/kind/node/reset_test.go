// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

func resetting(manner v1alpha1.ResetManner, after v1alpha1.AfterReset, wipe ...v1alpha1.WipeTarget) *world {
	return newWorld("Reset", func(n *v1alpha1.NodeParameters) {
		n.Reset = &v1alpha1.ResetParameters{Manner: manner, After: after, Wipe: wipe}
	})
}

// What is wiped is what the machine has: with a partition of its own, a volume keeps its data unless it is named.
func TestWipeList(t *testing.T) {
	part := func(id, disk string, system bool) talos.Volume {
		return talos.Volume{ID: id, Partition: true, Disk: disk, System: system}
	}
	plain := []talos.Volume{part("STATE", "/dev/vda", true), part("EPHEMERAL", "/dev/vda", true), part("META", "/dev/vda", true), {ID: "ETCD", Disk: "/dev/vda6"}}
	dedicated := []talos.Volume{
		part("STATE", "/dev/vda", true), part("EPHEMERAL", "/dev/vda", true), part("ETCD", "/dev/vda", true), part("CRI", "/dev/vdc", false),
		{ID: "KUBELET", Disk: "/dev/vda6"}, part("LOG", "/dev/vda", true), part("IMAGECACHE", "/dev/vda", true),
	}
	user := slices.Concat(plain, []talos.Volume{
		part("u-a", "/dev/vdb", false), part("u-b", "/dev/vdb", false), part("r-c", "/dev/vdc", false), part("u-d", "/dev/vda", true),
		{ID: "u-e", Disk: "/dev/vdd"}, part("e-f", "/dev/vde", false), part("s-swap", "/dev/vdf", false),
	})
	for name, row := range map[string]struct {
		wipe    []v1alpha1.WipeTarget
		after   v1alpha1.AfterReset
		volumes []talos.Volume
		want    talos.Reset
		trouble string
	}{
		"by default":                {volumes: plain, want: talos.Reset{Partitions: []string{"STATE", "EPHEMERAL"}}},
		"then off":                  {after: "PowerOff", volumes: plain, want: talos.Reset{Partitions: []string{"STATE", "EPHEMERAL"}, PowerOff: true}},
		"partitions of their own":   {volumes: dedicated, want: talos.Reset{Partitions: []string{"STATE", "EPHEMERAL", "ETCD", "CRI", "LOG"}}},
		"user volumes stay":         {volumes: user, want: talos.Reset{Partitions: []string{"STATE", "EPHEMERAL"}}},
		"user volumes only":         {wipe: []v1alpha1.WipeTarget{"UserVolumes"}, volumes: user, want: talos.Reset{Partitions: []string{"u-d"}, Disks: []string{"/dev/vdb", "/dev/vdc", "/dev/vdd"}}},
		"both":                      {wipe: []v1alpha1.WipeTarget{"UserVolumes", "System"}, volumes: user, want: talos.Reset{Partitions: []string{"STATE", "EPHEMERAL", "u-d"}, Disks: []string{"/dev/vdb", "/dev/vdc", "/dev/vdd"}}},
		"both, without any of them": {wipe: []v1alpha1.WipeTarget{"UserVolumes", "System"}, volumes: plain, want: talos.Reset{Partitions: []string{"STATE", "EPHEMERAL"}}},
		"no user volumes":           {wipe: []v1alpha1.WipeTarget{"UserVolumes"}, volumes: plain, trouble: "the machine has no user volumes to wipe"},
		"no STATE":                  {volumes: plain[1:], trouble: "the machine does not tell where its volume STATE is: it would keep it"},
		"nothing at all":            {trouble: "the machine does not tell where its volume STATE is: it would keep it"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			node := &v1alpha1.NodeParameters{Action: "Reset", Reset: &v1alpha1.ResetParameters{Wipe: row.wipe, After: row.after}}
			got, err := wipeList(node, row.volumes)
			if row.trouble != "" {
				g.Expect(err).To(MatchError(row.trouble))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(row.want))
		})
	}
}

// Nothing is touched of a machine that could not be wiped as ordered.
func TestResetFailsBeforeAnything(t *testing.T) {
	w := resetting("", "", "UserVolumes")
	NewWithT(t).Expect(w.next(t, w.unit("w-1", "", nil))).To(Equal(kind.Action{Verdict: kind.Fail, Message: "the machine has no user volumes to wipe"}))
}

// The member has to be gone from the list of another control plane before its machine is wiped, and is asked to leave once.
func TestNextLeaves(t *testing.T) {
	drained := func(w *world, name string) {
		w.kube.Change(name, func(n *kube.Node) { n.Unschedulable, n.CordonedBy = true, "default/op-1" })
	}
	t.Run("not gone yet", func(t *testing.T) {
		w := resetting("", "")
		drained(w, "cp-2")
		u := w.unit("cp-2", "Leaving", succeeded)
		NewWithT(t).Expect(w.next(t, u)).To(Equal(kind.Action{Verdict: kind.Wait, Message: "waiting until the other etcd members do not know it any more"}))
	})
	t.Run("gone", func(t *testing.T) {
		w := resetting("", "")
		drained(w, "cp-2")
		u := w.unit("cp-2", "Leaving", nil)
		_, err := w.executor.Do(t.Context(), w.scope, u, "Leaving")
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		succeeded(&u.Status)
		NewWithT(t).Expect(w.next(t, u)).To(HaveField("Step", v1alpha1.ResettingStep))
		_, err = w.executor.Do(t.Context(), w.scope, u, "Leaving")
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(w.talos.Calls()).To(Equal([]string{"LeaveEtcd 10.0.0.2"}), "who is no member has left")
	})
	t.Run("failed", func(t *testing.T) {
		w := resetting("", "")
		NewWithT(t).Expect(w.next(t, w.unit("cp-2", "Leaving", failed("Timeout")))).To(Equal(kind.Action{Verdict: kind.Fail, Message: "Leaving failed: it broke"}))
	})
	t.Run("nobody beside it tells", func(t *testing.T) {
		w := resetting("", "")
		drained(w, "cp-2")
		w.talos.Silence("10.0.0.1", true)
		w.talos.Silence("10.0.0.3", true)
		want := "no other control plane tells who belongs to etcd: c1-cp-3: no answer"
		NewWithT(t).Expect(w.next(t, w.unit("cp-2", "Draining", succeeded))).To(Equal(kind.Action{Verdict: kind.Wait, Reason: "EtcdHealthy", Message: want}))
		NewWithT(t).Expect(w.next(t, w.unit("cp-2", "Leaving", succeeded))).To(Equal(kind.Action{Verdict: kind.Wait, Message: want}))
		_, err := w.executor.Do(t.Context(), w.scope, w.unit("cp-2", "Leaving", nil), "Leaving")
		NewWithT(t).Expect(err).To(MatchError(want))
		NewWithT(t).Expect(w.talos.Calls()).To(BeEmpty())
	})
}

// Case B21: a member is removed by its ID and by nothing else.
func TestCaseB21RemoveByID(t *testing.T) {
	g := NewWithT(t)
	w := resetting("Forced", "")
	w.machines["cp-2"].Status.EtcdMemberID = ""
	w.talos.Change("10.0.0.2", func(m *talos.Machine, _ *talos.Etcd) { m.NodeName = "cp-2" })
	_, err := w.executor.Do(t.Context(), w.scope, w.unit("cp-2", "RemovingMember", nil), "RemovingMember")
	g.Expect(err).To(MatchError("the ID of the etcd member of c1-cp-2 is not known: remove it with talosctl etcd remove-member, and resume"))
	g.Expect(w.talos.Calls()).To(BeEmpty())

	w.machines["cp-2"].Status.EtcdMemberID = "1b"
	w.talos.Silence("10.0.0.1", true) // The next one does it.
	_, err = w.executor.Do(t.Context(), w.scope, w.unit("cp-2", "RemovingMember", nil), "RemovingMember")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.talos.Calls()).To(Equal([]string{"RemoveEtcdMember 10.0.0.3"}))
}

// Case D14: a reset is over when the machine is in maintenance mode, or gone; nothing that it answered before counts.
func TestCaseD14NextWiping(t *testing.T) {
	boot := func(change func(*v1alpha1.UnitStatus)) func(*v1alpha1.UnitStatus) {
		return func(s *v1alpha1.UnitStatus) {
			s.PreRebootBootID = "w-1-boot-0"
			if change != nil {
				change(s)
			}
		}
	}
	gone := func(w *world) {
		w.talos.Silence("10.0.1.1", true)
		w.kube.Change("w-1", func(n *kube.Node) { n.Ready = false })
	}
	wiped := func(w *world) {
		_, err := w.executor.Do(t.Context(), w.scope, w.unit("w-1", "Resetting", boot(nil)), "Resetting")
		if err != nil {
			t.Fatal(err)
		}
	}
	stage := func(stage string) func(*world) {
		return func(w *world) { w.talos.Change("10.0.1.1", func(m *talos.Machine, _ *talos.Etcd) { m.Stage = stage }) }
	}
	reset := func(after v1alpha1.AfterReset) *v1alpha1.ResetParameters {
		return &v1alpha1.ResetParameters{Manner: "Forced", After: after}
	}
	for name, row := range map[string]struct {
		reset  *v1alpha1.ResetParameters
		step   v1alpha1.OperationStep
		status func(*v1alpha1.UnitStatus)
		change func(*world)
		want   kind.Action
	}{
		"asked": {nil, "Resetting", boot(succeeded), stage("resetting"), kind.Action{
			Verdict: kind.Wait, Message: `still up in stage "resetting"; if it hangs: cut its power, and resume`,
		}},
		"lost, and arrived": {nil, "Resetting", boot(failed("Interrupted")), stage("resetting"), kind.Action{
			Verdict: kind.Wait, Message: `still up in stage "resetting"; if it hangs: cut its power, and resume`,
		}},
		"lost, and did not arrive": {reset(""), "Resetting", boot(failed("Interrupted")), stage("running"), kind.Action{
			Verdict: kind.Call, Step: "Resetting", PreRebootBootID: "w-1-boot-0", NodeName: "w-1",
		}},
		"refused":                 {nil, "Resetting", boot(failed("Permanent")), stage("running"), kind.Action{Verdict: kind.Fail, RetryStep: "Draining", Message: "Resetting failed: it broke"}},
		"in maintenance mode":     {nil, "Resetting", boot(succeeded), wiped, kind.Action{Verdict: kind.Done}},
		"gone":                    {nil, "Resetting", boot(succeeded), gone, kind.Action{Verdict: kind.Wait, Step: "StayingOff", Message: "waiting whether the machine stays off"}},
		"gone for long":           {nil, "StayingOff", boot(nil), gone, kind.Action{Verdict: kind.Done, After: 5 * time.Minute}},
		"and in maintenance mode": {nil, "StayingOff", boot(nil), wiped, kind.Action{Verdict: kind.Done}},
		"off":                     {reset("PowerOff"), "StayingOff", boot(nil), gone, kind.Action{Verdict: kind.Done, After: 10 * time.Second}},
		"a network was away":      {nil, "StayingOff", boot(nil), stage("resetting"), kind.Action{Verdict: kind.Wait, Step: "Resetting", Message: "the machine answers again"}},
		"booted as it was": {nil, "Resetting", boot(succeeded), func(w *world) { w.talos.PowerCycle("10.0.1.1") }, kind.Action{
			Verdict: kind.Fail, Message: "it has booted and answers as a machine of its cluster: it was not wiped, or its platform gave it its machine config once more",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("Reset", func(n *v1alpha1.NodeParameters) { n.Reset = row.reset })
			row.change(w)
			NewWithT(t).Expect(w.next(t, w.unit("w-1", row.step, row.status))).To(Equal(row.want))
		})
	}
	t.Run("in maintenance mode where it should be off", func(t *testing.T) {
		w := resetting("", "PowerOff")
		seen := kind.Observation{TalosTrouble: "no answer", TalosSilent: true, Own: view{Maintenance: "uuid-w-1"}}
		NewWithT(t).Expect(w.executor.Next(w.scope, w.unit("w-1", "Resetting", boot(succeeded)), seen)).To(Equal(kind.Action{
			Verdict: kind.Fail, Message: "it is wiped, and in maintenance mode where it should power off",
		}))
	})
	t.Run("another machine in maintenance mode", func(t *testing.T) {
		w := resetting("", "")
		seen := kind.Observation{TalosTrouble: "no answer", TalosSilent: true, NodeTrouble: "no answer", Own: view{Maintenance: "uuid-other"}}
		NewWithT(t).Expect(w.executor.Next(w.scope, w.unit("w-1", "Resetting", boot(succeeded)), seen)).To(HaveField("Verdict", kind.Wait))
	})
}

// A reset that was heard is not asked for again.
func TestDoResetLooksFirst(t *testing.T) {
	for name, change := range map[string]func(*talos.Machine){
		"on its way": func(m *talos.Machine) { m.Stage = "resetting" }, "booted": func(m *talos.Machine) { m.BootID = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := resetting("", "")
			w.talos.Change("10.0.1.1", func(m *talos.Machine, _ *talos.Etcd) { change(m) })
			u := w.unit("w-1", "Resetting", func(s *v1alpha1.UnitStatus) { s.PreRebootBootID = "w-1-boot-0" })
			_, err := w.executor.Do(t.Context(), w.scope, u, "Resetting")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(w.talos.Wiped("10.0.1.1")).To(BeNil())
		})
	}
}

// Between the member's leave and the wiped machine nobody else touches the cluster.
func TestUnsafeReset(t *testing.T) {
	left := func(change func(*v1alpha1.UnitStatus)) func(*v1alpha1.UnitStatus) {
		return func(s *v1alpha1.UnitStatus) {
			s.Steps = []v1alpha1.StepRecord{{Step: "Leaving"}}
			change(s)
		}
	}
	for name, row := range map[string]struct {
		step   v1alpha1.OperationStep
		status func(*v1alpha1.UnitStatus)
		want   string
	}{
		"draining":                  {"Draining", nil, ""},
		"leaving":                   {"Leaving", nil, "is asked to leave etcd and is not wiped yet"},
		"leaving, and nobody knows": {"Leaving", failed("Timeout"), "is asked to leave etcd and is not wiped yet"},
		"leaving was refused":       {"Leaving", failed("Permanent"), ""},
		"being removed":             {"RemovingMember", nil, "is being removed from etcd and is not wiped yet"},
		"resetting":                 {"Resetting", nil, "is asked to wipe itself and is not known to have done so"},
		"resetting was refused":     {"Resetting", failed("Permanent"), ""},
		"refused after it has left": {"Resetting", left(failed("Permanent")), "is asked to wipe itself and is not known to have done so"},
		"stays off":                 {"StayingOff", nil, ""},
		"shutting down":             {"ShuttingDown", nil, "is asked to power off and is not known to be off"},
		"rebooting":                 {"Rebooting", nil, "is asked to reboot and has not done so yet"},
		"restarting a service":      {"Restarting", nil, ""},
		"defragmenting":             {"Defragmenting", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := resetting("", "")
			NewWithT(t).Expect(w.executor.Unsafe(w.unit("cp-2", row.step, row.status))).To(Equal(row.want))
		})
	}
}

// A machine that refused its reset keeps its pods; one whose member has left stays empty.
func TestUndoReset(t *testing.T) {
	refusal := status.Error(codes.PermissionDenied, "not authorized")
	for name, row := range map[string]struct {
		steps []v1alpha1.StepRecord
		cause error
		want  []string
	}{
		"refused":                   {nil, refusal, []string{"Uncordon w-1"}},
		"nobody knows":              {nil, errors.New("EOF"), nil},
		"refused after it has left": {[]v1alpha1.StepRecord{{Step: "Leaving"}}, refusal, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := resetting("", "")
			u := w.unit("w-1", "Resetting", func(s *v1alpha1.UnitStatus) { s.Steps = row.steps })
			g.Expect(w.executor.Undo(t.Context(), w.scope, u, "Resetting", row.cause)).To(Succeed())
			g.Expect(w.kube.Calls()).To(Equal(row.want))
		})
	}
}

// A pause before the point of no return goes back, and after it on.
func TestSettleReset(t *testing.T) {
	w := resetting("", "")
	w.kube.Change("cp-2", func(n *kube.Node) { n.Unschedulable, n.CordonedBy = true, "default/op-1" })
	for step, want := range map[v1alpha1.OperationStep]kind.Action{
		"Draining":  {Verdict: kind.Call, Step: "Uncordoning"},
		"Leaving":   {Verdict: kind.Wait, Message: "waiting until the other etcd members do not know it any more"},
		"Resetting": {Verdict: kind.Wait, Message: `still up in stage "running"; if it hangs: cut its power, and resume`},
	} {
		u := w.unit("cp-2", step, func(s *v1alpha1.UnitStatus) { succeeded(s); s.PreRebootBootID = "cp-2-boot-0" })
		seen := w.executor.Observe(t.Context(), w.scope, u)
		NewWithT(t).Expect(w.executor.Settle(w.scope, u, seen)).To(Equal(want), string(step))
	}
}
