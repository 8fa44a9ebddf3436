// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// written is an entry of a namespace that was written so many seconds after the start, with a version.
func written(namespace string, seconds int, version uint64) *v1alpha1.AuditEntry {
	at := start.Add(time.Duration(seconds) * time.Second)
	return &v1alpha1.AuditEntry{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: at.Format("20060102t150405") + "z", ResourceVersion: strconv.FormatUint(version, 10),
			CreationTimestamp: metav1.NewTime(at), UID: types.UID(namespace + strconv.Itoa(seconds)),
		},
		Spec: v1alpha1.AuditEntrySpec{
			Time: metav1.NewMicroTime(at), User: "ann", Action: "CreateOperation", ClusterName: "c1", Result: v1alpha1.AuditDone, Reporter: v1alpha1.AuditByHub,
		},
	}
}

func versions(entries []*Entry) []uint64 {
	found := []uint64{}
	for _, entry := range entries {
		found = append(found, entry.Version)
	}
	return found
}

func TestLogIsInOrder(t *testing.T) {
	g := NewWithT(t)
	l := NewLog()
	for _, entry := range []*v1alpha1.AuditEntry{written("b", 3, 30), written("a", 1, 10), written("a", 3, 31), written("a", 2, 40)} {
		l.Put(entry)
		l.Put(entry) // Twice is once.
	}
	g.Expect(versions(l.Entries())).To(Equal([]uint64{10, 40, 31, 30}), "by time, then by namespace")
	after, place := l.After(10)
	g.Expect(versions(after)).To(Equal([]uint64{30, 31, 40}), "as they were written")
	g.Expect(l.Latest()).To(BeEquivalentTo(40))
	g.Expect(l.Namespaces()).To(Equal([]string{"a", "b"}))

	found, next, more := l.Since(place)
	g.Expect(found).To(BeEmpty())
	before := l.Entries()
	l.Put(written("a", 0, 50))
	g.Expect(more).To(BeClosed())
	found, next, more = l.Since(next)
	g.Expect(versions(found)).To(Equal([]uint64{50}))
	g.Expect(versions(before)).To(Equal([]uint64{10, 40, 31, 30}), "what somebody reads does not change")

	l.Remove(types.NamespacedName{Namespace: "a", Name: written("a", 1, 10).Name})
	g.Expect(versions(l.Entries())).To(Equal([]uint64{50, 40, 31, 30}))
	g.Expect(more).NotTo(BeClosed())
	l.Put(written("c", 9, 60))
	found, _, _ = l.Since(next)
	g.Expect(versions(found)).To(Equal([]uint64{60}), "a removal moves nobody's place")
}

// Names are the choice of whoever writes: an entry is where its time is.
func TestBypassLogIsNotOrderedByName(t *testing.T) {
	g := NewWithT(t)
	forged := written("a", 2, 20)
	forged.Name = "zzzz-forged"
	l := NewLog()
	for _, entry := range []*v1alpha1.AuditEntry{forged, written("a", 1, 10), written("a", 3, 30)} {
		l.Put(entry)
	}
	g.Expect(versions(l.Entries())).To(Equal([]uint64{10, 20, 30}))
}

func TestLogIsFedByAnInformer(t *testing.T) {
	g := NewWithT(t)
	l := NewLog()
	handler := l.Handler()
	handler.OnAdd(written("a", 1, 1), true)
	handler.OnAdd(written("a", 2, 2), false)
	handler.OnUpdate(nil, written("a", 3, 3))
	handler.OnDelete(written("a", 1, 1))
	handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a/" + written("a", 2, 2).Name})
	g.Expect(versions(l.Entries())).To(Equal([]uint64{3}))
}

