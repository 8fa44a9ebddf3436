// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// reachable says of every target whether its APIs answered at the last look.
var reachable = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "ichor_target_reachable",
	Help: "Whether an API of a target answers: 1 or 0. The Talos API does if that of any machine does.",
}, []string{"namespace", "cluster", "api"})

func init() { metrics.Registry.MustRegister(reachable) }

// Values of the label api.
const (
	kubernetesAPI = "kubernetes"
	talosAPI      = "talos"
)

// measure takes the gauges of a target from its conditions. What is not known counts as not reachable.
func measure(cluster *v1alpha1.TalosCluster) {
	conditions := cluster.Status.Conditions
	talos := meta.FindStatusCondition(conditions, v1alpha1.TalosReachableCondition)
	partly := talos != nil && talos.Reason == v1alpha1.TalosPartlyReachableReason
	key := client.ObjectKeyFromObject(cluster)
	gauge(key, kubernetesAPI, meta.IsStatusConditionTrue(conditions, v1alpha1.KubernetesReachableCondition))
	gauge(key, talosAPI, partly || meta.IsStatusConditionTrue(conditions, v1alpha1.TalosReachableCondition))
}

func gauge(key types.NamespacedName, api string, answers bool) {
	value := 0.0
	if answers {
		value = 1
	}
	reachable.WithLabelValues(key.Namespace, key.Name, api).Set(value)
}

// unmeasure removes the gauges of a target that the hub no longer manages.
func unmeasure(key types.NamespacedName) {
	for _, api := range []string{kubernetesAPI, talosAPI} {
		reachable.DeleteLabelValues(key.Namespace, key.Name, api)
	}
}
