// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/fleet"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// watcher is somebody who watches, and takes what is sent at their own pace.
type watcher[R response] struct {
	w         *fleetWorld
	stop      context.CancelFunc
	responses chan R
	ended     chan error

	// token is that of the latest response.
	token string
}

type response interface {
	GetResumeToken() string
	comparable
}

// tooMany are more changes than are kept.
const tooMany = 33_000

// pace is how many responses are on their way before a send waits.
const pace = 10000

func (w *fleetWorld) watchAll(request *pb.WatchOperationsRequest, ahead int) *watcher[*pb.WatchOperationsResponse] {
	return startWatch(w, ahead, func(ctx context.Context, send func(*pb.WatchOperationsResponse) error) error {
		return w.watchOperations(ctx, request, send)
	})
}

func (w *fleetWorld) watchFleet(request *pb.WatchClustersRequest) *watcher[*pb.WatchClustersResponse] {
	return startWatch(w, pace, func(ctx context.Context, send func(*pb.WatchClustersResponse) error) error {
		return w.watchClusters(ctx, request, send)
	})
}

func startWatch[R response](w *fleetWorld, ahead int, watch func(context.Context, func(R) error) error) *watcher[R] {
	ctx, stop := context.WithCancel(w.t.Context())
	o := &watcher[R]{w: w, stop: stop, responses: make(chan R, ahead), ended: make(chan error, 1)}
	go func() {
		o.ended <- watch(ctx, func(r R) error {
			select {
			case o.responses <- r:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	return o
}

// heard is all that was sent by now, in words.
func (o *watcher[R]) heard() string {
	synctest.Wait()
	var words []string
	for len(o.responses) > 0 {
		r := <-o.responses
		o.token = r.GetResumeToken()
		words = append(words, said(r))
	}
	return strings.Join(words, ", ")
}

func (o *watcher[R]) expect(words string) {
	o.w.t.Helper()
	o.w.g.Expect(o.heard()).To(Equal(words))
}

// end is how the watch ended.
func (o *watcher[R]) end() error {
	o.w.t.Helper()
	synctest.Wait()
	select {
	case err := <-o.ended:
		return err
	default:
		o.w.t.Fatal("the watch goes on")
		return nil
	}
}

func said(r any) string {
	switch r := r.(type) {
	case *pb.WatchOperationsResponse:
		switch event := r.GetEvent().(type) {
		case *pb.WatchOperationsResponse_Changed:
			return event.Changed.GetRef().GetName()
		case *pb.WatchOperationsResponse_Removed:
			return "no " + event.Removed.GetName()
		case *pb.WatchOperationsResponse_Synced:
			return "synced"
		case *pb.WatchOperationsResponse_Reset_:
			return "reset"
		case *pb.WatchOperationsResponse_Heartbeat:
			return "heartbeat"
		}
	case *pb.WatchClustersResponse:
		switch event := r.GetEvent().(type) {
		case *pb.WatchClustersResponse_Changed:
			return event.Changed.GetRef().GetName()
		case *pb.WatchClustersResponse_Removed:
			return "no " + event.Removed.GetName()
		case *pb.WatchClustersResponse_MachineChanged:
			return event.MachineChanged.GetRef().GetName()
		case *pb.WatchClustersResponse_MachineRemoved:
			return "no " + event.MachineRemoved.GetName()
		case *pb.WatchClustersResponse_Synced:
			return "synced"
		case *pb.WatchClustersResponse_Reset_:
			return "reset"
		case *pb.WatchClustersResponse_Heartbeat:
			return "heartbeat"
		}
	}
	return "?"
}

// pass lets time pass, which a bubble only tells.
func pass(d time.Duration) { <-time.After(d) }

// inBubble runs a test where time is told, and whoever waits is known.
func inBubble(t *testing.T, objects []func() *v1alpha1.TalosOperation, test func(w *fleetWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newFleetWorld(t)
		for _, object := range objects {
			w.fleet.Apply(object())
		}
		test(w)
	})
}

func two() []func() *v1alpha1.TalosOperation {
	return []func() *v1alpha1.TalosOperation{
		func() *v1alpha1.TalosOperation { return opOf("a", "up", "c1") },
		func() *v1alpha1.TalosOperation { return opOf("b", "boot", "c2") },
	}
}

func TestWatchSendsWhatThereIsAndThenChanges(t *testing.T) {
	inBubble(t, two(), func(w *fleetWorld) {
		o := w.watchAll(&pb.WatchOperationsRequest{}, pace)
		o.expect("up, boot, synced")
		w.fleet.Apply(opOf("a", "up", "c1", stands("StepFailed", "why")))
		o.expect("up")
		w.fleet.Apply(opOf("a", "up", "c1", stands("StepFailed", "why")))
		o.expect("")
		w.fleet.Apply(opOf("a", "new", "c1"))
		w.fleet.Delete(opOf("b", "boot", "c2"))
		o.expect("new, no boot")
		w.fleet.Apply(clusterOf("a", "c1"), machineOf("a", "m", "c1", v1alpha1.WorkerRole))
		o.heard() // Operations take one machine more.
		o.stop()
		w.g.Expect(o.end()).To(MatchError(context.Canceled))
	})
}

// A filter is told what enters it and what leaves it.
func TestWatchWithAFilter(t *testing.T) {
	inBubble(t, two(), func(w *fleetWorld) {
		o := w.watchAll(&pb.WatchOperationsRequest{Filter: &pb.OperationFilter{MinAttention: pb.Attention_ATTENTION_FAILED}}, pace)
		o.expect("synced")
		w.fleet.Apply(opOf("a", "up", "c1", stands("StepFailed", "why")))
		o.expect("up")
		w.fleet.Apply(opOf("a", "up", "c1", stands("StepFailed", "another reason")))
		o.expect("up")
		w.fleet.Apply(opOf("a", "up", "c1", stands("ClusterLockHeld", "why")))
		o.expect("no up")
		w.fleet.Apply(opOf("a", "up", "c1"))
		w.fleet.Delete(opOf("a", "up", "c1"))
		o.expect("")
	})
}

// Whoever watches what they have just created may come before the informers know of it; and then it is not gone, but not there yet.
func TestWatchOfANameWaitsAMoment(t *testing.T) {
	inBubble(t, nil, func(w *fleetWorld) {
		request := &pb.WatchOperationsRequest{Filter: &pb.OperationFilter{Names: []*pb.Reference{{Namespace: "a", Name: "up"}}}}
		o := w.watchAll(request, pace)
		o.expect("")
		pass(catchUp / 2)
		w.fleet.Apply(opOf("a", "up", "c1"), opOf("a", "other", "c1"))
		o.expect("up, synced")
		never := w.watchAll(&pb.WatchOperationsRequest{Filter: &pb.OperationFilter{Names: []*pb.Reference{{Namespace: "a", Name: "x"}}}}, pace)
		never.expect("")
		pass(catchUp)
		never.expect("synced")
	})
}

func TestResumeWithoutAGap(t *testing.T) {
	inBubble(t, two(), func(w *fleetWorld) {
		filter := &pb.OperationFilter{Namespaces: []string{"a"}}
		o := w.watchAll(&pb.WatchOperationsRequest{Filter: filter}, pace)
		o.expect("up, synced")
		w.fleet.Apply(opOf("a", "second", "c1"))
		o.expect("second")
		o.stop()
		w.fleet.Apply(opOf("a", "third", "c1"), opOf("b", "boot", "c2", stands("StepFailed", "why")))
		w.fleet.Delete(opOf("a", "up", "c1"))
		again := w.watchAll(&pb.WatchOperationsRequest{Filter: filter, ResumeToken: o.token}, pace)
		again.expect("third, no up, synced")
		w.fleet.Apply(opOf("a", "fourth", "c1"))
		again.expect("fourth")
		again.stop()
		nothing := w.watchAll(&pb.WatchOperationsRequest{Filter: filter, ResumeToken: again.token}, pace)
		nothing.expect("synced")
	})
}

// What is left out by the filter moves a watch on as well: a heartbeat has its place.
func TestHeartbeat(t *testing.T) {
	inBubble(t, two(), func(w *fleetWorld) {
		w.Watch = WatchOptions{Heartbeat: 5 * time.Second, Rights: time.Hour}
		o := w.watchAll(&pb.WatchOperationsRequest{Filter: &pb.OperationFilter{Namespaces: []string{"a"}}}, pace)
		o.expect("up, synced")
		before := o.token
		pass(4 * time.Second)
		w.fleet.Apply(opOf("a", "up", "c1", stands("StepFailed", "why")))
		o.expect("up")
		pass(4 * time.Second)
		w.fleet.Apply(opOf("b", "boot", "c2", stands("StepFailed", "why")))
		o.expect("")
		pass(time.Second)
		o.expect("heartbeat")
		w.g.Expect(o.token).NotTo(Equal(before))
		revision, ok := w.fleet.Revision(o.token[:strings.LastIndex(o.token, ":")])
		w.g.Expect(ok).To(BeTrue())
		w.g.Expect(revision).To(Equal(w.fleet.Last()))
		pass(5 * time.Second)
		o.expect("heartbeat")
	})
	inBubble(t, nil, func(w *fleetWorld) {
		o := w.watchFleet(&pb.WatchClustersRequest{})
		o.expect("synced")
		pass(defaultHeartbeat)
		o.expect("heartbeat")
	})
}

func TestResetOfWhatIsTooOldOrAnothers(t *testing.T) {
	inBubble(t, two(), func(w *fleetWorld) {
		o := w.watchAll(&pb.WatchOperationsRequest{}, pace)
		o.expect("up, boot, synced")
		o.stop()
		for i := range tooMany {
			w.fleet.Apply(opOf("a", "up", "c1", stands("StepFailed", fmt.Sprint(i))))
		}
		w.fleet.Delete(opOf("b", "boot", "c2"))
		for _, token := range []string{o.token, strings.Replace(o.token, ":", "x:", 1), "nonsense"} {
			again := w.watchAll(&pb.WatchOperationsRequest{ResumeToken: token}, pace)
			again.expect("reset, up, synced")
			again.stop()
		}
	})
}

// Somebody who reads nothing for a long time holds nobody up, and gets everything anew.
func TestSlowWatcher(t *testing.T) {
	inBubble(t, two(), func(w *fleetWorld) {
		slow := w.watchAll(&pb.WatchOperationsRequest{}, 0)
		fast := w.watchAll(&pb.WatchOperationsRequest{}, pace)
		fast.expect("up, boot, synced")
		w.g.Expect(said(<-slow.responses)).To(Equal("up"))
		w.g.Expect(said(<-slow.responses)).To(Equal("boot"))
		for i := range tooMany {
			w.fleet.Apply(opOf("a", "up", "c1", stands("StepFailed", fmt.Sprint(i))))
			if i%100 == 0 {
				fast.heard()
			}
		}
		fast.heard()
		var words []string
		for range 4 {
			words = append(words, said(<-slow.responses))
		}
		w.g.Expect(words).To(Equal([]string{"synced", "reset", "up", "boot"}))
		w.g.Expect(said(<-slow.responses)).To(Equal("synced"))
		w.fleet.Apply(opOf("a", "up", "c1"))
		w.g.Expect(said(<-slow.responses)).To(Equal("up"))
		fast.expect("up")
	})
}

// Nothing is resumed in the middle of what is sent at the beginning: what was not sent yet would never be.
func TestResumeOfAnUnfinishedBeginning(t *testing.T) {
	inBubble(t, two(), func(w *fleetWorld) {
		slow := w.watchAll(&pb.WatchOperationsRequest{}, 0)
		first := <-slow.responses
		slow.stop()
		w.g.Expect(first.GetResumeToken()).To(BeEmpty())
	})
}

// What changes while the beginning is being sent is sent after it.
func TestChangeWhileTheBeginningIsSent(t *testing.T) {
	inBubble(t, two(), func(w *fleetWorld) {
		slow := w.watchAll(&pb.WatchOperationsRequest{}, 0)
		w.g.Expect(said(<-slow.responses)).To(Equal("up"))
		w.fleet.Apply(opOf("a", "up", "c1", stands("StepFailed", "why")), opOf("a", "new", "c1"))
		w.fleet.Delete(opOf("b", "boot", "c2"))
		var words []string
		for range 5 {
			words = append(words, said(<-slow.responses))
		}
		w.g.Expect(words).To(Equal([]string{"boot", "synced", "up", "new", "no boot"}))
	})
}

func TestRightsOfAWatch(t *testing.T) {
	inBubble(t, two(), func(w *fleetWorld) {
		w.rights.deny("talosoperations b")
		o := w.watchAll(&pb.WatchOperationsRequest{}, pace)
		o.expect("up, synced")
		w.fleet.Apply(opOf("b", "boot", "c2", stands("StepFailed", "why")))
		o.expect("")

		w.rights.deny() // A right is given.
		pass(defaultRights)
		o.expect("boot")
		w.fleet.Apply(opOf("b", "boot", "c2"))
		o.expect("boot")
		token := o.token

		w.rights.deny("talosoperations a") // A right is taken away.
		pass(defaultRights)
		o.expect("reset, boot, synced")
		w.fleet.Apply(opOf("a", "up", "c1", stands("StepFailed", "why")), opOf("a", "new", "c1"))
		o.expect("")
		o.stop()

		again := w.watchAll(&pb.WatchOperationsRequest{ResumeToken: token}, pace)
		again.expect("reset, boot, synced")
	})
}

// A token is of use to who asks for the same again: what another filter left out would never come.
func TestResetOfAnotherFilter(t *testing.T) {
	inBubble(t, two(), func(w *fleetWorld) {
		nothing := &pb.OperationFilter{Text: "doesnotexist"}
		list, err := w.ListOperations(t.Context(), connect.NewRequest(&pb.ListOperationsRequest{Filter: nothing}))
		w.g.Expect(err).NotTo(HaveOccurred())
		w.watchAll(&pb.WatchOperationsRequest{Filter: nothing, ResumeToken: list.Msg.GetResumeToken()}, pace).expect("synced")
		w.watchAll(&pb.WatchOperationsRequest{ResumeToken: list.Msg.GetResumeToken()}, pace).expect("reset, up, boot, synced")
	})
}

func TestResetOfAWatchWithMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFleetWorld(t, clusterOf("a", "c1"), machineOf("a", "c1-w-1", "c1", v1alpha1.WorkerRole))
		without := w.watchFleet(&pb.WatchClustersRequest{})
		without.expect("c1, synced")
		w.watchFleet(&pb.WatchClustersRequest{ResumeToken: without.token}).expect("synced")
		w.watchFleet(&pb.WatchClustersRequest{Machines: true, ResumeToken: without.token}).expect("reset, c1, c1-w-1, synced")
		urgent := &pb.ClusterFilter{MinAttention: pb.Attention_ATTENTION_SOON}
		w.watchFleet(&pb.WatchClustersRequest{Filter: urgent, ResumeToken: without.token}).expect("reset, synced")
	})
}

