// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/providers/capi"
	"ichor.maesh.dev/hub/providers/tracked"
)

// forgetting is what a hub has of a cluster.
type forgetting struct {
	key client.ObjectKey

	// hub is nil if it is deleted already; capi is nil if it is, or if Cluster API's providers made it.
	hub  *v1alpha1.TalosCluster
	capi *clusterv1.Cluster
}

// Forget takes a cluster out of the hub and leaves the cluster as it is. Of one that Cluster API's providers made only the TalosCluster
// goes; otherwise the Cluster that the import made, too, and with it all that belongs to it: machines, operations and credentials. It says
// whether the cluster is gone: it is not while an operation settles. Doing it again finishes it.
func (s *Service) Forget(ctx context.Context, key client.ObjectKey) (gone bool, err error) {
	f, err := s.forgetting(ctx, key)
	if err != nil {
		return false, err
	}
	target := &v1alpha1.TalosCluster{}
	target.Namespace, target.Name = key.Namespace, key.Name
	if err := s.mayWrite(ctx, "delete", clustersResource, target); err != nil {
		return false, err
	}
	if refusals := f.tracked(); len(refusals) > 0 {
		return false, &RefusedError{Refusals: refusals}
	}
	if settling, err := s.settles(ctx, key); settling || err != nil {
		return false, err
	}
	if err := s.refuseMachines(ctx, f); err != nil {
		return false, err
	}
	return s.delete(ctx, f)
}

// forgetting finds what there is of a cluster.
func (s *Service) forgetting(ctx context.Context, key client.ObjectKey) (forgetting, error) {
	f := forgetting{key: key, hub: &v1alpha1.TalosCluster{}, capi: &clusterv1.Cluster{}}
	switch err := s.Client.Get(ctx, key, f.hub); {
	case apierrors.IsNotFound(err):
		f.hub = nil
	case err != nil:
		return f, fmt.Errorf("reading TalosCluster %s: %w", key, err)
	}
	switch err := s.Client.Get(ctx, key, f.capi); {
	case apierrors.IsNotFound(err):
		f.capi = nil
	case err != nil:
		return f, fmt.Errorf("reading Cluster %s: %w", key, err)
	case capi.Adopted(f.capi) || f.capi.Spec.InfrastructureRef != infrastructure(key.Name):
		f.capi = nil // It is not the hub's to delete.
	}
	if f.hub == nil && f.capi == nil {
		return f, unknownCluster(key)
	}
	return f, nil
}

// tracked refuses what would be made anew from Git.
func (f forgetting) tracked() []plan.Refusal {
	var refusals []plan.Refusal
	refuse := func(object client.Object, kind string) {
		if who := tracked.ByGit(object, kind); who != "" {
			refusals = append(refusals, plan.Refusal{
				Gate:    v1alpha1.SpecTrackedGate,
				Message: fmt.Sprintf("%s %s is kept by %s, which would make it anew", kind, f.key.Name, who),
				Help:    "remove it from Git",
			})
		}
	}
	if f.hub != nil {
		refuse(f.hub, "TalosCluster")
	}
	if f.capi != nil {
		refuse(f.capi, "Cluster")
	}
	return refusals
}

// settles says whether operations of the cluster settle, since they need what would be deleted. Nobody's operation is deleted by the way.
func (s *Service) settles(ctx context.Context, key client.ObjectKey) (settling bool, err error) {
	list := &v1alpha1.TalosOperationList{}
	if err := s.Client.List(ctx, list, client.InNamespace(key.Namespace)); err != nil {
		return false, fmt.Errorf("listing operations: %w", err)
	}
	var refusals []plan.Refusal
	for _, op := range unfinished(list.Items, key.Name) {
		if !op.DeletionTimestamp.IsZero() {
			settling = true
			continue
		}
		refusals = append(refusals, plan.Refusal{
			Gate:    v1alpha1.OperationUnfinishedGate,
			Message: fmt.Sprintf("operation %s of cluster %s is not finished, and has to settle first", op.Name, key.Name),
			Help:    fmt.Sprintf("delete it with: ichor operation delete %s, and then forget the cluster", op.Name),
		})
	}
	if len(refusals) > 0 {
		return false, &RefusedError{Refusals: refusals}
	}
	return settling, nil
}

// refuseMachines keeps a Cluster that Cluster API has Machines of: those would be deleted with it, and so would what they stand for.
func (s *Service) refuseMachines(ctx context.Context, f forgetting) error {
	if f.capi == nil {
		return nil
	}
	list := &clusterv1.MachineList{}
	err := s.Client.List(ctx, list, client.InNamespace(f.key.Namespace), client.MatchingLabels{clusterLabel: f.key.Name})
	switch {
	case meta.IsNoMatchError(err), err == nil && len(list.Items) == 0:
		return nil
	case err != nil:
		return fmt.Errorf("looking for Machines of Cluster %s: %w", f.key, err)
	}
	return &StateError{
		What: fmt.Sprintf("Cluster %s has Machines of Cluster API (%s), which would be deleted with it", f.key, list.Items[0].Name),
		Help: fmt.Sprintf("leave it to Cluster API, and delete the TalosCluster alone: kubectl delete taloscluster %s -n %s", f.key.Name, f.key.Namespace),
	}
}

// delete deletes the TalosCluster first: from then on the hub does nothing to the cluster.
func (s *Service) delete(ctx context.Context, f forgetting) (gone bool, err error) {
	if f.hub != nil {
		if err := s.remove(ctx, f.hub); err != nil {
			return false, fmt.Errorf("deleting TalosCluster %s: %w", f.key, err)
		}
	}
	if f.capi != nil {
		if err := s.remove(ctx, f.capi); err != nil {
			return false, &PartlyDoneError{
				Done:    fmt.Sprintf("TalosCluster %s is deleted", f.key),
				Missing: fmt.Sprintf("Cluster %s is not", f.key),
				Finish:  "repeat the request",
				Cause:   fmt.Errorf("deleting Cluster %s: %w", f.key, err),
			}
		}
	}
	_, err = s.forgetting(ctx, f.key)
	switch {
	case is[*NotFoundError](err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("cluster %s is deleted; whether it is gone could not be read: %w", f.key, err)
	}
	return false, nil
}

// remove deletes an object, and not one that was made in its place meanwhile. One that is gone is no error.
func (s *Service) remove(ctx context.Context, object client.Object) error {
	uid := object.GetUID()
	return client.IgnoreNotFound(s.Client.Delete(ctx, object, client.Preconditions{UID: &uid}))
}

func unknownCluster(key client.ObjectKey) error {
	return &NotFoundError{
		What: fmt.Sprintf("there is no cluster %q in namespace %q", key.Name, key.Namespace),
		Help: "list them with: ichor cluster list",
	}
}
