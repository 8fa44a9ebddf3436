// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/lru"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/recent"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

const (
	// goodFor is how long an answer is kept, whichever it is: nobody keeps a right for longer that was taken away. What may be listed somewhere
	// is kept for longer where it may not.
	goodFor = 5 * time.Second

	// callers is of how many answers are kept, and most how many of each: a session's worth of 50 namespaces.
	callers, most = 1024, 1024

	// atOnce is how many questions about one caller are asked at once, and how many namespaces for one call.
	atOnce = 16

	// asides is for how many callers at once is looked again at what they may not list.
	asides = 4
)

// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// reviewer asks the management API what somebody may do. What it keeps is bounded by callers, and by each for themselves.
type reviewer struct {
	reviews authorizationclient.SubjectAccessReviewInterface
	clock   recent.Clock
	asides  chan struct{}

	mu    sync.Mutex
	known *lru.Cache
}

func newReviewer(reviews authorizationclient.SubjectAccessReviewInterface, clock recent.Clock) *reviewer {
	return &reviewer{reviews: reviews, clock: clock, asides: make(chan struct{}, asides), known: lru.New(callers)}
}

// account is what is known of one caller's rights.
type account struct {
	spec    authorizationv1.SubjectAccessReviewSpec // Whose rights they are.
	answers *recent.Answers[bool]
	slots   chan struct{} // Questions under way.
	aside   chan struct{} // What is asked in the background, one after the other.

	mu       sync.Mutex
	readable map[string]*readable // By resource.
}

// of is the account of a caller: the same for as long as the caller is the same in everything that the management API decides on.
func (r *reviewer) of(caller auth.Caller) (*account, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{User: caller.Name, UID: caller.UID, Groups: slices.Sorted(slices.Values(caller.Groups))}
	if len(caller.Extra) > 0 {
		spec.Extra = make(map[string]authorizationv1.ExtraValue, len(caller.Extra))
		for key, values := range caller.Extra {
			spec.Extra[key] = values
		}
	}
	key, err := keyOf(spec)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.known.Get(key); ok {
		return known.(*account), nil //nolint:forcetypeassert // There is nothing else in it.
	}
	made := &account{
		spec: spec, answers: recent.New[bool](most, r.clock), slots: make(chan struct{}, atOnce), aside: make(chan struct{}, 1),
		readable: map[string]*readable{},
	}
	r.known.Add(key, made)
	return made, nil
}

// may says whether a caller may do something.
func (r *reviewer) may(ctx context.Context, caller auth.Caller, what authorizationv1.ResourceAttributes) (bool, error) {
	of, err := r.of(caller)
	if err != nil {
		return false, err
	}
	key, err := keyOf(what)
	if err != nil {
		return false, err
	}
	return of.answers.Ask(ctx, key, func(ctx context.Context) (bool, time.Duration, error) {
		allowed, err := r.review(ctx, of, what)
		return allowed, goodFor, err
	})
}

// review asks the management API. One caller's questions have to wait for each other, so that nobody makes the hub ask many at once.
func (r *reviewer) review(ctx context.Context, of *account, what authorizationv1.ResourceAttributes) (bool, error) {
	select {
	case of.slots <- struct{}{}:
		defer func() { <-of.slots }()
	case <-ctx.Done():
		return false, errBusy
	}
	spec := of.spec
	spec.ResourceAttributes = &what
	review, err := r.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}

// readable is where a caller may list a resource.
func (r *reviewer) readable(of *account, resource string) *readable {
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.readable[resource] == nil {
		ask := func(ctx context.Context, namespace string) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			return r.review(ctx, of, listing(resource, namespace))
		}
		of.readable[resource] = newReadable(ask, r.clock.Now, func(look func()) { r.inTurn(of, look) })
	}
	return of.readable[resource]
}

// inTurn runs one look in the background for a caller at a time, and for few callers.
func (r *reviewer) inTurn(of *account, look func()) {
	of.aside <- struct{}{}
	defer func() { <-of.aside }()
	r.asides <- struct{}{}
	defer func() { <-r.asides }()
	look()
}

func listing(resource, namespace string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Group: v1alpha1.GroupVersion.Group, Resource: resource}
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
	everywhere, err := r.reviewer.may(ctx, r.caller, listing(resource, ""))
	if err != nil {
		return nil, failures(resource, err)
	}
	if everywhere {
		all := make(map[string]bool, len(namespaces))
		for _, namespace := range namespaces {
			all[namespace] = true
		}
		return all, nil
	}
	of, err := r.reviewer.of(r.caller)
	if err != nil {
		return nil, failures(resource, err)
	}
	some, err := r.reviewer.readable(of, resource).among(ctx, namespaces)
	if err != nil {
		return some, failures(resource, err)
	}
	return some, nil
}

// failures say that nobody knows of every namespace whether it may be read. Which ones that are is not said: the caller did not name them, and
// may have no right to know that they exist.
func failures(resource string, err error) []*pb.Failure {
	return []*pb.Failure{{
		Code: codeOf(err).String(), Message: fmt.Sprintf("it is not known of every namespace whether you may list %s: asking the management API: %s", resource, err),
	}}
}

// errBusy is why a question was not even asked.
var errBusy = fmt.Errorf("%d other questions about what you may do are under way: ask again in a moment", atOnce)

// codeOf is the code of a question that was not answered.
func codeOf(err error) connect.Code {
	switch {
	case errors.Is(err, errBusy):
		return connect.CodeResourceExhausted
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
