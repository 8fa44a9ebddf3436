// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"time"

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

	// tooOld tells an alert when to fire: what is too old is said by the schedule.
	tooOld = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ichor_etcd_snapshot_too_old_timestamp_seconds",
		Help: "When the last good snapshot of the etcd of a target is too old for its schedule; 0 if there is none. Targets without a schedule have no such value.",
	}, []string{"namespace", "cluster"})

	// taken counts attempts.
	taken = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ichor_etcd_snapshot_attempts_total",
		Help: "Attempts to take a snapshot of etcd, by the reason of the snapshot and how they ended: succeeded or failed.",
	}, []string{"reason", "result"})
)

func init() { metrics.Registry.MustRegister(lastGood, tooOld, taken) }

func measure(cluster *v1alpha1.TalosCluster, snapshots []v1alpha1.EtcdSnapshot) {
	var good time.Time
	if last := schedule.Last(snapshots); last != nil {
		good = last.Spec.Contents.TakenTime.Time
	}
	lastGood.WithLabelValues(cluster.Namespace, cluster.Name).Set(seconds(good))
	end, scheduled := schedule.Deadline(cluster, snapshots)
	if !scheduled {
		tooOld.DeleteLabelValues(cluster.Namespace, cluster.Name)
		return
	}
	tooOld.WithLabelValues(cluster.Namespace, cluster.Name).Set(seconds(end))
}

// seconds is a time as metrics have it, 0 for none.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}

func unmeasure(key types.NamespacedName) {
	lastGood.DeleteLabelValues(key.Namespace, key.Name)
	tooOld.DeleteLabelValues(key.Namespace, key.Name)
}