// A site of many machines that comes back at once is no reason to send everything anew.
func TestManyChangesAreNoReset(t *testing.T) {
	inBubble(t, two(), func(w *fleetWorld) {
		o := w.watchAll(&pb.WatchOperationsRequest{Filter: &pb.OperationFilter{Namespaces: []string{"b"}}}, pace)
		o.expect("boot, synced")
		o.stop()
		for i := range 20_000 {
			w.fleet.Apply(opOf("a", "up", "c1", stands("StepFailed", fmt.Sprint(i))))
		}
		w.watchAll(&pb.WatchOperationsRequest{Filter: &pb.OperationFilter{Namespaces: []string{"b"}}, ResumeToken: o.token}, pace).expect("synced")
	})
}

// working makes an operation work on a machine.
func working(machine string) func(*v1alpha1.TalosOperation) {
	return func(op *v1alpha1.TalosOperation) {
		op.Status.Machines = []v1alpha1.UnitStatus{{Name: machine, Phase: v1alpha1.UnitInProgress, Step: "Draining"}}
	}
}

// The first object of a namespace is not sent before somebody has asked who may see it.
func TestRightsInANewNamespace(t *testing.T) {
	inBubble(t, two(), func(w *fleetWorld) {
		w.rights.deny("talosoperations secret")
		o := w.watchAll(&pb.WatchOperationsRequest{}, pace)
		o.expect("up, boot, synced")
		w.fleet.Apply(opOf("secret", "plan", "c9"))
		o.expect("")
		w.fleet.Apply(opOf("open", "door", "c9"))
		w.g.Expect(o.heard()).To(HavePrefix("door"))
		asked := w.rights.asked
		w.fleet.Apply(opOf("secret", "plan", "c9", stands("StepFailed", "why")), opOf("open", "door", "c9", stands("StepFailed", "why")))
		o.expect("door")
		w.g.Expect(w.rights.asked).To(Equal(asked), "once is enough")
		w.fleet.Delete(opOf("open", "door", "c9"))
		o.expect("no door")
	})
}

