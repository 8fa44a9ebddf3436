// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/audit"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

// auditWorld is a hub with an audit that tests write.
type auditWorld struct {
	*fleetWorld

	log    *audit.Log
	client ichorv1alpha1connect.AuditServiceClient
}

func (w *auditWorld) Audit(context.Context, ...string) (*audit.Log, []*pb.Failure, error) {
	return w.log, w.failures, nil
}

func newAuditWorld(t *testing.T, versions ...int) *auditWorld {
	t.Helper()
	w := &auditWorld{fleetWorld: newFleetWorld(t), log: audit.NewLog()}
	w.log.MarkSynced()
	w.Backend = w
	for _, version := range versions {
		w.write("a", version)
	}
	mux := http.NewServeMux()
	mux.Handle(ichorv1alpha1connect.NewAuditServiceHandler(w.Server))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	w.client = ichorv1alpha1connect.NewAuditServiceClient(server.Client(), server.URL)
	return w
}

// write adds an entry of a namespace. Its version is its time in seconds, too.
func (w *auditWorld) write(namespace string, version int) {
	at := now.Add(time.Duration(version) * time.Second)
	w.log.Put(&v1alpha1.AuditEntry{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: auditName(version), ResourceVersion: strconv.Itoa(version)},
		Spec:       v1alpha1.AuditEntrySpec{Time: metav1.NewMicroTime(at), User: "ann", Action: fmt.Sprintf("Call%d", version), ClusterName: "c1", Result: v1alpha1.AuditDone},
	})
}

func auditName(version int) string {
	return now.Add(time.Duration(version)*time.Second).Format("20060102t150405") + "z"
}

func (w *auditWorld) list(filter *pb.AuditFilter, page *pb.Page) (*pb.ListAuditResponse, error) {
	response, err := w.client.ListAudit(w.t.Context(), connect.NewRequest(&pb.ListAuditRequest{Filter: filter, Page: page}))
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

func actions(entries []*pb.AuditEntry) []string {
	found := []string{}
	for _, entry := range entries {
		found = append(found, entry.GetAction())
	}
	return found
}

func TestListAuditHasTheNewestFirstInPages(t *testing.T) {
	w := newAuditWorld(t, 1, 2, 3)
	w.write("b", 4)
	first, err := w.list(nil, &pb.Page{Size: 2})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(actions(first.GetEntries())).To(Equal([]string{"Call4", "Call3"}))
	w.g.Expect(first.GetTotalSize()).To(BeEquivalentTo(4))
	w.write("a", 5) // What comes in between moves no page.
	w.log.Remove(types.NamespacedName{Namespace: "a", Name: auditName(3)})
	second, err := w.list(nil, &pb.Page{Size: 2, Token: first.GetNextPageToken()})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(actions(second.GetEntries())).To(Equal([]string{"Call2", "Call1"}))
	w.g.Expect(second.GetNextPageToken()).To(BeEmpty())
	_, err = w.list(&pb.AuditFilter{Users: []string{"bob"}}, &pb.Page{Token: first.GetNextPageToken()})
	w.g.Expect(connect.CodeOf(err)).To(Equal(connect.CodeInvalidArgument), "a page of another list")
	none, err := w.list(&pb.AuditFilter{Users: []string{"bob"}}, nil)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(none.GetEntries()).To(BeEmpty())
	_, err = w.list(&pb.AuditFilter{Results: []pb.AuditResult{9}}, nil)
	w.g.Expect(err).To(MatchError(ContainSubstring("filter.results")))
	w.g.Expect(connect.CodeOf(err)).To(Equal(connect.CodeInvalidArgument))
}

// Whatever an entry is named, it is on the page on which its time is, and no page is without it.
func TestBypassPagesOfTheAuditAreNotOrderedByName(t *testing.T) {
	w := newAuditWorld(t, 1, 3)
	for i, name := range []string{"zzzz-forged", "0000-hidden"} {
		w.log.Put(&v1alpha1.AuditEntry{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, ResourceVersion: "9"},
			Spec:       v1alpha1.AuditEntrySpec{Time: metav1.NewMicroTime(now.Add(2*time.Second + time.Duration(i)*time.Millisecond)), User: "mallory", Action: name},
		})
	}
	var found []string
	page := &pb.Page{Size: 1}
	for range 4 {
		answer, err := w.list(nil, page)
		w.g.Expect(err).NotTo(HaveOccurred())
		found = append(found, actions(answer.GetEntries())...)
		page.Token = answer.GetNextPageToken()
	}
	w.g.Expect(found).To(Equal([]string{"Call3", "0000-hidden", "zzzz-forged", "Call1"}))
	w.g.Expect(page.Token).To(BeEmpty())
}

func TestListAuditShowsWhatTheCallerMayRead(t *testing.T) {
	w := newAuditWorld(t, 1)
	w.write("b", 2)
	w.write("c", 3)
	w.rights.deny("auditentries b")
	w.rights.lose("auditentries c")
	found, err := w.list(nil, nil)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(actions(found.GetEntries())).To(Equal([]string{"Call1"}))
	w.g.Expect(found.GetTotalSize()).To(BeEquivalentTo(1), "it tells nobody how many there are")
	w.g.Expect(found.GetFailures()).To(ConsistOf(HaveField("Scope.Namespace", "c")))
	for _, filter := range []*pb.AuditFilter{{Namespaces: []string{"b"}}, {Clusters: []*pb.Reference{{Namespace: "b", Name: "c1"}}}} {
		_, err = w.list(filter, nil)
		w.g.Expect(connect.CodeOf(err)).To(Equal(connect.CodePermissionDenied))
		w.g.Expect(err).To(MatchError(ContainSubstring(`user "ada" may not list auditentries in namespace "b"`)))
	}
}

