// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/providers/credentials"
)

// ExportBundle implements the ClusterService.
func (s *Server) ExportBundle(ctx context.Context, request *connect.Request[pb.ExportBundleRequest]) (*connect.Response[pb.ExportBundleResponse], error) {
	bundle, changed, err := s.exportBundle(ctx, request.Msg)
	if err != nil {
		return nil, problem(err)
	}
	return connect.NewResponse(&pb.ExportBundleResponse{Bundle: bundle, Changed: changed}), nil
}

func (s *Server) exportBundle(ctx context.Context, request *pb.ExportBundleRequest) (bundle []byte, changed bool, err error) {
	key, err := s.key("ref", request.GetRef())
	if err != nil {
		return nil, false, err
	}
	service, err := s.writer(ctx)
	if err != nil {
		return nil, false, err
	}
	return service.ExportBundle(ctx, key)
}

// ExportBundle returns the bundle of a cluster's secrets, and writes down that people have it as it is now. It says whether they had not.
func (s *Service) ExportBundle(ctx context.Context, key client.ObjectKey) (bundle []byte, changed bool, err error) {
	cluster := &v1alpha1.TalosCluster{}
	switch err := s.Client.Get(ctx, key, cluster); {
	case apierrors.IsNotFound(err):
		return nil, false, unknownCluster(key)
	case err != nil:
		return nil, false, fmt.Errorf("reading TalosCluster %s: %w", key, err)
	}
	if err := s.mayWrite(ctx, "patch", clustersResource, cluster); err != nil {
		return nil, false, err
	}
	// What has changed by now is read before the bundle: one that changes in between is exported once more.
	current := cluster.Annotations[v1alpha1.BundleChangedAnnotation]
	if bundle, err = s.bundle(ctx, key); err != nil {
		return nil, false, err
	}
	if cluster.Annotations[v1alpha1.BundleExportedAnnotation] == current {
		return bundle, false, nil
	}
	before := cluster.DeepCopy()
	metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, v1alpha1.BundleExportedAnnotation, current)
	if err := s.Client.Patch(ctx, cluster, client.MergeFrom(before)); err != nil {
		return nil, false, fmt.Errorf("writing down that the bundle of cluster %s is exported: %w", key.Name, err)
	}
	return bundle, true, nil
}

// bundle reads the bundle of a cluster's secrets as the user.
func (s *Service) bundle(ctx context.Context, key client.ObjectKey) ([]byte, error) {
	secret := &corev1.Secret{}
	name := credentials.BundleSecretName(key.Name)
	switch err := s.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: name}, secret); {
	case apierrors.IsNotFound(err):
		return nil, &NotFoundError{
			What: fmt.Sprintf("nobody keeps a bundle of the secrets of cluster %s: there is no Secret %s", key.Name, name),
			Help: "the hub makes one when it rotates authorities; until then, of a control plane's machine config: talosctl gen secrets --from-controlplane-config FILE",
		}
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	parsed, err := credentials.ParseBundle(secret.Data)
	if err != nil {
		return nil, fmt.Errorf("secret %s: %w", name, err)
	}
	encoded, err := credentials.EncodeBundle(parsed)
	if err != nil {
		return nil, fmt.Errorf("secret %s: %w", name, err)
	}
	return encoded, nil
}
