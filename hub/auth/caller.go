// SPDX-License-Identifier: Apache-2.0

// Package auth finds out who calls the hub.
package auth

import (
	"context"
	"slices"
	"time"
)

// Method is how a caller signed in.
type Method string

const (
	// TokenMethod is a bearer token that the management API knows.
	TokenMethod Method = "token"

	// OIDCMethod is an identity provider.
	OIDCMethod Method = "oidc"

	// LinkMethod is a one-time link that a standalone hub printed.
	LinkMethod Method = "link"

	// KubeconfigMethod is the caller's own kubeconfig: the service runs in the caller's process.
	KubeconfigMethod Method = "kubeconfig"
)

// Caller is who calls. The management API knows the same user by the same name and groups.
type Caller struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string

	// Method is how the caller signed in, Expires when that ends; zero if it does not.
	Method  Method
	Expires time.Time

	// Source is the address that the call came from, Client what sent it. Both are what the other side says of itself.
	Source, Client string
}

type callerKey struct{}

// With returns a context that carries a caller.
func With(ctx context.Context, caller Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// From is the caller of a context; false if nobody has been authenticated.
func From(ctx context.Context) (Caller, bool) {
	caller, ok := ctx.Value(callerKey{}).(Caller)
	return caller, ok
}

// authenticated is the group of everybody whom the management API knows.
const authenticated = "system:authenticated"

// WithAuthenticated adds the group of everybody who has signed in. The management API adds it to whoever is impersonated, but not to whom
// a SubjectAccessReview asks about.
func WithAuthenticated(groups []string) []string {
	if slices.Contains(groups, authenticated) {
		return groups
	}
	return append(slices.Clip(groups), authenticated)
}