// What was there when rights were asked, and is gone before its end was sent, is still the caller's to hear of.
func TestEndOfANamespace(t *testing.T) {
	inBubble(t, two(), func(w *fleetWorld) {
		slow := w.watchAll(&pb.WatchOperationsRequest{}, 0)
		for range 3 {
			<-slow.responses
		}
		w.fleet.Apply(opOf("a", "up", "c1", stands("StepFailed", "why"))) // It is being sent while the rest happens.
		synctest.Wait()
		w.fleet.Delete(opOf("b", "boot", "c2"))
		pass(defaultRights)
		w.g.Expect(said(<-slow.responses)).To(Equal("up"))
		w.g.Expect(said(<-slow.responses)).To(Equal("no boot"))
	})
}

func TestNamedNamespacesOfAWatch(t *testing.T) {
	inBubble(t, two(), func(w *fleetWorld) {
		request := &pb.WatchOperationsRequest{Filter: &pb.OperationFilter{Namespaces: []string{"a"}}}
		w.rights.deny("talosoperations a")
		w.expectCode(w.watchAll(request, pace).end(), connect.CodePermissionDenied, `namespace "a"`)
		w.rights.deny()
		o := w.watchAll(request, pace)
		o.expect("up, synced")
		w.rights.deny("talosoperations a")
		pass(defaultRights)
		o.expect("")
		w.expectCode(o.end(), connect.CodePermissionDenied, `user "ada" may not list talosoperations in namespace "a"`)
	})
}

