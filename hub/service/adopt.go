// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/capi"
	"ichor.maesh.dev/hub/providers/credentials"
)

// Adopt makes the hub manage a Cluster that Cluster API's providers made, beside them: it writes a TalosCluster and nothing else. The
// credentials are those that the providers keep; in carries no files.
func (s *Service) Adopt(ctx context.Context, in Import) (*v1alpha1.TalosCluster, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	s = s.owning(importManager)
	cluster := &clusterv1.Cluster{}
	key := client.ObjectKey{Namespace: in.Namespace, Name: in.Name}
	switch err := s.Client.Get(ctx, key, cluster); {
	case apierrors.IsNotFound(err):
		return nil, &NotFoundError{
			What: fmt.Sprintf("there is no Cluster %s", key),
			Help: "bring a cluster that Cluster API did not make with --from-kubeconfig and --from-talosconfig",
		}
	case err != nil:
		return nil, fmt.Errorf("reading Cluster %s: %w", key, err)
	case capi.OptedOut(cluster):
		return nil, &StateError{
			What: fmt.Sprintf("Cluster %s is kept from the hub by annotation %s", key, v1alpha1.OptOutAnnotation),
			Help: "ask those who own it; it can be adopted once the annotation is gone",
		}
	case !capi.Adopted(cluster):
		return nil, &StateError{
			What: fmt.Sprintf("no provider of Cluster API manages Cluster %s", key),
			Help: "bring new credentials with --from-kubeconfig and --from-talosconfig",
		}
	}
	talosCluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: in.Namespace, Name: in.Name}}
	if err := client.IgnoreNotFound(s.Client.Get(ctx, key, talosCluster)); err != nil {
		return nil, fmt.Errorf("reading TalosCluster %s: %w", key, err)
	}
	choose(talosCluster, in.TalosContext)
	if err := s.checkKept(ctx, talosCluster); err != nil {
		return nil, err
	}
	_, err := controllerutil.CreateOrPatch(ctx, s.Client, talosCluster, func() error {
		if talosCluster.Annotations[v1alpha1.OwnerIDAnnotation] == "" {
			metav1.SetMetaDataAnnotation(&talosCluster.ObjectMeta, v1alpha1.OwnerIDAnnotation, uuid.NewString())
		}
		choose(talosCluster, in.TalosContext)
		in.label(talosCluster)
		return s.belong(talosCluster, cluster)
	})
	if err != nil {
		return nil, fmt.Errorf("writing TalosCluster %s: %w", key, err)
	}
	return talosCluster, nil
}

// choose sets the context of the talosconfig, if one is named.
func choose(cluster *v1alpha1.TalosCluster, talosContext string) {
	if talosContext == "" {
		return
	}
	access := ptr.Deref(cluster.Spec.Access, v1alpha1.AccessSpec{})
	access.TalosconfigContext = talosContext
	cluster.Spec.Access = &access
}

// checkKept reads the credentials that providers keep, and says what is wrong with them. Who may not read Secrets learns it from the
// conditions of the TalosCluster.
func (s *Service) checkKept(ctx context.Context, cluster *v1alpha1.TalosCluster) error {
	store, target := &credentials.Store{Reader: s.Client}, targets.Target(cluster)
	kubeconfig, err := store.Kubeconfig(ctx, target)
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return err
	}
	talosconfig, err := store.Talosconfig(ctx, target)
	if err != nil {
		return err
	}
	return s.refuseUnusable(kubeconfig, talosconfig)
}
