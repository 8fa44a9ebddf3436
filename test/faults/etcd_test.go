// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
)

var hostnames = map[string]sim.ClusterSpec{
	"b7-upper": {Hostnames: sim.UpperHostnames},
	"b7-fqdn":  {Hostnames: sim.FQDNHostnames},
	"b7-dual":  {DualStack: true},
}

// Two control planes lose quorum if one of them goes.
func TestCaseB1TwoControlPlanes(t *testing.T) {
	t.Parallel()
	w := begin(t, "b1", 2, 1)
	_, err := hub.Reboot(w.ctx, w.name, "cp-2")
	w.Expect(err).To(MatchError(ContainSubstring("Quorum: two control planes")))
	op := w.createReboot("b1", "cp-2") // Whoever goes round the service hears the same.
	w.until(op, harness.Paused(v1alpha1.RefusedReason, "Quorum", "two control planes"))
	w.onlyTouched()
}

// Two operations at the same time on three control planes: one after the other, never two control planes away.
func TestCaseB2OneLockForAll(t *testing.T) {
	t.Parallel()
	w := begin(t, "b2", 3, 0)
	first := w.upgrade()
	w.until(first, harness.OperationCondition(v1alpha1.LockHeldCondition, metav1.ConditionTrue, ""))
	second := w.createReboot("b2-second", "cp-3")
	w.until(second, harness.Paused(v1alpha1.ClusterLockHeldReason, first.Name))
	w.completes(first)
	w.completes(second)
}

// Before the first control plane: whatever is odd about etcd, nothing is touched, and the message names it.
func TestCaseB3EtcdGate(t *testing.T) {
	for name, test := range map[string]struct {
		fault, node string
		says        string
	}{
		"b3-alarm":     {fault: fault.EtcdAlarm, node: "cp-2", says: "NOSPACE"},
		"b3-members":   {fault: fault.EtcdMembersDiffer, node: "cp-3", says: "etcd has 2 members"},
		"b3-leader":    {fault: fault.EtcdNoLeader, node: "cp-3", says: "etcd member of b3-leader-cp-3"},
		"b14-standing": {fault: fault.EtcdLearner, node: "cp-3", says: "learner"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, name, 3, 0)
			id := w.order(test.fault, test.node)
			op := w.upgrade()
			w.until(op, harness.Stopped(test.says))
			w.onlyTouched()
			hub.Clear(id)
			w.completes(op)
		})
	}
}

// The machine in hand comes back from its reboot with something odd about etcd: the message names it, and no other is touched.
func TestCaseB3EtcdAfterTheReboot(t *testing.T) {
	for name, test := range map[string]struct{ fault, says string }{
		"b3-alarm-late":   {fault: fault.EtcdAlarm, says: "NOSPACE"},
		"b3-members-late": {fault: fault.EtcdMembersDiffer, says: "etcd has 2 members"},
		"b3-leader-late":  {fault: fault.EtcdNoLeader, says: "etcdserver: no leader"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, name, 3, 0)
			stuck := w.order(fault.BootStuck, "")
			op := w.upgrade()
			first := w.event(invariant.DownEvent, "").Node
			id := w.order(test.fault, first)
			hub.Clear(stuck)
			w.event(invariant.ReadyEvent, first)
			w.until(op, harness.Stopped(test.says))
			w.onlyTouched(first)
			hub.Clear(id)
			w.goesOn(op)
			w.Expect(w.rolling().Reboots[first]).To(Equal(1))
		})
	}
}

// The whole etcd has no leader: the Kubernetes API is down with it. Nothing is touched.
func TestCaseB3NoLeaderAnywhere(t *testing.T) {
	t.Parallel()
	w := begin(t, "b3-none", 3, 0)
	id := w.order(fault.EtcdNoLeader, "")
	op := w.upgrade()
	w.until(op, harness.Stopped("etcdserver: request timed out"))
	w.onlyTouched()
	hub.Clear(id)
	w.completes(op)
}

// A control plane is back and ready, its Node is Ready, and its etcd member is not there: that is not back.
func TestCaseB3B17EtcdMissing(t *testing.T) {
	for name, test := range map[string]struct{ mode, says string }{
		"b3-missing": {mode: "blocking", says: `stage "booting"`}, // Talos itself does not get beyond it without etcd.
		"b17":        {mode: "silent", says: "etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, name, 3, 0)
			id := w.order(fault.EtcdMissing, "", fault.ParamMode, test.mode)
			op := w.upgrade()
			w.fails(op, "Verifying not over within", test.says)
			first := w.rolling().Order[0]
			w.onlyTouched(first)
			hub.Clear(id)
			w.resumes(op)
			w.Expect(w.rolling().Reboots[first]).To(Equal(1))
		})
	}
}

// A control plane is back as a learner: it does not vote, and the next one has to wait.
func TestCaseB14Learner(t *testing.T) {
	t.Parallel()
	w := begin(t, "b14", 3, 0)
	stuck := w.order(fault.BootStuck, "")
	op := w.upgrade()
	first := w.event(invariant.DownEvent, "").Node
	id := w.order(fault.EtcdLearner, first)
	hub.Clear(stuck)
	w.event(invariant.ReadyEvent, first)
	w.fails(op, "Verifying not over within", "voter")
	w.onlyTouched(first)
	hub.Clear(id)
	w.resumes(op)
}

// Five control planes, two of them lost: quorum holds by a thread, and nobody may pull it.
func TestCaseB22FiveLessTwo(t *testing.T) {
	t.Parallel()
	w := begin(t, "b22", 5, 0)
	for _, node := range []string{"cp-4", "cp-5"} {
		w.cluster.Node(node).PowerOff()
	}
	op := w.reboot("cp-2")
	w.until(op, harness.Stopped("cp-4"))
	w.onlyTouched()
	for _, node := range []string{"cp-4", "cp-5"} {
		w.cluster.Node(node).PowerOn()
	}
	w.completes(op)
}

// The leader comes last and hands the leadership over first, whatever its name.
func TestCaseB23LeaderLast(t *testing.T) {
	t.Parallel()
	w := begin(t, "b23", 3, 0)
	leader := w.cluster.Leader().Name()
	w.Expect(leader).To(Equal("cp-1"), "the first by name")
	w.completes(w.upgrade())
	w.Expect(w.rolling().Problems(leader, 1)).To(BeEmpty())
	forfeited := hub.Journal().Entries(journal.Filter{Cluster: w.name, Method: "MachineService/EtcdForfeitLeadership"})
	w.Expect(forfeited).To(ConsistOf(HaveField("Node", leader)))
}