// While nobody can say what a caller may read, a watch goes on for a while, and none begins.
func TestUnknownRights(t *testing.T) {
	inBubble(t, two(), func(w *fleetWorld) {
		o := w.watchAll(&pb.WatchOperationsRequest{}, pace)
		o.expect("up, boot, synced")
		w.rights.lose("talosoperations a", "talosoperations b")
		w.expectCode(w.watchAll(&pb.WatchOperationsRequest{}, pace).end(), connect.CodeUnavailable, "ada")
		pass(doubt / 2)
		w.fleet.Apply(opOf("a", "up", "c1", stands("StepFailed", "why")))
		w.g.Expect(o.heard()).To(HaveSuffix("up"))
		w.rights.lose()
		pass(doubt / 2)
		w.rights.lose("talosoperations a")
		pass(doubt)
		o.heard()
		pass(2 * defaultRights)
		w.expectCode(o.end(), connect.CodeUnavailable, "nobody can say")
	})
}

func TestEndsOfAWatch(t *testing.T) {
	inBubble(t, two(), func(w *fleetWorld) {
		w.caller.Expires = time.Now().Add(time.Minute)
		o := w.watchAll(&pb.WatchOperationsRequest{}, pace)
		o.heard()
		pass(time.Minute)
		w.expectCode(o.end(), connect.CodeUnauthenticated, "sign in again")

		w.caller.Expires = time.Time{}
		o, c := w.watchAll(&pb.WatchOperationsRequest{}, pace), w.watchFleet(&pb.WatchClustersRequest{})
		o.heard()
		w.fleet.Close(fleet.ErrStopping)
		w.expectCode(o.end(), connect.CodeUnavailable, "the hub is stopping")
		w.expectCode(c.end(), connect.CodeUnavailable, "the hub is stopping")
		w.expectCode(w.watchAll(&pb.WatchOperationsRequest{}, pace).end(), connect.CodeUnavailable, "the hub is stopping")
	})
	inBubble(t, two(), func(w *fleetWorld) {
		gone := errors.New("nobody reads")
		err := w.watchOperations(t.Context(), &pb.WatchOperationsRequest{}, func(*pb.WatchOperationsResponse) error { return gone })
		w.g.Expect(err).To(MatchError(gone))
		w.failures = []*pb.Failure{{Code: "permission_denied", Message: "listing clusters: forbidden"}}
		w.watchAll(&pb.WatchOperationsRequest{}, pace).expect("up, boot, synced")
		w.failures = append(w.failures, &pb.Failure{Code: "unavailable", Message: "listing talosoperations: broken"})
		w.expectCode(w.watchAll(&pb.WatchOperationsRequest{}, pace).end(), connect.CodeUnavailable, "broken")
		w.expectCode(w.watchAll(&pb.WatchOperationsRequest{Filter: &pb.OperationFilter{LabelSelector: "!"}}, pace).end(), connect.CodeInvalidArgument)
	})
}

