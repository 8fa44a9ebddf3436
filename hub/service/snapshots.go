// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/hub/fleet/render"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// snapshotsResource is what a caller has to be able to list to see snapshots.
const snapshotsResource = "etcdsnapshots"

var snapshotFields = fields[*pb.Snapshot]{
	"taken_time":  func(s *pb.Snapshot) string { return timeKey(s.GetContents().GetTakenTime()) },
	"create_time": func(s *pb.Snapshot) string { return timeKey(s.GetCreateTime()) },
	"name":        func(s *pb.Snapshot) string { return s.GetRef().GetName() },
	"cluster":     func(s *pb.Snapshot) string { return clusterKey(s.GetCluster()) },
}

// ListSnapshots implements the SnapshotService. No replica keeps snapshots in memory for this: they are read from the management API, as the
// caller.
func (s *Server) ListSnapshots(ctx context.Context, request *connect.Request[pb.ListSnapshotsRequest]) (*connect.Response[pb.ListSnapshotsResponse], error) {
	message := request.Msg
	by, err := orderOf(message.GetOrderBy(), "create_time desc", snapshotFields)
	if err != nil {
		return nil, err
	}
	page, err := pagingOf(message.GetPage(), &pb.ListSnapshotsRequest{
		Clusters: message.GetClusters(), Namespaces: message.GetNamespaces(), OrderBy: message.GetOrderBy(),
	})
	if err != nil {
		return nil, err
	}
	named, err := s.named("namespaces", message.GetNamespaces(), map[string][]*pb.Reference{"clusters": message.GetClusters()})
	if err != nil {
		return nil, err
	}
	r, err := s.read(ctx, named)
	if err != nil {
		return nil, err
	}
	seen, err := r.look(ctx, snapshotsResource)
	if err != nil {
		return nil, err
	}
	all, err := r.snapshots(ctx, seen, message.GetClusters())
	if err != nil {
		return nil, problem(err)
	}
	part, next := cut(all, by, page)
	return connect.NewResponse(&pb.ListSnapshotsResponse{Snapshots: part, NextPageToken: next, TotalSize: size(all), Failures: r.failures}), nil
}

// snapshots reads the snapshots of some clusters, or of all that the caller may read.
func (r *reading) snapshots(ctx context.Context, seen views, clusters []*pb.Reference) ([]*pb.Snapshot, error) {
	var all []*pb.Snapshot
	for _, namespace := range r.namespaces() {
		if !seen.sees(namespace, 0) {
			continue
		}
		list := &v1alpha1.EtcdSnapshotList{}
		if err := liveOf(r.Session).List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("listing snapshots in namespace %s: %w", namespace, err)
		}
		for i := range list.Items {
			if snapshot := &list.Items[i]; ofOne(clusters, snapshot) {
				all = append(all, render.Snapshot(snapshot))
			}
		}
	}
	return all, nil
}

// ofOne says whether a snapshot is of one of some clusters; no cluster is any.
func ofOne(clusters []*pb.Reference, snapshot *v1alpha1.EtcdSnapshot) bool {
	return len(clusters) == 0 || slices.ContainsFunc(clusters, func(ref *pb.Reference) bool {
		return ref.GetNamespace() == snapshot.Namespace && cmp.Or(ref.GetName(), snapshot.Spec.ClusterName) == snapshot.Spec.ClusterName
	})
}

// GetSnapshot implements the SnapshotService.
func (s *Server) GetSnapshot(ctx context.Context, request *connect.Request[pb.GetSnapshotRequest]) (*connect.Response[pb.GetSnapshotResponse], error) {
	_, snapshot, err := s.snapshot(ctx, request.Msg.GetRef())
	if err != nil {
		return nil, problem(err)
	}
	return connect.NewResponse(&pb.GetSnapshotResponse{Snapshot: render.Snapshot(snapshot)}), nil
}

// snapshot begins a call about one snapshot.
func (s *Server) snapshot(ctx context.Context, ref *pb.Reference) (*Service, *v1alpha1.EtcdSnapshot, error) {
	key, err := s.key("ref", ref)
	if err != nil {
		return nil, nil, err
	}
	service, err := s.writer(ctx)
	if err != nil {
		return nil, nil, err
	}
	snapshot, err := service.Snapshot(ctx, key)
	return service, snapshot, err
}

// Snapshot reads one snapshot.
func (s *Service) Snapshot(ctx context.Context, key client.ObjectKey) (*v1alpha1.EtcdSnapshot, error) {
	snapshot := &v1alpha1.EtcdSnapshot{}
	switch err := s.Client.Get(ctx, key, snapshot); {
	case apierrors.IsNotFound(err):
		return nil, &NotFoundError{
			What: fmt.Sprintf("there is no snapshot %q in namespace %q", key.Name, key.Namespace), Help: "list them with: ichor snapshot list",
		}
	case err != nil:
		return nil, fmt.Errorf("reading snapshot %s: %w", key, err)
	}
	return snapshot, nil
}

// CreateSnapshot implements the SnapshotService.
func (s *Server) CreateSnapshot(ctx context.Context, request *connect.Request[pb.CreateSnapshotRequest]) (*connect.Response[pb.CreateSnapshotResponse], error) {
	key, err := s.key("cluster", request.Msg.GetCluster())
	if err != nil {
		return nil, err
	}
	service, err := s.writer(ctx)
	if err != nil {
		return nil, problem(err)
	}
	snapshot, changed, err := service.TakeSnapshot(ctx, key, request.Msg.GetName())
	if err != nil {
		return nil, problem(err)
	}
	return connect.NewResponse(&pb.CreateSnapshotResponse{Snapshot: render.Snapshot(snapshot), Changed: changed}), nil
}

