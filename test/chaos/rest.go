// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/sim"
)

const (
	// look is how often it is looked whether everything is at rest.
	look = 500 * time.Millisecond

	// refusals is how often an operation that was refused is judged anew.
	refusals = 2

	// failures is how often a step that failed is retried, with nothing left that it could fail of.
	failures = 8
)

// rest ends all faults, takes back what people did, retries what failed, and waits until nothing goes on any more. Then every cluster is
// upgraded once more, as a proof that it can be.
func (r *run) rest(ctx context.Context) error {
	r.log.note("coming to rest")
	r.harness.Clear("")
	for _, p := range r.players {
		if err := p.takeBack(ctx); err != nil {
			return fmt.Errorf("taking back what was done to cluster %s: %w", p.cluster, err)
		}
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	r.log.note("at rest")
	for _, p := range r.players {
		if err := p.upgradeOnceMore(ctx); err != nil {
			return err
		}
	}
	return r.settle(ctx)
}

// settle waits until every operation is over, or says for good why not.
func (r *run) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.options.Patience)
	defer cancel()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	asked := map[types.UID]int{}
	var busy []string
	for {
		now, err := r.nudge(ctx, asked)
		switch {
		case err != nil && len(busy) == 0:
			return err
		case err == nil && len(now) == 0:
			return nil
		case err == nil:
			busy = now
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("after %s these operations have not come to rest:\n%s", r.options.Patience, strings.Join(busy, "\n"))
		}
	}
}

// nudge asks to retry what failed, and describes what is not at rest.
func (r *run) nudge(ctx context.Context, asked map[types.UID]int) (busy []string, err error) {
	list := &v1alpha1.TalosOperationList{}
	if err := r.harness.Client.List(ctx, list, client.InNamespace(harness.Namespace)); err != nil {
		return nil, err
	}
	for i := range list.Items {
		op := &list.Items[i]
		if asked[op.UID] >= refusals && r.overtaken(op) {
			r.log.note("deleting %s, which later ones have overtaken: %s", op.Name, op.Status.FailureReason)
			if err := client.IgnoreNotFound(r.harness.Client.Delete(ctx, op)); err != nil {
				return nil, err
			}
		}
		if asked[op.UID] < patience(op) && op.Annotations[v1alpha1.RetryAnnotation] == "" {
			asked[op.UID]++
			r.log.note("retrying %s: %s", op.Name, op.Status.FailureReason)
			before := op.DeepCopy()
			askForRetry(op)
			if err := client.IgnoreNotFound(r.harness.Client.Patch(ctx, op, client.MergeFrom(before))); err != nil {
				return nil, err
			}
		}
		if !atRest(op) {
			busy = append(busy, op.Name+": "+harness.ShowOperation(op))
		}
	}
	return busy, nil
}

// overtaken says whether an operation has failed that can never be completed, since a later one went further, or something else is asked for
// by now: it was paused, or waited, meanwhile. A person deletes it.
func (r *run) overtaken(op *v1alpha1.TalosOperation) bool {
	if op.Completed() || !failed(op) || op.Status.Target == nil || !op.DeletionTimestamp.IsZero() {
		return false
	}
	switch op.Spec.Kind { //nolint:exhaustive // The others have no target.
	case v1alpha1.KubernetesKind, v1alpha1.ConfigKind:
		return meta.IsStatusConditionTrue(op.Status.Conditions, v1alpha1.TargetSupersededCondition)
	case v1alpha1.TalosKind:
		return r.runsNewer(op)
	}
	return false
}

// runsNewer says whether a machine runs a newer Talos than an operation brings it to.
func (r *run) runsNewer(op *v1alpha1.TalosOperation) bool {
	target, err := semver.ParseTolerant(op.Status.Target.TalosVersion)
	return err == nil && slices.ContainsFunc(r.harness.Fleet.Cluster(op.Spec.ClusterName).Nodes(), func(n *sim.Node) bool {
		running, err := semver.ParseTolerant(n.State().Running.Version)
		return err == nil && running.GT(target)
	})
}

// patience is how often an operation that stands where this one does is retried.
func patience(op *v1alpha1.TalosOperation) int {
	switch reason := pausedFor(op); {
	case op.Completed() || !failed(op):
		return 0
	case reason == v1alpha1.StepFailedReason || !op.DeletionTimestamp.IsZero():
		return failures
	}
	return refusals
}

// atRest says whether an operation is over, or stands for a reason that only a person can change.
func atRest(op *v1alpha1.TalosOperation) bool {
	switch {
	case !op.DeletionTimestamp.IsZero() || op.Annotations[v1alpha1.RetryAnnotation] != "":
		return false
	case op.Completed():
		return op.Annotations[v1alpha1.CompletedAtAnnotation] != "" && !holdsLock(op)
	}
	reason := pausedFor(op)
	return reason == v1alpha1.RefusedReason || reason == v1alpha1.StatusLostReason
}

func pausedFor(op *v1alpha1.TalosOperation) string {
	paused := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.PausedCondition)
	if paused == nil || paused.Reason == v1alpha1.NotPausedReason {
		return ""
	}
	return paused.Reason
}
