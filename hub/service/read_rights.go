// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"slices"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// namespacesAtOnce is about how many namespaces is asked at once.
const namespacesAtOnce = 16

// readable says in which namespaces the caller may list a resource: in those that they named, or in all that there are. Failures say what nobody
// knows; they name no namespace that the caller did not.
func (s *Session) readable(ctx context.Context, resource string, named, all []string) (map[string]bool, []*pb.Failure) {
	if len(named) > 0 {
		return s.readableOf(ctx, resource, named, false)
	}
	return s.Rights.Readable(ctx, resource, all)
}

// readableOf asks about namespaces that the caller named, with answers that are as new as those about anything else. Where all of them are
// needed, it asks no more after the first ones in which they may not list.
func (s *Session) readableOf(ctx context.Context, resource string, named []string, needed bool) (readable map[string]bool, failures []*pb.Failure) {
	readable = make(map[string]bool, len(named))
	if len(named) > namespacesAtOnce && s.mayList(ctx, resource, "") == nil { // Who may list everywhere is asked about no single one.
		for _, namespace := range named {
			readable[namespace] = true
		}
		return readable, nil
	}
	for some := range slices.Chunk(named, namespacesAtOnce) {
		errs := make([]error, len(some))
		var group errgroup.Group
		for i, namespace := range some {
			group.Go(func() error {
				errs[i] = s.mayList(ctx, resource, namespace)
				return nil
			})
		}
		_ = group.Wait() // What fails is among errs.
		denied := false
		for i, namespace := range some {
			switch code := connect.CodeOf(errs[i]); {
			case errs[i] == nil:
				readable[namespace] = true
			case code == connect.CodePermissionDenied:
				denied = true
			default:
				failures = append(failures, &pb.Failure{Scope: &pb.Reference{Namespace: namespace}, Code: code.String(), Message: plain(errs[i])})
			}
		}
		if denied && needed || ctx.Err() != nil {
			break
		}
	}
	return readable, failures
}

func (s *Session) mayList(ctx context.Context, resource, namespace string) error {
	return s.Rights.May(ctx, authorizationv1.ResourceAttributes{Verb: "list", Group: v1alpha1.GroupVersion.Group, Resource: resource, Namespace: namespace})
}