// TakeSnapshot asks for a snapshot of the etcd of a cluster, and says whether nobody had asked for one of that name. Without a name it gets
// one that tells the time.
func (s *Service) TakeSnapshot(ctx context.Context, cluster client.ObjectKey, name string) (snapshot *v1alpha1.EtcdSnapshot, changed bool, err error) {
	name = cmp.Or(name, fmt.Sprintf("%s-manual-%s", cluster.Name, s.Now().UTC().Format("20060102-150405")))
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return nil, false, &InvalidError{Field: "name", Value: name, Allowed: "lower-case letters, digits, dashes and dots, a letter or a digit first and last"}
	}
	made := &v1alpha1.EtcdSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name}},
		Spec:       v1alpha1.EtcdSnapshotSpec{ClusterName: cluster.Name, Reason: v1alpha1.SnapshotManual, Requester: s.User},
	}
	if err := s.mayWrite(ctx, "create", snapshotsResource, made); err != nil {
		return nil, false, err
	}
	facts, err := s.Facts(ctx, cluster)
	if err != nil {
		return nil, false, err
	}
	if facts.Cluster.Spec.EtcdBackup == nil {
		return nil, false, &RefusedError{Refusals: []plan.Refusal{{
			Gate:    v1alpha1.SnapshotStorageGate,
			Message: fmt.Sprintf("spec.etcdBackup.bucketURL of TalosCluster %s is not set: a snapshot could be stored nowhere", cluster.Name),
			Help:    fmt.Sprintf("kubectl -n %s patch taloscluster %s --type merge -p '{\"spec\":{\"etcdBackup\":{\"bucketURL\":\"s3://BUCKET/PREFIX?region=REGION\",\"credentialsSecretName\":\"SECRET\"}}}'", cluster.Namespace, cluster.Name),
		}}}
	}
	err = s.Client.Create(ctx, made)
	if apierrors.IsAlreadyExists(err) {
		return s.sameSnapshot(ctx, made)
	}
	if err != nil {
		return nil, false, fmt.Errorf("asking for snapshot %s: %w", client.ObjectKeyFromObject(made), err)
	}
	return made, true, nil
}

// sameSnapshot is the snapshot that has the name already, if it is one of the same cluster.
func (s *Service) sameSnapshot(ctx context.Context, made *v1alpha1.EtcdSnapshot) (*v1alpha1.EtcdSnapshot, bool, error) {
	there, err := s.Snapshot(ctx, client.ObjectKeyFromObject(made))
	switch {
	case err != nil:
		return nil, false, err
	case there.Spec.ClusterName != made.Spec.ClusterName:
		return nil, false, &ExistsError{What: fmt.Sprintf("snapshot %s is one of cluster %s", there.Name, there.Spec.ClusterName), Help: "choose another name"}
	case !there.DeletionTimestamp.IsZero():
		return nil, false, &StateError{What: fmt.Sprintf("snapshot %s is being deleted", there.Name), Help: "choose another name, or ask again when it is gone"}
	}
	return there, false, nil
}

// DeleteSnapshot implements the SnapshotService.
func (s *Server) DeleteSnapshot(ctx context.Context, request *connect.Request[pb.DeleteSnapshotRequest]) (*connect.Response[pb.DeleteSnapshotResponse], error) {
	service, snapshot, err := s.snapshot(ctx, request.Msg.GetRef())
	if err != nil {
		return nil, problem(err)
	}
	gone, err := service.DeleteSnapshot(ctx, snapshot, request.Msg.GetRetain())
	if err != nil {
		return nil, problem(err)
	}
	return connect.NewResponse(&pb.DeleteSnapshotResponse{Gone: gone}), nil
}

// DeleteSnapshot deletes a snapshot and what is stored of it, unless that is retained. It says whether it is gone already.
func (s *Service) DeleteSnapshot(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, retain bool) (gone bool, err error) {
	key := client.ObjectKeyFromObject(snapshot)
	if err := s.mayWrite(ctx, "delete", snapshotsResource, snapshot); err != nil {
		return false, err
	}
	if retain && !snapshot.Retained() {
		if err := s.mayWrite(ctx, "patch", snapshotsResource, snapshot); err != nil {
			return false, err
		}
		patched := snapshot.DeepCopy()
		patched.Spec.DeletionPolicy = v1alpha1.SnapshotRetain
		if err := s.Client.Patch(ctx, patched, client.MergeFromWithOptions(snapshot, client.MergeFromWithOptimisticLock{})); err != nil {
			return false, fmt.Errorf("retaining what is stored of snapshot %s: %w", key, err)
		}
	}
	if err := client.IgnoreNotFound(s.Client.Delete(ctx, snapshot, client.Preconditions{UID: &snapshot.UID})); err != nil {
		return false, fmt.Errorf("deleting snapshot %s: %w", key, err)
	}
	err = s.Client.Get(ctx, key, &v1alpha1.EtcdSnapshot{})
	return apierrors.IsNotFound(err), nil
}
