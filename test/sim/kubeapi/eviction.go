// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

// evict ends a pod unless a disruption budget forbids it.
func (a *API) evict(r *request, body []byte) (int, any, error) {
	eviction := &policyv1.Eviction{}
	kind := schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, &kind, eviction); err != nil {
		return 0, nil, apierrors.NewBadRequest("eviction: " + err.Error())
	}
	options := eviction.DeleteOptions
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	obj, err := a.store.Get(Pods, r.namespace, r.name)
	if err != nil {
		return 0, nil, err
	}
	pod := obj.(*corev1.Pod) //nolint:forcetypeassert // The store holds pods under Pods.
	r.entry.Describe("node", pod.Spec.NodeName)
	if err := a.disruptionAllowed(pod); err != nil {
		return 0, nil, err
	}
	if _, _, err := a.deletePod(r, options); err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusCreated,
	}, nil
}

// disruptionAllowed asks every budget that selects the pod. A pod that does not serve anyway may always go.
func (a *API) disruptionAllowed(pod *corev1.Pod) error {
	if !serving(pod) {
		return nil
	}
	budgets, err := a.budgetsOf(pod)
	switch {
	case err != nil:
		return apierrors.NewInternalError(err)
	case len(budgets) > 1:
		return apierrors.NewInternalError(errors.New("this pod has more than one PodDisruptionBudget, which the eviction subresource does not support"))
	case len(budgets) == 0:
		return nil
	}
	status, err := BudgetStatus(a.store, budgets[0])
	switch {
	case err != nil:
		return apierrors.NewInternalError(err)
	case status.DisruptionsAllowed <= 0:
		return budgetError(budgets[0].Name, status)
	}
	return nil
}

func (a *API) budgetsOf(pod *corev1.Pod) (found []*policyv1.PodDisruptionBudget, err error) {
	budgets, _ := a.store.List(PodDisruptionBudgets, pod.Namespace)
	for _, obj := range budgets {
		budget := obj.(*policyv1.PodDisruptionBudget) //nolint:forcetypeassert // The store holds budgets under it.
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil {
			return nil, err
		}
		if selector.Matches(labels.Set(pod.Labels)) {
			found = append(found, budget)
		}
	}
	return found, nil
}

func budgetError(name string, status policyv1.PodDisruptionBudgetStatus) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    policyv1.DisruptionBudgetCause,
		Message: fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", name, status.DesiredHealthy, status.CurrentHealthy),
	})
	return err
}

// Lister lists the objects of a namespace, or of all when it is empty.
type Lister interface {
	List(r *Resource, namespace string) ([]Object, uint64)
}

// BudgetStatus is what the controller of disruption budgets finds about one now.
func BudgetStatus(store Lister, budget *policyv1.PodDisruptionBudget) (policyv1.PodDisruptionBudgetStatus, error) {
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		return policyv1.PodDisruptionBudgetStatus{}, fmt.Errorf("selector of budget %s: %w", budget.Name, err)
	}
	total, healthy := 0, 0
	pods, _ := store.List(Pods, budget.Namespace)
	for _, o := range pods {
		if !selector.Matches(labels.Set(o.GetLabels())) {
			continue
		}
		total++
		if serving(o.(*corev1.Pod)) {
			healthy++
		}
	}
	desired := desiredHealthy(budget, total)
	return policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: budget.Generation, ExpectedPods: int32(total), CurrentHealthy: int32(healthy),
		DesiredHealthy: int32(desired), DisruptionsAllowed: int32(max(healthy-desired, 0)),
	}, nil
}

func desiredHealthy(budget *policyv1.PodDisruptionBudget, total int) int {
	if least := budget.Spec.MinAvailable; least != nil {
		n, err := intstr.GetScaledValueFromIntOrPercent(least, total, true)
		if err == nil {
			return n
		}
	}
	if most := budget.Spec.MaxUnavailable; most != nil {
		n, err := intstr.GetScaledValueFromIntOrPercent(most, total, true)
		if err == nil {
			return total - n
		}
	}
	return 0
}

func serving(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
