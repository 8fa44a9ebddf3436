// SPDX-License-Identifier: Apache-2.0

package service

import (
	"slices"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

// work is one stage of a plan, as far as time goes: how many groups go one after the other.
type work struct {
	stage  string
	groups int
}

// estimate is how long an operation takes, by what the same stages took per machine in operations that are over. It is zero where a stage
// was never seen: half an answer would be a wrong one.
func estimate(spec v1alpha1.TalosOperationSpec, stages []work, past []v1alpha1.TalosOperation) time.Duration {
	took := perMachine(slices.DeleteFunc(slices.Clone(past), func(op v1alpha1.TalosOperation) bool {
		return !op.Completed() || op.Spec.Kind != spec.Kind || (spec.Node != nil && op.Spec.Node.Action != spec.Node.Action)
	}))
	var sum time.Duration
	for _, stage := range stages {
		if stage.groups > 0 && len(took[stage.stage]) == 0 {
			return 0
		}
		sum += time.Duration(stage.groups) * median(took[stage.stage])
	}
	return sum
}

// perMachine is how long each machine that went through a stage was in its steps. One whose steps are not all told does not count, nor
// does one that there was nothing to do on.
func perMachine(operations []v1alpha1.TalosOperation) map[string][]time.Duration {
	took := map[string][]time.Duration{}
	for i := range operations {
		for _, unit := range operations[i].Status.Machines {
			if unit.Phase != v1alpha1.UnitCompleted || len(unit.Steps) >= v1alpha1.MaxStepRecords {
				continue
			}
			for stage, duration := range perStage(unit.Steps) {
				took[stage] = append(took[stage], duration)
			}
		}
	}
	return took
}

func perStage(steps []v1alpha1.StepRecord) map[string]time.Duration {
	sums := map[string]time.Duration{}
	for _, step := range steps {
		if !step.CompletionTime.IsZero() {
			sums[step.Stage] += step.CompletionTime.Sub(step.StartTime.Time)
		}
	}
	return sums
}

// median is what one in the middle took: a machine that waited for a person all night says nothing about the others.
func median(durations []time.Duration) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[len(sorted)/2]
}

// works is what there is to do in a plan. Machines that are at the target take no time.
func (s *Start) works() []work {
	var stages []work
	for i, groups := range s.Groups() {
		todo := 0
		for _, group := range groups {
			if slices.ContainsFunc(group, s.changes) {
				todo++
			}
		}
		stages = append(stages, work{stage: s.Plan.Stages[i].Name, groups: todo})
	}
	return stages
}

// changes says whether there is something to do on a machine.
func (s *Start) changes(name string) bool {
	machine := s.Facts.Machine(name)
	return machine == nil || !planners[s.Spec.Kind].AtTarget(machine, s.Plan.Target)
}

// Groups are, stage by stage, the machines that go at once, in order.
func (s *Start) Groups() [][][]string {
	approved := s.Facts.Approved()
	budget := plan.MaxUnavailable(s.Spec.MaxUnavailable, approved)
	groups := make([][][]string, len(s.Plan.Stages))
	for i, stage := range s.Plan.Stages {
		groups[i] = stage.Groups(approved, budget)
	}
	return groups
}
