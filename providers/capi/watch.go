// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Watch wakes a controller of clusters when a Machine of one changes. A controller that watched Machines from its start would not
// start where Cluster API's definition of them is missing, so the watch begins when the first Cluster of its providers is seen.
type Watch struct {
	controller controller.Controller
	cache      cache.Cache

	mu    sync.Mutex
	begun bool
}

// NewWatch returns a watch that has not begun.
func NewWatch(c controller.Controller, machines cache.Cache) *Watch {
	return &Watch{controller: c, cache: machines}
}

// Begin begins, if that has not happened yet.
func (w *Watch) Begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun {
		return nil
	}
	err := w.controller.Watch(source.Kind(w.cache, &clusterv1.Machine{}, handler.TypedEnqueueRequestsFromMapFunc(clusterOf)))
	if err != nil {
		return fmt.Errorf("watching Machines: %w", err)
	}
	w.begun = true
	return nil
}

func clusterOf(_ context.Context, machine *clusterv1.Machine) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}}}
}
