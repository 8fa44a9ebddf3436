// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// evictor is a clientset that ends a drain at the first eviction which is refused for good, and keeps the error: the drain itself
// goes on with the other pods, and returns only the text of what happened.
type evictor struct {
	kubernetes.Interface

	stop context.CancelFunc

	mu      sync.Mutex
	refused error
}

// PolicyV1 implements kubernetes.Interface.
func (e *evictor) PolicyV1() policyclient.PolicyV1Interface {
	return evictorPolicy{e.Interface.PolicyV1(), e}
}

func (e *evictor) refusal() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refused
}

func (e *evictor) note(eviction *policyv1.Eviction, err error) {
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return // The pod is gone, or goes with its namespace.
	case Classify(err) == v1alpha1.ErrorRetryable:
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refused == nil {
		e.refused = fmt.Errorf("evicting pod %s/%s: %w", eviction.Namespace, eviction.Name, err)
		e.stop()
	}
}

type evictorPolicy struct {
	policyclient.PolicyV1Interface

	evictor *evictor
}

// Evictions implements policyclient.PolicyV1Interface.
func (p evictorPolicy) Evictions(namespace string) policyclient.EvictionInterface {
	return evictorEvictions{p.PolicyV1Interface.Evictions(namespace), p.evictor}
}

type evictorEvictions struct {
	policyclient.EvictionInterface

	evictor *evictor
}

// Evict implements policyclient.EvictionInterface.
func (e evictorEvictions) Evict(ctx context.Context, eviction *policyv1.Eviction) error {
	err := e.EvictionInterface.Evict(ctx, eviction)
	e.evictor.note(eviction, err)
	return err
}
