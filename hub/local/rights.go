// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/access"
	"ichor.maesh.dev/hub/hub/auth"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// rightsFor is how long an answer is kept.
const rightsFor = 10 * time.Second

// rights are what the kubeconfig's user may do.
type rights struct {
	client client.Client
	now    func() time.Time

	mu    sync.Mutex
	known map[authorizationv1.ResourceAttributes]answer
}

// answer is one that the management API gave.
type answer struct {
	allowed bool
	at      time.Time
}

func newRights(c client.Client) *rights {
	return &rights{client: c, now: time.Now, known: map[authorizationv1.ResourceAttributes]answer{}}
}

// of are the rights, told as those of a caller.
func (r *rights) of(caller auth.Caller) callerRights {
	return callerRights{rights: r, name: caller.Name}
}

// ask asks the management API, or remembers.
func (r *rights) ask(ctx context.Context, what authorizationv1.ResourceAttributes) (answer, error) {
	if known, ok := r.remembered(what); ok {
		return known, nil
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what}}
	if err := r.client.Create(ctx, review); err != nil {
		return answer{}, refused(fmt.Errorf("asking the management API what you may do: %w", err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[what] = answer{allowed: review.Status.Allowed, at: r.now()}
	return r.known[what], nil
}

func (r *rights) remembered(what authorizationv1.ResourceAttributes) (answer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.known[what]
	return known, ok && r.now().Sub(known.at) < rightsFor
}

// callerRights implements service.Rights.
type callerRights struct {
	*rights

	name string
}

// May implements service.Rights.
func (r callerRights) May(ctx context.Context, what authorizationv1.ResourceAttributes) error {
	given, err := r.ask(ctx, what)
	if err != nil || given.allowed {
		return err
	}
	return access.Denied(r.name, what)
}

// Readable implements service.Rights. Who may list everywhere is asked about no single namespace.
func (r callerRights) Readable(ctx context.Context, resource string, namespaces []string) (readable map[string]bool, failures []*pb.Failure) {
	readable = make(map[string]bool, len(namespaces))
	what := authorizationv1.ResourceAttributes{Verb: "list", Group: v1alpha1.GroupVersion.Group, Resource: resource}
	everywhere, err := r.ask(ctx, what)
	for _, namespace := range namespaces {
		given := everywhere
		if err == nil && !everywhere.allowed {
			what.Namespace = namespace
			given, err = r.ask(ctx, what)
		}
		if err != nil {
			failures = append(failures, failure(namespace, err))
			continue
		}
		readable[namespace] = given.allowed
	}
	return readable, failures
}

func failure(namespace string, err error) *pb.Failure {
	return &pb.Failure{Scope: &pb.Reference{Namespace: namespace}, Code: connect.CodeOf(err).String(), Message: err.Error()}
}
