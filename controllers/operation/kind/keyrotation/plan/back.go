// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

// waysBack are the stages that take back the furthest stage of a key that was begun with, and those before it.
var waysBack = map[string][]string{
	AcceptServiceAccountStage: {BackAcceptServiceAccountStage},
	PublishKeysStage:          {BackAcceptServiceAccountStage},
	SwapServiceAccountStage:   {BackSwapServiceAccountStage, BackRefreshTokensStage, BackAcceptServiceAccountStage},
	RefreshTokensStage:        {BackSwapServiceAccountStage, BackRefreshTokensStage, BackAcceptServiceAccountStage},
	AcceptSecretboxStage:      {BackAcceptSecretboxStage},
	SwapSecretboxStage:        {BackSwapSecretboxStage, BackRewriteStage, BackAcceptSecretboxStage},
	RewriteStage:              {BackSwapSecretboxStage, BackRewriteStage, BackAcceptSecretboxStage},
}

// backwards are the stages of a rotation that is turned back: what is over stays so, who is in hand comes to the end of the pass, and what was
// brought about is taken back. A key that was dropped somewhere is rotated to the end; those that come later are left alone.
func (p Planner) backwards(facts plan.Facts, controlPlanes []*v1alpha1.TalosMachine) []plan.Stage {
	var list []plan.Stage
	for _, ahead := range p.forwards(facts, controlPlanes) {
		of := keyOf(ahead.Name)
		switch {
		case ahead.Name == BundleStage:
		case slices.Contains(facts.CompletedStages, ahead.Name), of != "" && past(facts, of):
			list = append(list, ahead)
		case isBegun(facts, ahead.Name):
			list = append(list, onlyInHand(facts, ahead))
		}
	}
	for _, of := range keysOf(facts.Spec) {
		if past(facts, of) {
			continue
		}
		for _, name := range waysBack[furthest(facts, of)] {
			list = append(list, stage(facts, controlPlanes, name))
		}
	}
	return append(list, stage(facts, controlPlanes, BundleStage))
}

// keyOf is the key that a stage is about; nothing of one that is about all.
func keyOf(stage string) v1alpha1.RotatedKey {
	for key, stages := range stagesOf {
		if slices.Contains(stages, stage) {
			return key
		}
	}
	if stage == SnapshotStage {
		return v1alpha1.SecretboxKey
	}
	return ""
}

// onlyInHand leaves of a stage what somebody works on.
func onlyInHand(facts plan.Facts, of plan.Stage) plan.Stage {
	of.Machines = slices.DeleteFunc(slices.Clone(of.Machines), func(name string) bool {
		return !slices.ContainsFunc(facts.Units, func(u v1alpha1.UnitStatus) bool {
			return u.Name == name && u.Stage == of.Name && u.CompletedStage != of.Name
		})
	})
	return of
}

// isBegun says whether a unit was begun with in a stage, whatever became of it.
func isBegun(facts plan.Facts, stage string) bool {
	return slices.Contains(facts.CompletedStages, stage) || begunBy(slices.Concat(facts.Units, facts.Whole), stage)
}

func begunBy(units []v1alpha1.UnitStatus, stage string) bool {
	return slices.ContainsFunc(units, func(u v1alpha1.UnitStatus) bool {
		return u.Stage == stage || u.CompletedStage == stage ||
			slices.ContainsFunc(u.Steps, func(step v1alpha1.StepRecord) bool { return step.Stage == stage })
	})
}

// furthest is the last stage of a key that was begun with; nothing if none was.
func furthest(facts plan.Facts, of v1alpha1.RotatedKey) string {
	last := ""
	for _, stage := range stagesOf[of] {
		if isBegun(facts, stage) {
			last = stage
		}
	}
	return last
}

// past says whether there is no way back for a key: a control plane may have dropped the old one.
func past(facts plan.Facts, of v1alpha1.RotatedKey) bool { return Drops(furthest(facts, of)) }

// noWayBack says why a rotation cannot be turned back any more; nothing means that it can.
func noWayBack(facts plan.Facts) string {
	for _, key := range keysOf(facts.Spec) {
		if !past(facts, key) {
			return ""
		}
	}
	return "an old key is being dropped, or is gone: there is no way back, and the operation goes on to its end"
}

// NoWayBack implements plan.TurnsBack.
func (Planner) NoWayBack(op *v1alpha1.TalosOperation) string {
	if op.Completed() {
		return fmt.Sprintf("operation %s is completed", op.Name)
	}
	return noWayBack(plan.Facts{Spec: op.Spec, Units: op.Status.Machines, Whole: op.Status.Units, CompletedStages: op.Status.CompletedStages})
}
