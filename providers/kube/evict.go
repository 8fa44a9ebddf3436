// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	kept    map[string]string // By pod: what a disruption budget says.
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

// keptPods says which pods disruption budgets keep, in the same words for the same pods, or nothing.
func (e *evictor) keptPods() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.kept) == 0 {
		return ""
	}
	var list []string
	for _, pod := range slices.Sorted(maps.Keys(e.kept)) {
		list = append(list, fmt.Sprintf("pod %s (%s)", pod, e.kept[pod]))
	}
	return "kept by a disruption budget: " + strings.Join(list, ", ")
}

func (e *evictor) note(eviction *policyv1.Eviction, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	pod := eviction.Namespace + "/" + eviction.Name
	delete(e.kept, pod)
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return // The pod is gone, or goes with its namespace.
	case apierrors.IsTooManyRequests(err):
		if e.kept == nil {
			e.kept = map[string]string{}
		}
		e.kept[pod] = budgetOf(err)
		return
	case Classify(err) == v1alpha1.ErrorRetryable:
		return
	}
	if e.refused == nil {
		e.refused = fmt.Errorf("evicting pod %s: %w", pod, err)
		e.stop()
	}
}

// budgetOf is what the API server says of the budget that keeps a pod, with its name.
func budgetOf(err error) string {
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok {
		return cause.Message
	}
	return Trouble(err)
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
