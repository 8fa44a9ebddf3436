// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// part is one list of what a fleet is made of.
type part struct {
	what    string
	list    func() client.ObjectList
	options []client.ListOption

	// spare parts are done without where the caller may not read them: the status of a cluster says who holds its lock, too.
	spare bool
}

var parts = []part{
	{what: "talosclusters", list: func() client.ObjectList { return &v1alpha1.TalosClusterList{} }},
	{what: "clusters", list: func() client.ObjectList { return &clusterv1.ClusterList{} }},
	{what: "talosmachines", list: func() client.ObjectList { return &v1alpha1.TalosMachineList{} }},
	{what: "talosoperations", list: func() client.ObjectList { return &v1alpha1.TalosOperationList{} }},
	{
		what: "leases", list: func() client.ObjectList { return &coordinationv1.LeaseList{} }, spare: true,
		options: []client.ListOption{client.HasLabels{clusterv1.ClusterNameLabel}},
	},
}

// Load makes a fleet of what a reader lists in some namespaces, in all if none is named. It does not change afterwards. A part that could
// not be listed is named in failures; it is an error if the management API cannot be asked at all.
func Load(ctx context.Context, reader client.Reader, namespaces ...string) (*Fleet, []*pb.Failure, error) {
	f := New()
	f.epoch = ""
	var failures []*pb.Failure
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		failed, err := f.loadNamespace(ctx, reader, namespace)
		if err != nil {
			return nil, nil, err
		}
		failures = append(failures, failed...)
	}
	f.MarkSynced()
	return f, failures, nil
}

func (f *Fleet) loadNamespace(ctx context.Context, reader client.Reader, namespace string) ([]*pb.Failure, error) {
	var failures []*pb.Failure
	for _, part := range parts {
		list := part.list()
		err := reader.List(ctx, list, append([]client.ListOption{client.InNamespace(namespace)}, part.options...)...)
		switch {
		case err == nil:
			if err := f.applyList(list); err != nil {
				return nil, fmt.Errorf("reading the list of %s: %w", part.what, err)
			}
		case isNotThere(err), part.spare && apierrors.IsForbidden(err):
		case isWhole(err):
			return nil, fmt.Errorf("listing %s: %w", part.what, err)
		default:
			failures = append(failures, &pb.Failure{
				Scope: &pb.Reference{Namespace: namespace}, Code: code(err).String(), Message: fmt.Sprintf("listing %s: %s", part.what, err),
			})
		}
	}
	return failures, nil
}

func (f *Fleet) applyList(list client.ObjectList) error {
	return meta.EachListItem(list, func(item runtime.Object) error {
		f.apply(item)
		return nil
	})
}

// isNotThere says that nobody has installed such a kind: there is no object of it.
func isNotThere(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// isWhole says that an error is not about what was listed: nobody answers, or the credentials are not accepted.
func isWhole(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsUnauthorized(err)
}

func code(err error) connect.Code {
	switch {
	case apierrors.IsForbidden(err):
		return connect.CodePermissionDenied
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err):
		return connect.CodeUnavailable
	}
	return connect.CodeUnknown
}
