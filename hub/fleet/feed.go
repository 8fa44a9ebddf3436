// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// ErrStopping is why watches end when their hub does.
var ErrStopping = errors.New("the hub is stopping; ask again")

// All are the objects that a fleet is made of.
func All() []client.Object {
	return []client.Object{
		&v1alpha1.TalosCluster{}, &clusterv1.Cluster{}, &v1alpha1.TalosMachine{}, &v1alpha1.TalosOperation{}, &coordinationv1.Lease{},
	}
}

// Start feeds the fleet from informers until ctx ends, and closes it then. Which objects is for those who may not read all; none means All.
func (f *Fleet) Start(ctx context.Context, informers cache.Informers, objects ...client.Object) error {
	defer f.Close(ErrStopping)
	if len(objects) == 0 {
		objects = All()
	}
	var handlers []toolscache.ResourceEventHandlerRegistration
	for _, object := range objects {
		informer, err := informers.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
		handler, err := informer.AddEventHandler(f.handler())
		if err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
		defer informer.RemoveEventHandler(handler) //nolint:errcheck // Its only error is that the informer has stopped.
		handlers = append(handlers, handler)
	}
	for _, handler := range handlers {
		select {
		case <-ctx.Done():
			return nil
		case <-handler.HasSyncedChecker().Done():
		}
	}
	f.MarkSynced()
	<-ctx.Done()
	return nil
}

// WaitForSync waits until everything that there was has been read.
func (f *Fleet) WaitForSync(ctx context.Context) error {
	select {
	case <-f.synced:
		return nil
	case <-f.closed:
		return f.cause
	case <-ctx.Done():
		return fmt.Errorf("reading what there is: %w", context.Cause(ctx))
	}
}

func (f *Fleet) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { f.apply(object) },
		UpdateFunc: func(_, object any) { f.apply(object) },
		DeleteFunc: func(object any) {
			if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = missed.Obj
			}
			if gone, ok := object.(client.Object); ok {
				f.Delete(gone)
			}
		},
	}
}

func (f *Fleet) apply(object any) {
	if known, ok := object.(client.Object); ok {
		f.Apply(known)
	}
}