func TestAuditIsNotHalfAnAnswer(t *testing.T) {
	w := newAuditWorld(t)
	w.log = audit.NewLog()
	_, err := w.list(nil, nil)
	w.g.Expect(connect.CodeOf(err)).To(Equal(connect.CodeUnavailable), "a hub that has not read everything")
	w.Backend = w.fleetWorld
	_, err = w.list(nil, nil)
	w.g.Expect(connect.CodeOf(err)).To(Equal(connect.CodeUnimplemented), "a backend without audit")
}

// auditStream is what a watch has sent, in words.
type auditStream struct {
	g     *WithT
	said  chan string
	ended chan error
}

// watch begins a watch that ends with the test.
func (w *auditWorld) watch(filter *pb.AuditFilter, token string) *auditStream {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(cancel)
	stream, err := w.client.WatchAudit(ctx, connect.NewRequest(&pb.WatchAuditRequest{Filter: filter, ResumeToken: token}))
	w.g.Expect(err).NotTo(HaveOccurred())
	s := &auditStream{g: w.g, said: make(chan string), ended: make(chan error, 1)}
	go func() {
		for stream.Receive() {
			word := "heartbeat"
			switch event := stream.Msg().GetEvent().(type) {
			case *pb.WatchAuditResponse_Entry:
				word = event.Entry.GetAction()
			case *pb.WatchAuditResponse_Synced:
				word = "synced"
			case *pb.WatchAuditResponse_Reset_:
				word = "reset"
			}
			select {
			case s.said <- word + "@" + stream.Msg().GetResumeToken():
			case <-ctx.Done():
			}
		}
		s.ended <- stream.Err()
	}()
	return s
}

func (s *auditStream) says(words ...string) {
	for _, word := range words {
		var said string
		s.g.Eventually(s.said, 5*time.Second).Should(Receive(&said))
		s.g.Expect(said).To(Equal(word))
	}
}

func TestWatchAuditGoesOnWithoutAGap(t *testing.T) {
	w := newAuditWorld(t, 3, 1)
	watch := w.watch(nil, "")
	watch.says("Call1@1", "Call3@3", "synced@3")
	w.write("a", 5)
	watch.says("Call5@5")
	w.write("b", 6)
	watch.says("Call6@6")

	// Another replica heard of it in another order, and has the same answer.
	other := newAuditWorld(t, 6, 5, 3, 1)
	resumed := other.watch(nil, "3")
	resumed.says("Call5@5", "Call6@6", "synced@6")
	other.write("a", 2) // It came late, and was sent by the first one long ago.
	other.write("a", 7)
	resumed.says("Call7@7")
}

func TestWatchAuditBeginsAnewAfterTheAPIWasPutBack(t *testing.T) {
	w := newAuditWorld(t, 1, 2)
	w.watch(nil, "9").says("reset@0", "Call1@1", "Call2@2", "synced@2")
	w.watch(nil, "of something else").says("reset@0", "Call1@1")
}

// A replica that is a moment behind waits for what the other one has sent.
func TestWatchAuditWaitsForWhatAnotherReplicaHasSent(t *testing.T) {
	w := newAuditWorld(t, 1, 2)
	watch := &auditWatch{auditReading: &auditReading{log: w.log}}
	caughtUp := make(chan bool)
	go func() { caughtUp <- watch.catchUp(t.Context(), 4) }()
	w.g.Consistently(caughtUp, 50*time.Millisecond).ShouldNot(Receive())
	w.write("a", 3)
	w.g.Consistently(caughtUp, 50*time.Millisecond).ShouldNot(Receive())
	w.write("a", 4)
	w.g.Eventually(caughtUp).Should(Receive(BeTrue()))
	w.g.Expect(watch.catchUp(t.Context(), 5)).To(BeFalse())
}

func TestWatchAuditSendsWhatIsWantedAndMayBeRead(t *testing.T) {
	w := newAuditWorld(t, 1)
	w.Watch.Heartbeat = 50 * time.Millisecond
	watch := w.watch(&pb.AuditFilter{Actions: []string{"Call1", "Call3", "Call4"}}, "")
	watch.says("Call1@1", "synced@1")
	w.write("a", 2)
	watch.says("heartbeat@2")
	w.rights.deny("auditentries b")
	w.write("b", 3)
	watch.g.Eventually(watch.said).Should(Receive(Equal("heartbeat@3")))
	w.write("a", 4)
	watch.g.Eventually(watch.said).Should(Receive(Equal("Call4@4")))

	w.rights.lose("auditentries a") // Whoever asks again gets it then.
	w.write("a", 4+1)
	watch.g.Eventually(watch.ended).Should(Receive(WithTransform(connect.CodeOf, Equal(connect.CodeUnavailable))))
}

func TestWatchAuditEnds(t *testing.T) {
	w := newAuditWorld(t)
	w.rights.deny("auditentries b")
	denied := w.watch(&pb.AuditFilter{Namespaces: []string{"b"}}, "")
	denied.g.Eventually(denied.ended).Should(Receive(WithTransform(connect.CodeOf, Equal(connect.CodePermissionDenied))))

	w.caller.Expires = time.Now().Add(100 * time.Millisecond)
	expired := w.watch(nil, "")
	expired.says("synced@0")
	expired.g.Eventually(expired.ended).Should(Receive(WithTransform(connect.CodeOf, Equal(connect.CodeUnauthenticated))))

	w.caller.Expires = time.Time{}
	stopped := w.watch(nil, "")
	stopped.says("synced@0")
	w.log.Close(audit.ErrStopping)
	stopped.g.Eventually(stopped.ended).Should(Receive(MatchError(ContainSubstring("the hub is stopping"))))
}
