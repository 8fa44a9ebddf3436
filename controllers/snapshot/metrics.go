// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/snapshot/schedule"
)

var (
	// lastGood tells the age of backups.
	lastGood = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ichor_etcd_snapshot_last_success_timestamp_seconds",
		Help: "When the last good snapshot of the etcd of a target was taken; 0 if there is none. Targets without spec.etcdBackup have no such value.",
	}, []string{"namespace", "cluster"})

	// taken counts attempts.
	taken = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ichor_etcd_snapshot_attempts_total",
		Help: "Attempts to take a snapshot of etcd, by the reason of the snapshot and how they ended: succeeded or failed.",
	}, []string{"reason", "result"})
)

func init() { metrics.Registry.MustRegister(lastGood, taken) }

func measure(key types.NamespacedName, snapshots []v1alpha1.EtcdSnapshot) {
	value := 0.0
	if last := schedule.Last(snapshots); last != nil {
		value = float64(last.Spec.Contents.TakenTime.Unix())
	}
	lastGood.WithLabelValues(key.Namespace, key.Name).Set(value)
}

func unmeasure(key types.NamespacedName) {
	lastGood.DeleteLabelValues(key.Namespace, key.Name)
}
