// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func entry(id string, ago time.Duration) *pb.AuditEntry {
	return &pb.AuditEntry{
		Id: id, Time: timestamppb.New(now.Add(-ago)), User: "alice", Action: "CreateOperation", Cluster: ref("default", "prod-1"), Operation: ref("default", "op-"+id),
		Detail: "talos to v1.14.1", Source: "10.0.0.7", Client: "ichor/dev", Result: pb.AuditResult_AUDIT_RESULT_REFUSED, Message: "TalosVersionPath",
		Overrides: []*pb.GateOverride{{Gate: "Room", Reason: "planned"}},
	}
}

func TestAudit(t *testing.T) {
	g := NewWithT(t)
	h := newFakeHub(t)
	h.answer(&pb.ListAuditResponse{Entries: []*pb.AuditEntry{entry("2", time.Minute)}, NextPageToken: "more", TotalSize: 7}, &pb.ListAuditResponse{Entries: []*pb.AuditEntry{entry("1", time.Hour)}, TotalSize: 7, NextPageToken: "even more"})
	r := newUser(t, h).ichor("audit", "--cluster", "prod-1", "--since", "24h", "--until", "2026-01-02", "--user", "alice", "--action", "CreateOperation", "--result", "refused,denied", "--limit", "2", "-o", "wide")
	g.Expect(r).To(Equal(result{Out: `TIME                  USER    ACTION            CLUSTER   ABOUT   RESULT    DETAIL                                                       SOURCE     CLIENT
2026-01-02 03:03:05   alice   CreateOperation   prod-1    op-2    Refused   talos to v1.14.1; TalosVersionPath; override Room: planned   10.0.0.7   ichor/dev
2026-01-02 02:04:05   alice   CreateOperation   prod-1    op-1    Refused   talos to v1.14.1; TalosVersionPath; override Room: planned   10.0.0.7   ichor/dev
`, Err: "5 older entries are not shown; see more with --limit.\n"}))
	asked := of[*pb.ListAuditRequest](h)
	g.Expect(asked).To(HaveLen(2))
	g.Expect([]int32{asked[0].GetPage().GetSize(), asked[1].GetPage().GetSize()}).To(Equal([]int32{2, 1}))
	g.Expect(asked[0].GetFilter()).To(BeComparableTo(&pb.AuditFilter{
		Namespaces: []string{"default"}, Clusters: []*pb.Reference{ref("default", "prod-1")}, Users: []string{"alice"}, Actions: []string{"CreateOperation"},
		Results: []pb.AuditResult{pb.AuditResult_AUDIT_RESULT_REFUSED, pb.AuditResult_AUDIT_RESULT_DENIED},
		Since:   timestamppb.New(now.Add(-24 * time.Hour)), Until: timestamppb.New(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)),
	}, protoEqual))
}

// Entries are printed once each and in order, whatever a hub sends again after an outage.
func TestFollowAudit(t *testing.T) {
	g := NewWithT(t)
	h := newFakeHub(t)
	send := func(events ...*pb.WatchAuditResponse) {
		h.audits = append(h.audits, func(s *connect.ServerStream[pb.WatchAuditResponse]) error {
			for _, event := range events {
				if err := s.Send(event); err != nil {
					return err
				}
			}
			return connect.NewError(connect.CodeUnavailable, errors.New("restarting"))
		})
	}
	of := func(e *pb.AuditEntry) *pb.WatchAuditResponse {
		return &pb.WatchAuditResponse{Event: &pb.WatchAuditResponse_Entry{Entry: e}}
	}
	synced := &pb.WatchAuditResponse{Event: &pb.WatchAuditResponse_Synced{Synced: &pb.Synced{}}}
	send(of(entry("3", 3*time.Minute)), of(entry("2", 4*time.Minute)), of(entry("1", 5*time.Minute)), synced, of(entry("4", time.Minute)))
	send(&pb.WatchAuditResponse{Event: &pb.WatchAuditResponse_Reset_{Reset_: &pb.Reset{}}}, of(entry("4", time.Minute)), of(entry("5", time.Second)), synced)
	r := newUser(t, h).ichor("audit", "--follow", "--limit", "2", "-o", "name", "--timeout", "2s")
	g.Expect(r.Code).To(BeZero(), r.Err)
	g.Expect(r.Out).To(Equal("2\n3\n4\n5\n"))
}
