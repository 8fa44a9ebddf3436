// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/dial"
	"ichor.maesh.dev/hub/providers/guard"
)

// Classify says what a failed call to a target's Kubernetes API means for the step that made it.
func Classify(err error) v1alpha1.ErrorClass {
	switch {
	case errors.Is(err, guard.ErrNotAllowed):
		return v1alpha1.ErrorInterrupted
	case errors.Is(err, guard.ErrUndecided): // Its cause is an answer of the management API, not of the target's.
		return v1alpha1.ErrorRetryable
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		apierrors.IsMethodNotSupported(err), apierrors.IsNotFound(err):
		return v1alpha1.ErrorPermanent
	}
	return v1alpha1.ErrorRetryable // The network, the server, a drain that has not come to its end.
}

// noAnswer are the words for a server that nobody has heard.
const noAnswer = "no answer"

// Silent says of the error of a call whether nobody answered, as of a server that does not run.
func Silent(err error) bool {
	if err == nil || errors.Is(err, guard.ErrUndecided) || errors.Is(err, guard.ErrNotAllowed) {
		return false
	}
	words, _ := explain(err)
	return words == noAnswer
}

// Trouble says in the same words for the same fault why the Kubernetes API tells nothing.
func Trouble(err error) string {
	words, _ := explain(err)
	return words
}

// Rejected says whether the server answered and does not accept the credentials, or is not the one that they trust. Other credentials
// would help, and nothing is known of the cluster.
func Rejected(err error) bool {
	if err == nil {
		return false
	}
	_, rejected := explain(err)
	return rejected
}

func explain(err error) (words string, rejected bool) {
	var status apierrors.APIStatus
	var proxy *dial.ProxyError
	switch {
	case errors.As(err, &status):
		return status.Status().Message, apierrors.IsUnauthorized(err) && !errors.Is(err, guard.ErrUndecided)
	case errors.Is(err, credentials.ErrMissing) || errors.Is(err, credentials.ErrInvalid):
		return err.Error(), false
	case errors.Is(err, guard.ErrUndecided), errors.Is(err, guard.ErrNotAllowed):
		return noAnswer, false
	case errors.As(err, &proxy):
		return proxy.Words(), false
	}
	if words, rejected := dial.TLSTrouble(err.Error()); words != "" {
		return words, rejected
	}
	return noAnswer, false
}
