// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// previewTime bounds a preview: somebody waits for the plan.
const previewTime = 15 * time.Second

// mostDiff is how much of one diff a plan carries.
const mostDiff = 16 << 10

// Previewer asks a cluster what an operation would change in it, with the hub's own credentials. It changes nothing.
type Previewer interface {
	// Preview returns what would change. What somebody else keeps is named.
	Preview(ctx context.Context, facts targets.Facts, spec v1alpha1.TalosOperationSpec, target v1alpha1.OperationTarget) ([]Manifest, error)
}

// Manifest is what becomes of one object in a cluster.
type Manifest struct{ Object, Action, Owner, Diff string }

// preview adds to a plan what only the cluster knows. The hub's credentials answer, so it is asked for nobody who may not start the
// operation, and not where something speaks against it.
func (s *Server) preview(ctx context.Context, service *Service, start *Start, plan *pb.Plan) {
	if s.Previewer == nil || start.Spec.Kind != v1alpha1.KubernetesKind || len(start.Refusals) > 0 {
		return
	}
	if err := service.mayStart(ctx, start.Order.Cluster.Namespace, start.Spec, false); err != nil {
		return // It can be planned by who may read.
	}
	ctx, cancel := context.WithTimeout(ctx, previewTime)
	defer cancel()
	manifests, err := s.Previewer.Preview(ctx, start.Facts, start.Spec, start.Plan.Target)
	if err != nil {
		plan.ManifestsTrouble = err.Error()
		return
	}
	for _, m := range manifests {
		plan.Manifests = append(plan.Manifests, &pb.PlanManifest{Object: m.Object, Action: m.Action, Owner: m.Owner, Diff: bounded(m.Diff)})
	}
}

// bounded is a diff, or its beginning.
func bounded(diff string) string {
	if len(diff) <= mostDiff {
		return diff
	}
	return diff[:mostDiff] + "\n…\n"
}
