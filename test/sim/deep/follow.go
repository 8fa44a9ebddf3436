// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
)

// errWatchEnded is why a watch begins anew with a list.
var errWatchEnded = errors.New("the watch has ended")

// watchFor bounds a watch, so that one that has gone silent does not last.
const watchFor = time.Minute

// follow keeps a cache up to date, until the cluster ends. It begins with a list each time: after a recovery of etcd an old version may be
// one of the future.
func (s *Store) follow(r *kubeapi.Resource) {
	for s.cluster.life.Err() == nil {
		if err := s.followOnce(s.cluster.life, r); err != nil {
			s.cluster.Logger.V(1).Info("A watch has ended", "cluster", s.cluster.Name, "resource", r.Plural, "reason", err.Error())
		}
		if await(s.cluster.life, nil, 3*pollEvery) != nil {
			return
		}
	}
}

func (s *Store) followOnce(ctx context.Context, r *kubeapi.Resource) error {
	list, err := s.listFrom(ctx, r, "")
	if err != nil {
		return err
	}
	s.caches[r].fill(objectsOf(list))
	s.Poke()
	c, err := s.client("")
	if err != nil {
		return err
	}
	seconds := int64(watchFor / time.Second)
	empty := r.NewList().(client.ObjectList) //nolint:forcetypeassert // Lists of Kubernetes are.
	stream, err := c.Watch(ctx, empty, &client.ListOptions{Raw: &metav1.ListOptions{
		ResourceVersion: list.GetResourceVersion(), TimeoutSeconds: &seconds, AllowWatchBookmarks: true,
	}})
	if err != nil {
		return err
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		if err := s.take(r, event); err != nil {
			return err
		}
	}
	return errWatchEnded
}

func (s *Store) take(r *kubeapi.Resource, event watch.Event) error {
	switch event.Type {
	case watch.Error:
		return apierrors.FromObject(event.Object)
	case watch.Bookmark:
		return nil
	case watch.Added, watch.Modified, watch.Deleted:
	}
	obj, ok := event.Object.(kubeapi.Object)
	if !ok {
		return nil
	}
	if event.Type == watch.Deleted {
		s.caches[r].removed(obj)
		s.Poke()
		return nil
	}
	if s.caches[r].put(obj) {
		s.Poke()
	}
	return nil
}
