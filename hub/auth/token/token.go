// SPDX-License-Identifier: Apache-2.0

// Package token knows callers by a bearer token of the management API.
package token

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/recent"
)

const (
	// A token that was taken back is known for goodFor at most; one that was refused is asked about again after badFor.
	goodFor, badFor = 10 * time.Second, 5 * time.Second

	// most is how many tokens are remembered.
	most = 4096

	// maxToken is the longest token that is asked about.
	maxToken = 16 << 10
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create

// Reviewer asks the management API whose a token is.
type Reviewer struct {
	reviews   authenticationclient.TokenReviewInterface
	audiences []string
	answers   *recent.Answers[answer]
}

type answer struct {
	caller  auth.Caller
	refusal string
}

// NewReviewer returns a Reviewer of tokens that are meant for one of the audiences; none is the management API itself.
func NewReviewer(reviews authenticationclient.TokenReviewInterface, audiences []string, clock recent.Clock) *Reviewer {
	return &Reviewer{reviews: reviews, audiences: audiences, answers: recent.New[answer](most, clock)}
}

// Owns implements auth.Bearer: the management API may know any token.
func (r *Reviewer) Owns(string) bool { return true }

// Authenticate implements auth.Bearer. The token itself is not kept, but a hash of it.
func (r *Reviewer) Authenticate(ctx context.Context, token string) (auth.Caller, error) {
	if len(token) > maxToken {
		return auth.Caller{}, auth.Unauthenticated(fmt.Sprintf("the bearer token has %d bytes: want at most %d", len(token), maxToken))
	}
	key := sha256.Sum256([]byte(token))
	known, err := r.answers.Ask(ctx, string(key[:]), func(ctx context.Context) (answer, time.Duration, error) { return r.review(ctx, token) })
	switch {
	case err != nil:
		return auth.Caller{}, connect.NewError(connect.CodeUnavailable, fmt.Errorf("asking the management API whose the bearer token is: %w", err))
	case known.refusal != "":
		return auth.Caller{}, auth.Unauthenticated(known.refusal)
	}
	return known.caller, nil
}

func (r *Reviewer) review(ctx context.Context, token string) (answer, time.Duration, error) {
	review, err := r.reviews.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: r.audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		return answer{}, 0, err
	}
	if refusal := r.refusal(review.Status); refusal != "" {
		return answer{refusal: refusal}, badFor, nil
	}
	return answer{caller: caller(review.Status.User)}, goodFor, nil
}

// refusal says why a token is not taken. An API server that knows nothing of audiences names none, and then the token is for itself.
func (r *Reviewer) refusal(status authenticationv1.TokenReviewStatus) string {
	switch {
	case !status.Authenticated || status.User.Username == "":
		return "the management API does not know the bearer token, or not any more: sign in again"
	case len(r.audiences) > 0 && !sets.New(r.audiences...).HasAny(status.Audiences...):
		return fmt.Sprintf("the bearer token is not for this hub: want one for audience %q", r.audiences[0])
	}
	return ""
}

func caller(user authenticationv1.UserInfo) auth.Caller {
	c := auth.Caller{Name: user.Username, UID: user.UID, Groups: slices.Clone(user.Groups), Method: auth.TokenMethod}
	if len(user.Extra) > 0 {
		c.Extra = make(map[string][]string, len(user.Extra))
		for key, values := range user.Extra {
			c.Extra[key] = values
		}
	}
	return c
}
