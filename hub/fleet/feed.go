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
	synced, stop, err := f.listen(ctx, informers, objects)
	defer stop()
	if err != nil {
		return err
	}
	for _, done := range synced {
		select {
		case <-ctx.Done():
			return nil
		case <-done:
		}
	}
	f.MarkSynced()
	<-ctx.Done()
	return nil
}

// listen listens to informers. What it returns ends once everything that there was has been heard of, and stops it.
func (f *Fleet) listen(ctx context.Context, informers cache.Informers, objects []client.Object) (synced []<-chan struct{}, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, stop := range stops {
			stop()
		}
	}
	for _, object := range objects {
		informer, err := informers.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, stop, fmt.Errorf("watching %T: %w", object, err)
		}
		handler, err := informer.AddEventHandler(f.handler())
		if err != nil {
			return nil, stop, fmt.Errorf("watching %T: %w", object, err)
		}
		stops = append(stops, func() { _ = informer.RemoveEventHandler(handler) }) // Its only error is that the informer has stopped.
		synced = append(synced, handler.HasSyncedChecker().Done())
	}
	return synced, stop, nil
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
