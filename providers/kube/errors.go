// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/credentials"
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

// Trouble says in the same words for the same fault why the Kubernetes API tells nothing.
func Trouble(err error) string {
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		return status.Status().Message
	case errors.Is(err, credentials.ErrMissing) || errors.Is(err, credentials.ErrInvalid):
		return err.Error()
	case strings.Contains(err.Error(), "certificate"): // Words of crypto/tls: expired, unknown authority, bad certificate.
		return "the TLS certificate is not accepted, by the hub or by the server"
	}
	return "no answer"
}