func TestRender(t *testing.T) {
	g := NewWithT(t)
	entry := written("a", 1, 1)
	entry.Spec.Overrides = []v1alpha1.GateOverride{{Gate: "EtcdHealthy", Reason: "drill"}}
	entry.Spec.Reporter, entry.Spec.Result = v1alpha1.AuditByClient, v1alpha1.AuditDenied
	message := Render(entry)
	g.Expect(message.GetId()).To(Equal("a/" + entry.Name))
	g.Expect(message.GetTime().AsTime()).To(Equal(start.Add(time.Second)))
	g.Expect(message.GetCluster()).To(HaveField("Name", "c1"))
	g.Expect(message.GetOperation()).To(BeNil())
	g.Expect(message.GetResult()).To(Equal(pb.AuditResult_AUDIT_RESULT_DENIED))
	g.Expect(message.GetSelfReported()).To(BeTrue())
	g.Expect(message.GetOverrides()).To(HaveLen(1))
	for _, result := range []v1alpha1.AuditResult{v1alpha1.AuditDone, v1alpha1.AuditDenied, v1alpha1.AuditRefused, v1alpha1.AuditFailed} {
		g.Expect(results).To(HaveKey(result))
	}
}

func TestFilter(t *testing.T) {
	entry := written("a", 10, 1)
	entry.Spec.OperationName, entry.Spec.Message = "c1-talos-x", "Verb START is missing"
	l := NewLog()
	l.Put(entry)
	at := func(seconds int) *timestamppb.Timestamp {
		return timestamppb.New(start.Add(time.Duration(seconds) * time.Second))
	}
	for name, row := range map[string]struct {
		filter *pb.AuditFilter
		want   bool
	}{
		"nothing":                      {nil, true},
		"namespace":                    {&pb.AuditFilter{Namespaces: []string{"b", "a"}}, true},
		"another namespace":            {&pb.AuditFilter{Namespaces: []string{"b"}}, false},
		"cluster":                      {&pb.AuditFilter{Clusters: []*pb.Reference{{Namespace: "a", Name: "c1"}}}, true},
		"every cluster of a namespace": {&pb.AuditFilter{Clusters: []*pb.Reference{{Namespace: "a"}}}, true},
		"the same name elsewhere":      {&pb.AuditFilter{Clusters: []*pb.Reference{{Namespace: "b", Name: "c1"}}}, false},
		"another cluster":              {&pb.AuditFilter{Clusters: []*pb.Reference{{Namespace: "a", Name: "c2"}}}, false},
		"user":                         {&pb.AuditFilter{Users: []string{"ann"}}, true},
		"another user":                 {&pb.AuditFilter{Users: []string{"bob"}}, false},
		"another action":               {&pb.AuditFilter{Actions: []string{"DeleteOperation"}}, false},
		"result":                       {&pb.AuditFilter{Results: []pb.AuditResult{pb.AuditResult_AUDIT_RESULT_DONE}}, true},
		"another result":               {&pb.AuditFilter{Results: []pb.AuditResult{pb.AuditResult_AUDIT_RESULT_FAILED}}, false},
		"since, itself included":       {&pb.AuditFilter{Since: at(10)}, true},
		"until, itself left out":       {&pb.AuditFilter{Until: at(10)}, false},
		"between":                      {&pb.AuditFilter{Since: at(9), Until: at(11)}, true},
		"before":                       {&pb.AuditFilter{Since: at(11)}, false},
		"text, whatever its case":      {&pb.AuditFilter{Text: "verb start"}, true},
		"text of an operation":         {&pb.AuditFilter{Text: "TALOS-X"}, true},
		"another text":                 {&pb.AuditFilter{Text: "reboot"}, false},
		"one part that holds, one not": {&pb.AuditFilter{Users: []string{"ann"}, Text: "reboot"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			filter, err := NewFilter(row.filter)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(filter.Selects(l.Entries()[0])).To(Equal(row.want))
		})
	}
	for name, row := range map[string]struct {
		filter *pb.AuditFilter
		want   string
	}{
		"a result that is none":       {&pb.AuditFilter{Results: []pb.AuditResult{0}}, "filter.results AUDIT_RESULT_UNSPECIFIED: want DONE"},
		"a time that is none":         {&pb.AuditFilter{Since: &timestamppb.Timestamp{Nanos: -1}}, "filter.since"},
		"an end before the beginning": {&pb.AuditFilter{Since: at(2), Until: at(1)}, "want a time before filter.until"},
		"a cluster without namespace": {&pb.AuditFilter{Clusters: []*pb.Reference{{Name: "c1"}}}, `filter.clusters "c1"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewFilter(row.filter)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(row.want)))
		})
	}
}
