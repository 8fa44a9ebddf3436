// SPDX-License-Identifier: Apache-2.0

package service

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// took is a machine that went through a stage, in one step for each duration.
func took(stage string, durations ...time.Duration) v1alpha1.UnitStatus {
	unit, at := v1alpha1.UnitStatus{Name: "m", Phase: v1alpha1.UnitCompleted}, now
	for _, duration := range durations {
		unit.Steps = append(unit.Steps, v1alpha1.StepRecord{
			Step: "x", Stage: stage, StartTime: metav1.NewTime(at), CompletionTime: metav1.NewTime(at.Add(duration)),
		})
		at = at.Add(duration)
	}
	return unit
}

func past(units ...v1alpha1.UnitStatus) v1alpha1.TalosOperation {
	return v1alpha1.TalosOperation{
		Spec:   v1alpha1.TalosOperationSpec{ClusterName: "c1", Kind: v1alpha1.TalosKind},
		Status: v1alpha1.TalosOperationStatus{CompletionTime: metav1.NewTime(now), Machines: units},
	}
}

func TestEstimate(t *testing.T) {
	upgrade, reboot := v1alpha1.TalosOperationSpec{Kind: v1alpha1.TalosKind}, v1alpha1.TalosOperationSpec{
		Kind: v1alpha1.NodeKind, Node: &v1alpha1.NodeParameters{Action: v1alpha1.RebootAction},
	}
	three := []work{{"Upgrade", 3}}
	one := past(took("Upgrade", time.Minute, time.Minute))
	running := past(took("Upgrade", time.Hour))
	running.Status.CompletionTime = metav1.Time{}
	failed := past(took("Upgrade", time.Hour))
	failed.Status.Machines[0].Phase = v1alpha1.UnitInProgress
	endless := past(took("Upgrade", make([]time.Duration, v1alpha1.MaxStepRecords)...))
	other := past(took("Upgrade", time.Hour))
	other.Spec.Kind, other.Spec.Node = v1alpha1.NodeKind, &v1alpha1.NodeParameters{Action: v1alpha1.ResetAction}
	for name, row := range map[string]struct {
		spec   v1alpha1.TalosOperationSpec
		stages []work
		past   []v1alpha1.TalosOperation
		want   time.Duration
	}{
		"no past":                               {upgrade, three, nil, 0},
		"a machine's steps, for each group":     {upgrade, three, []v1alpha1.TalosOperation{one}, 6 * time.Minute},
		"one that goes on does not count":       {upgrade, three, []v1alpha1.TalosOperation{running}, 0},
		"a machine that failed does not count":  {upgrade, three, []v1alpha1.TalosOperation{failed}, 0},
		"steps that are not all told":           {upgrade, three, []v1alpha1.TalosOperation{endless}, 0},
		"another kind does not count":           {upgrade, three, []v1alpha1.TalosOperation{other}, 0},
		"another action does not count":         {reboot, three, []v1alpha1.TalosOperation{other}, 0},
		"a stage that nobody has been through":  {upgrade, append(three, work{"Pull", 1}), []v1alpha1.TalosOperation{one}, 0},
		"a stage with nothing to do":            {upgrade, append(three, work{"Pull", 0}), []v1alpha1.TalosOperation{one}, 6 * time.Minute},
		"a night of waiting says nothing":       {upgrade, three, []v1alpha1.TalosOperation{past(took("Upgrade", time.Minute), took("Upgrade", 8*time.Hour), took("Upgrade", time.Minute))}, 3 * time.Minute},
		"a machine on which nothing was to do":  {upgrade, three, []v1alpha1.TalosOperation{past(took("Upgrade"), took("Upgrade", time.Minute))}, 3 * time.Minute},
		"stages add up, each by what is to do":  {upgrade, []work{{"Pull", 1}, {"Upgrade", 2}}, []v1alpha1.TalosOperation{one, past(took("Pull", time.Second))}, 4*time.Minute + time.Second},
		"there is nothing to do, and no answer": {upgrade, nil, []v1alpha1.TalosOperation{one}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(estimate(row.spec, row.stages, row.past)).To(Equal(row.want))
		})
	}
}

// Machines that run the target already cost no time.
func TestWorks(t *testing.T) {
	objects := cluster()
	for _, object := range objects[1:] {
		if machine := object.(*v1alpha1.TalosMachine); machine.Name != "c1-cp-2" {
			machine.Status.TalosVersion = "v1.14.1"
		}
	}
	w := newWorld(t, objects...)
	w.g.Expect(w.planUpgrade("v1.14.1").works()).To(Equal([]work{{"Pull", 1}, {"Upgrade", 1}}))
}

func TestShell(t *testing.T) {
	for want, words := range map[string][]string{
		"ichor upgrade talos v1.14.1": {"ichor", "upgrade", "talos", "v1.14.1"},
		"--override 'Quorum=a b'":     {"--override", "Quorum=a b"},
		`'it'\''s' '$HOME' '' 25%`:    {"it's", "$HOME", "", "25%"},
		"'a;b' 'a|b' 'a&b' '`a`'":     {"a;b", "a|b", "a&b", "`a`"},
	} {
		NewWithT(t).Expect(shell(words)).To(Equal(want))
	}
	NewWithT(t).Expect(actionWord(v1alpha1.EtcdForfeitLeadershipAction)).To(Equal("etcd-forfeit-leadership"))
}
