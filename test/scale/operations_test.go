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
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
)

// atOnce is how many requests the benchmark itself makes at once.
const atOnce = 16

// reboots are what many operations at once took: two reboots of workers queue on each cluster.
type reboots struct {
	dispatch []time.Duration // From the creation of an operation on a free target until it holds the lock.
	handOver []time.Duration // From the release of a lock until the next operation in the queue holds it.
	took     []time.Duration // From the moment that an operation holds the lock until it has completed.
}

// rebootWorkers starts two operations on each of some clusters, all at once, and returns when all have completed. Times are those at
// which a watch heard of things.
func (h *hub) rebootWorkers(ctx context.Context, round string, clusters []string) (*reboots, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	leases, err := h.client.Watch(ctx, &coordinationv1.LeaseList{}, client.InNamespace(namespace))
	if err != nil {
		return nil, fmt.Errorf("watching locks: %w", err)
	}
	defer leases.Stop()
	operations, err := h.client.Watch(ctx, &v1alpha1.TalosOperationList{}, client.InNamespace(namespace))
	if err != nil {
		return nil, fmt.Errorf("watching operations: %w", err)
	}
	defer operations.Stop()
	r := &recorder{created: map[string]time.Time{}, took: map[string]time.Time{}, released: map[string]time.Time{}}
	go func() {
		for event := range leases.ResultChan() {
			if lease, ok := event.Object.(*coordinationv1.Lease); ok {
				r.lock(lease)
			}
		}
	}()
	if err := h.startReboots(ctx, r, round, clusters); err != nil {
		return nil, err
	}
	completed := map[string]bool{}
	for event := range operations.ResultChan() {
		op, ok := event.Object.(*v1alpha1.TalosOperation)
		if !ok || !r.knows(op.Name) {
			continue
		}
		if op.Status.FailureReason != "" {
			return nil, fmt.Errorf("operation %s failed: %s", op.Name, op.Status.FailureReason)
		}
		if op.Completed() && !completed[op.Name] {
			completed[op.Name] = true
			r.completed(op.Name)
		}
		if len(completed) == 2*len(clusters) {
			return &r.reboots, nil
		}
	}
	return nil, fmt.Errorf("%d of %d operations completed: %w", len(completed), 2*len(clusters), ctx.Err())
}

// startReboots creates the first operation of every cluster, and then the second ones. The service would refuse those.
func (h *hub) startReboots(ctx context.Context, r *recorder, round string, clusters []string) error {
	for _, worker := range []string{"worker-1", "worker-2"} {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(atOnce)
		for _, cluster := range clusters {
			group.Go(func() error {
				op := &v1alpha1.TalosOperation{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster + "-" + round + "-" + worker},
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
	mu       sync.Mutex
	created  map[string]time.Time // By operation.
	took     map[string]time.Time // When an operation took the lock.
	released map[string]time.Time // By cluster.

	reboots reboots
}

func (r *recorder) creates(op string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.created[op] = time.Now()
}

func (r *recorder) knows(op string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.created[op].IsZero()
}

// lock takes note of a change of a lock.
func (r *recorder) lock(lease *coordinationv1.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, cluster := time.Now(), lease.Labels[clusterv1.ClusterNameLabel]
	holder, held := lock.HolderOf(lease).OperationKey()
	switch {
	case !held:
		r.released[cluster] = now
	case r.created[holder.Name].IsZero() || !r.took[holder.Name].IsZero():
	default:
		r.took[holder.Name] = now
		if released := r.released[cluster]; released.After(r.created[holder.Name]) {
			r.reboots.handOver = append(r.reboots.handOver, now.Sub(released))
		} else {
			r.reboots.dispatch = append(r.reboots.dispatch, now.Sub(r.created[holder.Name]))
		}
	}
}

func (r *recorder) completed(op string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if took := r.took[op]; !took.IsZero() {
		r.reboots.took = append(r.reboots.took, time.Since(took))
	}
}
