// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
)

// first and second are the machines that are rebooted, in this order.
const first, second = "worker-1", "worker-2"

// atOnce is how many requests the benchmark itself makes at once.
const atOnce = 16

// reboots are what many operations at once took: two reboots of workers queue on each cluster.
type reboots struct {
	dispatch []time.Duration // From the creation of an operation on a free target until it holds the lock.
	handOver []time.Duration // From the completion of an operation until the next one in the queue holds the lock.
	took     []time.Duration // From the moment that an operation holds the lock until it has completed.
	missed   int             // Clusters of which an informer missed something.
}

// rebootWorkers starts two operations on each of some clusters, all at once, and returns when all have completed. Times are those at
// which an informer heard of things.
func (h *hub) rebootWorkers(ctx context.Context, round string, clusters []string) (*reboots, error) {
	r := &recorder{
		all: 2 * len(clusters), done: make(chan error, 1),
		created: map[string]time.Time{}, took: map[string]time.Time{}, completed: map[string]time.Time{},
	}
	stopLocks, err := h.follow(ctx, &coordinationv1.Lease{}, func(object any) { r.lock(object.(*coordinationv1.Lease)) }) //nolint:forcetypeassert // It was asked for.
	if err != nil {
		return nil, err
	}
	defer stopLocks()
	stopOperations, err := h.follow(ctx, &v1alpha1.TalosOperation{}, func(object any) { r.operation(object.(*v1alpha1.TalosOperation)) }) //nolint:forcetypeassert // Likewise.
	if err != nil {
		return nil, err
	}
	defer stopOperations()
	if err := h.startReboots(ctx, r, round, clusters); err != nil {
		return nil, err
	}
	select {
	case err := <-r.done:
		if err != nil {
			return nil, err
		}
		return r.reboots(round, clusters), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%d operations have not completed: %w", r.all-len(r.completed), ctx.Err())
	}
}

// operationName names one of the operations of a round.
func operationName(cluster, round, worker string) string { return cluster + "-" + round + "-" + worker }

// startReboots creates the first operation of every cluster, and then the second ones. The service would refuse those.
func (h *hub) startReboots(ctx context.Context, r *recorder, round string, clusters []string) error {
	for _, worker := range []string{first, second} {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(atOnce)
		for _, cluster := range clusters {
			group.Go(func() error {
				op := &v1alpha1.TalosOperation{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: operationName(cluster, round, worker)},
					Spec: v1alpha1.TalosOperationSpec{
						ClusterName: cluster, Kind: v1alpha1.NodeKind,
						Node: &v1alpha1.NodeParameters{Machine: cluster + "-" + worker, Action: v1alpha1.RebootAction},
					},
				}
				r.creates(op.Name)
				return h.client.Create(ctx, op)
			})
		}
		if err := group.Wait(); err != nil {
			return fmt.Errorf("creating operations: %w", err)
		}
	}
	return nil
}

// recorder notes when it heard of what.
type recorder struct {
	all  int
	done chan error // Told once: when all have completed, or one has failed.

	mu        sync.Mutex
	created   map[string]time.Time // By operation.
	took      map[string]time.Time // When an operation took the lock.
	completed map[string]time.Time
}

func (r *recorder) creates(op string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.created[op] = time.Now()
}

// lock takes note of who holds a lock.
func (r *recorder) lock(lease *coordinationv1.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if holder, held := lock.HolderOf(lease).OperationKey(); held && r.took[holder.Name].IsZero() {
		r.took[holder.Name] = time.Now()
	}
}

// operation takes note of the end of an operation.
func (r *recorder) operation(op *v1alpha1.TalosOperation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.created[op.Name].IsZero() || !r.completed[op.Name].IsZero() {
		return
	}
	var err error
	switch {
	case op.Status.FailureReason != "":
		err = fmt.Errorf("operation %s failed: %s", op.Name, op.Status.FailureReason)
	case op.Completed():
		if r.completed[op.Name] = time.Now(); len(r.completed) < r.all {
			return
		}
	default:
		return
	}
	select {
	case r.done <- err:
	default:
	}
}

// reboots is what was noted of a round. The two informers are not ordered, so the lock may seem to change hands before it is given back; and an
// informer that had to list anew may have missed that a lock was held for a moment.
func (r *recorder) reboots(round string, clusters []string) *reboots {
	r.mu.Lock()
	defer r.mu.Unlock()
	result := &reboots{}
	for _, cluster := range clusters {
		a, b := operationName(cluster, round, first), operationName(cluster, round, second)
		if r.took[a].IsZero() || r.took[b].IsZero() {
			result.missed++
			continue
		}
		result.dispatch = append(result.dispatch, r.took[a].Sub(r.created[a]))
		result.handOver = append(result.handOver, max(0, r.took[b].Sub(r.completed[a])))
		result.took = append(result.took, r.completed[a].Sub(r.took[a]), r.completed[b].Sub(r.took[b]))
	}
	return result
}
