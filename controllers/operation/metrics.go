// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

var (
	// phases tells where operations are.
	phases = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ichor_operation_phase",
		Help: "Phase of a TalosOperation: 1 for the one that it is in.",
	}, []string{"namespace", "name", "cluster", "kind", "phase"})

	// statusWrites counts writes of the status of operations: what each step costs the management API.
	statusWrites = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ichor_operation_status_writes_total",
		Help: "Writes of the status of TalosOperations, by kind.",
	}, []string{"kind"})

	// stepDurations are how long steps took, from claim to the next one.
	stepDurations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "ichor_operation_step_duration_seconds",
		Help:    "Time from the claim of a step to the next step, or the end of its stage, by kind and step.",
		Buckets: []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600},
	}, []string{"kind", "step"})

	// lockWaits are how long operations waited for the lock of their target.
	lockWaits = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "ichor_operation_lock_wait_seconds",
		Help:    "Time from the creation of a TalosOperation until it first took the lock of its target, by kind.",
		Buckets: []float64{0.5, 1, 2, 5, 10, 60, 300, 900, 3600, 14400, 86400},
	}, []string{"kind"})
)

func init() { metrics.Registry.MustRegister(phases, statusWrites, stepDurations, lockWaits) }

// measure counts what one write of status says that has happened.
func measure(before, after *v1alpha1.TalosOperation) {
	kind := string(after.Spec.Kind)
	statusWrites.WithLabelValues(kind).Inc()
	if before.Status.Phase != after.Status.Phase {
		forgetPhase(types.NamespacedName{Namespace: after.Namespace, Name: after.Name})
		phases.WithLabelValues(after.Namespace, after.Name, after.Spec.ClusterName, kind, string(after.Status.Phase)).Set(1)
	}
	if before.Status.StartTime.IsZero() && !after.Status.StartTime.IsZero() {
		lockWaits.WithLabelValues(kind).Observe(after.Status.StartTime.Sub(after.CreationTimestamp.Time).Seconds())
	}
	for _, unit := range units(after) {
		for _, step := range unit.Steps {
			if !step.CompletionTime.IsZero() && !hadEnded(before, unit.Name, step) {
				stepDurations.WithLabelValues(kind, string(step.Step)).Observe(step.CompletionTime.Sub(step.StartTime.Time).Seconds())
			}
		}
	}
}

// hadEnded says whether status said before that a step of a unit is over.
func hadEnded(before *v1alpha1.TalosOperation, name string, step v1alpha1.StepRecord) bool {
	return slices.ContainsFunc(units(before), func(u v1alpha1.UnitStatus) bool {
		return u.Name == name && slices.ContainsFunc(u.Steps, func(s v1alpha1.StepRecord) bool {
			return s.Step == step.Step && s.StartTime.Equal(&step.StartTime) && !s.CompletionTime.IsZero()
		})
	})
}

func forgetPhase(key types.NamespacedName) {
	phases.DeletePartialMatch(prometheus.Labels{"namespace": key.Namespace, "name": key.Name})
}
