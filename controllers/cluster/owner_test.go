// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/kube"
	kubefake "ichor.maesh.dev/hub/providers/kube/fake"
	"ichor.maesh.dev/hub/providers/target"
)

func ownedBy(owner, takeOver string) *v1alpha1.TalosCluster {
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	for key, value := range map[string]string{v1alpha1.OwnerIDAnnotation: owner, v1alpha1.TakeOverAnnotation: takeOver} {
		if value != "" {
			metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, key, value)
		}
	}
	return cluster
}

// A second hub writes nothing over, unless a person names the one that it takes the target from.
func TestAskOwner(t *testing.T) {
	begun := kube.Record{OwnerID: "other", OperationID: "op", Stage: "Upgrade", Sequence: 4}
	for name, row := range map[string]struct {
		cluster *v1alpha1.TalosCluster
		record  kube.Record
		want    kube.Record
	}{
		"the first hub":                     {ownedBy("mine", ""), kube.Record{}, kube.Record{OwnerID: "mine"}},
		"a target without an owner ID":      {ownedBy("", ""), kube.Record{}, kube.Record{}},
		"this hub":                          {ownedBy("mine", ""), kube.Record{OwnerID: "mine", Sequence: 4}, kube.Record{OwnerID: "mine", Sequence: 4}},
		"a second hub":                      {ownedBy("mine", ""), begun, begun},
		"taken over":                        {ownedBy("mine", "other"), begun, kube.Record{OwnerID: "mine", OperationID: "op", Stage: "Upgrade", Sequence: 4}},
		"taken over from somebody else":     {ownedBy("mine", "third"), begun, begun},
		"a take-over without an identity":   {ownedBy("", "other"), begun, begun},
		"a take-over that is asked for ago": {ownedBy("mine", "other"), kube.Record{OwnerID: "mine", Sequence: 9}, kube.Record{OwnerID: "mine", Sequence: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			api := kubefake.New()
			if row.record != (kube.Record{}) {
				api.SetRecord(row.record)
			}
			seen := prober{kube: api}.askOwner(t.Context(), target.Target{}, row.cluster)
			g.Expect(seen.trouble).To(BeEmpty())
			g.Expect(seen.record.Same(row.want)).To(BeTrue(), "seen: %+v", seen.record)
			g.Expect(api.Record().Same(row.want)).To(BeTrue(), "written: %+v", api.Record())
		})
	}
}

func TestSetOwned(t *testing.T) {
	g := NewWithT(t)
	cluster := ownedBy("mine", "")
	owned := func(seen ownership) metav1.Condition {
		setOwned(cluster, probe{owner: seen})
		condition := *meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.OwnedCondition)
		condition.LastTransitionTime = metav1.Time{}
		return condition
	}
	g.Expect(owned(ownership{trouble: "no answer"})).To(HaveField("Status", metav1.ConditionUnknown))
	g.Expect(owned(ownership{record: kube.Record{OwnerID: "other"}})).To(Equal(metav1.Condition{
		Type: "Owned", Status: metav1.ConditionFalse, Reason: "OwnedByAnotherHub", Message: "another hub manages the cluster, under owner ID other; " +
			"forget it there, then take it over with: kubectl annotate taloscluster c ichor.maesh.dev/take-over=other",
	}))
	g.Expect(owned(ownership{record: kube.Record{OwnerID: "mine"}})).To(HaveField("Status", metav1.ConditionTrue))
	g.Expect(owned(ownership{trouble: "no answer"})).To(HaveField("Status", metav1.ConditionTrue), "an outage changes nobody's mind")
}
