// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	talosplan "ichor.maesh.dev/hub/controllers/operation/kind/talos/plan"
)

// ofSnapshot says whether a unit is the snapshot that is taken before the first control plane goes. It is no machine's.
func ofSnapshot(unit kind.Unit) bool {
	return unit.Status.Stage == talosplan.SnapshotStage || unit.Status.Step == v1alpha1.SnapshottingStep
}

// Observe implements kind.Executor. Whether a snapshot is stored is what its call answers: there is nothing to look at.
func (e *Executor) Observe(ctx context.Context, scope kind.Scope, unit kind.Unit) kind.Observation {
	if ofSnapshot(unit) {
		return kind.Observation{}
	}
	return e.Sequence.Observe(ctx, scope, unit)
}
