// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/recent"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

const (
	// goodFor is how long an answer is kept, whichever it is: nobody keeps a right for longer that was taken away, or waits for longer for
	// one that was given.
	goodFor = 5 * time.Second

	// most is how many answers are kept: of 1,000 callers, a page's worth each.
	most = 32 << 10

	// atOnce is how many namespaces are asked about at once for one call.
	atOnce = 16
)

// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// reviewer asks the management API what somebody may do.
type reviewer struct {
	reviews authorizationclient.SubjectAccessReviewInterface
	answers *recent.Answers[bool]
}

// may says whether a caller may do something.
func (r *reviewer) may(ctx context.Context, caller auth.Caller, what authorizationv1.ResourceAttributes) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: caller.Name, UID: caller.UID, Groups: slices.Sorted(slices.Values(caller.Groups)), ResourceAttributes: &what,
	}
	if len(caller.Extra) > 0 {
		spec.Extra = make(map[string]authorizationv1.ExtraValue, len(caller.Extra))
		for key, values := range caller.Extra {
			spec.Extra[key] = values
		}
	}
	key, err := keyOf(spec)
	if err != nil {
		return false, err
	}
	return r.answers.Ask(ctx, key, func(ctx context.Context) (bool, time.Duration, error) {
		review, err := r.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			return false, 0, err
		}
		return review.Status.Allowed && !review.Status.Denied, goodFor, nil
	})
}

// keyOf is the same for the same question. Who asks is part of it, so no caller gets another's answer.
func keyOf(question any) (string, error) {
	text, err := json.Marshal(question) // Keys of maps are sorted.
	if err != nil {
		return "", fmt.Errorf("encoding what is asked of the management API: %w", err)
	}
	hash := sha256.Sum256(text)
	return string(hash[:]), nil
}

// rights are those of one caller.
type rights struct {
	reviewer *reviewer
	caller   auth.Caller
}

// May implements service.Rights.
func (r rights) May(ctx context.Context, what authorizationv1.ResourceAttributes) error {
	allowed, err := r.reviewer.may(ctx, r.caller, what)
	switch {
	case err != nil:
		return connect.NewError(codeOf(err), fmt.Errorf("asking the management API whether you may %s: %w", words(what), err))
	case !allowed:
		return Denied(r.caller.Name, what)
	}
	return nil
}

// Readable implements service.Rights: a right in every namespace is asked for first, since who has it is asked about only once.
func (r rights) Readable(ctx context.Context, resource string, namespaces []string) (map[string]bool, []*pb.Failure) {
	list := func(namespace string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Group: v1alpha1.GroupVersion.Group, Resource: resource}
	}
	readable := make(map[string]bool, len(namespaces))
	if everywhere, err := r.reviewer.may(ctx, r.caller, list("")); err == nil && everywhere {
		for _, namespace := range namespaces {
			readable[namespace] = true
		}
		return readable, nil
	}
	var failures []*pb.Failure
	var lock sync.Mutex
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, namespace := range namespaces {
		group.Go(func() error {
			allowed, err := r.reviewer.may(ctx, r.caller, list(namespace))
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				failures = append(failures, failure(namespace, resource, err))
			}
			readable[namespace] = allowed
			return nil
		})
	}
	_ = group.Wait() // What fails is among the failures.
	slices.SortFunc(failures, compareNamespaces)
	return readable, failures
}

func compareNamespaces(a, b *pb.Failure) int {
	return strings.Compare(a.GetScope().GetNamespace(), b.GetScope().GetNamespace())
}

// failure says that nobody knows whether a namespace may be read.
func failure(namespace, resource string, err error) *pb.Failure {
	return &pb.Failure{
		Scope: &pb.Reference{Namespace: namespace}, Code: codeOf(err).String(),
		Message: fmt.Sprintf("asking the management API whether you may list %s in namespace %s: %s", resource, namespace, err),
	}
}

// codeOf is the code of a question that was not answered.
func codeOf(err error) connect.Code {
	switch {
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	}
	return connect.CodeUnavailable
}

// Denied says that a user may not do something.
func Denied(user string, what authorizationv1.ResourceAttributes) error {
	return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("user %.64q may not %s", user, words(what)))
}

// words say what somebody wants to do, such as "start talosoperations/talos in namespace default".
func words(what authorizationv1.ResourceAttributes) string {
	text := what.Verb + " " + what.Resource
	if what.Subresource != "" {
		text += "/" + what.Subresource
	}
	if what.Name != "" {
		text += " " + what.Name
	}
	if what.Namespace == "" {
		return text + " in every namespace"
	}
	return text + " in namespace " + what.Namespace
}
