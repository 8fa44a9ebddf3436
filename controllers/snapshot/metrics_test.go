// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// The gauges follow the snapshots and the schedule, and go with them.
func TestMeasure(t *testing.T) {
	g := NewWithT(t)
	taken := time.Date(2026, 11, 29, 2, 10, 0, 0, time.UTC)
	good := []v1alpha1.EtcdSnapshot{{Spec: v1alpha1.EtcdSnapshotSpec{Contents: &v1alpha1.SnapshotContents{TakenTime: metav1.NewTime(taken)}}}}
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}
	expect := func(schedule string, snapshots []v1alpha1.EtcdSnapshot, last, end int64) {
		t.Helper()
		cluster.Spec.EtcdBackup = &v1alpha1.EtcdBackupSpec{BucketURL: "s3://backups", Schedule: schedule}
		measure(cluster, snapshots)
		g.Expect(testutil.ToFloat64(lastGood)).To(BeEquivalentTo(last))
		g.Expect(testutil.CollectAndCompare(tooOld, strings.NewReader(fmt.Sprintf(`
# HELP ichor_etcd_snapshot_too_old_timestamp_seconds When the last good snapshot of the etcd of a target is too old for its schedule; 0 if there is none. Targets without a schedule have no such value.
# TYPE ichor_etcd_snapshot_too_old_timestamp_seconds gauge
ichor_etcd_snapshot_too_old_timestamp_seconds{cluster="c1",namespace="default"} %d
`, end)))).To(Succeed())
	}
	expect("0 2 * * *", nil, 0, 0)
	expect("0 2 * * *", good, taken.Unix(), time.Date(2026, 12, 1, 14, 0, 0, 0, time.UTC).Unix())
	expect("0 * * * *", good, taken.Unix(), time.Date(2026, 11, 29, 4, 30, 0, 0, time.UTC).Unix())

	cluster.Spec.EtcdBackup.Schedule = ""
	measure(cluster, good)
	g.Expect(testutil.CollectAndCount(tooOld)).To(BeZero(), "nobody waits for another one")
	expect("0 2 * * *", nil, 0, 0)
	unmeasure(client.ObjectKeyFromObject(cluster))
	g.Expect(testutil.CollectAndCount(lastGood) + testutil.CollectAndCount(tooOld)).To(BeZero())
}
