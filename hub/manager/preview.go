// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/kubernetes"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/hub/service"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// previewer asks targets what an operation would change in them. Every replica does, whichever leads: it takes no lock and changes nothing.
type previewer struct{ kubernetes *kubernetes.Executor }

// Preview implements service.Previewer.
func (p previewer) Preview(ctx context.Context, facts targets.Facts, spec v1alpha1.TalosOperationSpec, target v1alpha1.OperationTarget) ([]service.Manifest, error) {
	changes, err := p.kubernetes.Preview(ctx, kind.Scope{Spec: spec, Target: target, Cluster: facts.Target(), Machines: len(facts.Machines), Approved: facts.Approved()})
	if err != nil {
		return nil, errors.New(troubleOf(err))
	}
	manifests := make([]service.Manifest, 0, len(changes))
	for _, change := range changes {
		manifests = append(manifests, service.Manifest{Object: change.Object, Action: string(change.Action), Owner: change.Owner, Diff: change.Diff})
	}
	return manifests, nil
}

// troubleOf says in a few words why a target told nothing.
func troubleOf(err error) string {
	if talos.IsStatus(err) {
		return talos.Trouble(err)
	}
	return kube.Trouble(err)
}