// A list and a watch of the same thing fit together.
func TestWatchGoesOnAfterAList(t *testing.T) {
	inBubble(t, two(), func(w *fleetWorld) {
		answer, err := w.listOperations(&pb.ListOperationsRequest{Page: &pb.Page{Size: 1}})
		w.g.Expect(err).NotTo(HaveOccurred())
		w.fleet.Apply(opOf("a", "new", "c1"))
		w.watchAll(&pb.WatchOperationsRequest{ResumeToken: answer.GetResumeToken()}, pace).expect("new, synced")
		w.fleet.Apply(clusterOf("a", "c1"))
		clusters, err := w.ListClusters(w.t.Context(), connect.NewRequest(&pb.ListClustersRequest{Filter: &pb.ClusterFilter{Namespaces: []string{"a"}}}))
		w.g.Expect(err).NotTo(HaveOccurred())
		w.fleet.Apply(clusterOf("a", "c1", expires))
		w.watchFleet(&pb.WatchClustersRequest{Filter: &pb.ClusterFilter{Namespaces: []string{"a"}}, ResumeToken: clusters.Msg.GetResumeToken()}).expect("c1, synced")
	})
}

func TestWatchClustersWithMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFleetWorld(t, someClusters()...)
		w.fleet.Apply(machineOf("a", "orphan", "nobody", v1alpha1.WorkerRole))
		all := w.watchFleet(&pb.WatchClustersRequest{Machines: true})
		all.expect("c1, c1-cp-1, c1-w-1, c2, c3, c3-w-1, synced")
		without := w.watchFleet(&pb.WatchClustersRequest{})
		without.expect("c1, c2, c3, synced")
		urgent := w.watchFleet(&pb.WatchClustersRequest{Machines: true, Filter: &pb.ClusterFilter{MinAttention: pb.Attention_ATTENTION_SOON}})
		urgent.expect("c1, c1-cp-1, c1-w-1, synced")
		all.heard()

		held := machineOf("b", "c3-w-1", "c3", v1alpha1.WorkerRole, func(m *v1alpha1.TalosMachine) {
			m.Annotations = map[string]string{v1alpha1.UpgradeHoldAnnotation: "a disk is slow"}
		})
		w.fleet.Apply(held)
		all.expect("c3, c3-w-1")
		without.expect("c3")
		urgent.expect("")

		w.fleet.Apply(clusterOf("b", "c3", expires)) // It enters the filter, and with it its machines.
		synctest.Wait()
		first := <-urgent.responses
		w.g.Expect(said(first)).To(Equal("c3"))
		urgent.expect("c3-w-1")
		filter := &pb.ClusterFilter{MinAttention: pb.Attention_ATTENTION_SOON}
		w.watchFleet(&pb.WatchClustersRequest{Machines: true, Filter: filter, ResumeToken: first.GetResumeToken()}).expect("c3, c3-w-1, synced")
		all.expect("c3")
		before := urgent.token
		w.fleet.Delete(held)
		urgent.expect("c3, no c3-w-1")
		w.fleet.Apply(clusterOf("b", "c3"))
		urgent.expect("no c3")
		w.fleet.Apply(machineOf("b", "c3-w-2", "c3", v1alpha1.WorkerRole))
		urgent.expect("")
		urgent.stop()
		again := w.watchFleet(&pb.WatchClustersRequest{Machines: true, Filter: filter, ResumeToken: before})
		again.expect("c3, no c3-w-1, no c3, synced")

		all.heard()
		w.rights.deny("talosmachines a")
		pass(defaultRights)
		all.expect("reset, c1, c2, c3, c3-w-2, synced")
		w.fleet.Apply(machineOf("a", "c1-w-2", "c1", v1alpha1.WorkerRole))
		all.expect("c1")
		w.fleet.Delete(clusterOf("a", "c1"))
		all.expect("no c1")
	})
}

func TestWatchClustersWithoutOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFleetWorld(t, clusterOf("a", "c1"))
		w.rights.deny("talosoperations a")
		urgent := w.watchFleet(&pb.WatchClustersRequest{Filter: &pb.ClusterFilter{MinAttention: pb.Attention_ATTENTION_FAILED}})
		all := w.watchFleet(&pb.WatchClustersRequest{})
		urgent.expect("synced")
		all.expect("c1, synced")
		w.fleet.Apply(opOf("a", "up", "c1", stands("StepFailed", "why")))
		urgent.expect("")
		synctest.Wait()
		w.g.Expect((<-all.responses).GetChanged().GetOperations()).To(BeEmpty())
		w.rights.deny()
		pass(defaultRights)
		urgent.expect("reset, c1, synced")
		all.expect("reset, c1, synced")
		w.rights.deny("talosoperations a")
		pass(defaultRights)
		urgent.expect("reset, synced")
	})
}

// Who may not read operations does not read of them in machines either.
func TestWatchMachinesWithoutOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFleetWorld(t, clusterOf("a", "c1"), machineOf("a", "c1-w-1", "c1", v1alpha1.WorkerRole), opOf("a", "up", "c1", working("c1-w-1")))
		machineOfNext := func(o *watcher[*pb.WatchClustersResponse]) *pb.Machine {
			for {
				if machine := (<-o.responses).GetMachineChanged(); machine != nil {
					return machine
				}
			}
		}
		w.g.Expect(machineOfNext(w.watchFleet(&pb.WatchClustersRequest{Machines: true})).GetStep()).To(Equal("Draining"))
		w.rights.deny("talosoperations a")
		o := w.watchFleet(&pb.WatchClustersRequest{Machines: true})
		for range 2 { // At the beginning, and when it changes.
			machine := machineOfNext(o)
			w.g.Expect(machine.GetOperation()).To(BeNil())
			w.g.Expect(machine.GetStep()).To(BeEmpty())
			w.fleet.Apply(machineOf("a", "c1-w-1", "c1", v1alpha1.WorkerRole, func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion = "v1.14.1" }))
		}
	})
}

