// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

var _ = Describe("What an operation goes through", func() {
	It("is told in Events", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.talos.ExitWith(f.addresses["w1"], 5)
		drain := f.kube.HangBefore("Drain", "cp1")
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(drain.Reached).Should(BeClosed())
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
		Eventually(now(ctx, op)).Should(haveCondition("Paused", metav1.ConditionTrue, "OperatorPaused", Not(BeEmpty())))
		drain.Release()
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "Paused", BeEmpty()))
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = nil })
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", Not(BeEmpty())))
		f.talos.ExitWith(f.addresses["w1"], 0)
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted())
		Eventually(f.events(ctx, op)).Should(ContainElements(
			"Normal LockTaken: took the lock of cluster c",
			"Normal StageCompleted: stage Pull is over",
			"Normal OperatorPaused: spec.paused is true; resume with: ichor operation resume up",
			"Normal MachineCompleted: c-cp1 is done",
			"Normal Resumed: goes on: OperatorPaused is over",
			HavePrefix("Warning StepFailed: machine c-w1: Installing failed: the installer ended with exit code 5"),
			HavePrefix("Normal Retrying: retrying after: machine c-w1"),
			"Normal Completed: completed",
			"Normal LockReleased: gave back the lock of cluster c",
		))
	})

	It("is measured", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.startHub()
		before := sampled("ichor_operation_step_duration_seconds", prometheus.Labels{"kind": "node", "step": "Rebooting"})
		waits := sampled("ichor_operation_lock_wait_seconds", prometheus.Labels{"kind": "node"})
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, op)).Should(beCompleted())
		labels := prometheus.Labels{"namespace": f.namespace, "name": "re", "cluster": "c", "kind": "node", "phase": "Completed"}
		Eventually(func() []*dto.Metric { return series("ichor_operation_phase", labels) }).Should(HaveLen(1))
		delete(labels, "phase")
		Expect(series("ichor_operation_phase", labels)).To(HaveLen(1), "an operation is in one phase")
		Expect(sampled("ichor_operation_step_duration_seconds", prometheus.Labels{"kind": "node", "step": "Rebooting"})).To(Equal(before + 1))
		Expect(sampled("ichor_operation_lock_wait_seconds", prometheus.Labels{"kind": "node"})).To(Equal(waits + 1))

		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(func() []*dto.Metric { return series("ichor_operation_phase", labels) }).Should(BeEmpty())
	})
})

// series are the series of a metric that have the labels.
func series(name string, labels prometheus.Labels) []*dto.Metric {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	var found []*dto.Metric
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == name && hasLabels(metric, labels) {
				found = append(found, metric)
			}
		}
	}
	return found
}

func hasLabels(metric *dto.Metric, labels prometheus.Labels) bool {
	matched := 0
	for _, label := range metric.GetLabel() {
		if value, ok := labels[label.GetName()]; ok && value == label.GetValue() {
			matched++
		}
	}
	return matched == len(labels)
}

// sampled counts the samples of a histogram.
func sampled(name string, labels prometheus.Labels) uint64 {
	GinkgoHelper()
	var count uint64
	for _, metric := range series(name, labels) {
		count += metric.GetHistogram().GetSampleCount()
	}
	return count
}