// Many watch, some slowly, while much changes: what each of them knows in the end is what there is.
func TestTwoHundredWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const watchers, changes = 200, 300
		w := newFleetWorld(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		known := make([]map[string]*pb.Operation, watchers)
		ended := make(chan error, watchers)
		for i := range watchers {
			known[i] = map[string]*pb.Operation{}
			go func() {
				ended <- w.watchOperations(ctx, &pb.WatchOperationsRequest{}, func(r *pb.WatchOperationsResponse) error {
					if i%10 == 0 {
						pass(time.Duration(i) * time.Millisecond)
					}
					switch event := r.GetEvent().(type) {
					case *pb.WatchOperationsResponse_Changed:
						known[i][event.Changed.GetRef().GetName()] = event.Changed
					case *pb.WatchOperationsResponse_Removed:
						delete(known[i], event.Removed.GetName())
					}
					return nil
				})
			}()
		}
		for i := range changes {
			op := opOf("a", fmt.Sprintf("op-%d", i%20), "c1", stands("StepFailed", fmt.Sprint(i)))
			if i%7 == 0 {
				w.fleet.Delete(op)
			} else {
				w.fleet.Apply(op)
			}
			pass(time.Millisecond)
		}
		pass(10 * time.Minute)
		stop()
		synctest.Wait()
		all, _ := w.fleet.Operations()
		for i := range watchers {
			w.g.Expect(<-ended).To(MatchError(context.Canceled))
			w.g.Expect(known[i]).To(HaveLen(len(all)))
			for _, op := range all {
				w.g.Expect(known[i][op.GetRef().GetName()]).To(BeIdenticalTo(op), "it is the same message, not a copy")
			}
		}
	})
}
