// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/clock"

	"ichor.maesh.dev/hub/hub/auth"
)

const takes = time.Millisecond // A review, in the time of the bubble.

// reviews are those that a management API was asked for, and what it answers.
type reviews struct {
	authorizationclient.SubjectAccessReviewInterface

	mu      sync.Mutex
	may     []string // Namespaces.
	failing error
	asked   map[string]int // Namespaces.
	under   int
	most    int // How many were under way at once.
}

func (r *reviews) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	r.begin(review.Spec.ResourceAttributes.Namespace)
	time.Sleep(takes) //nolint:forbidigo // The clock is the bubble's.
	r.mu.Lock()
	defer r.mu.Unlock()
	r.under--
	review.Status.Allowed = slices.Contains(r.may, review.Spec.ResourceAttributes.Namespace)
	return review, r.failing
}

func (r *reviews) begin(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[namespace]++
	r.under++
	r.most = max(r.most, r.under)
}

// count is how many were asked since it was called last, but for those about every namespace.
func (r *reviews) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := 0
	for namespace, asked := range r.asked {
		if namespace != "" {
			count += asked
		}
	}
	clear(r.asked)
	return count
}

func (r *reviews) let(failing error, may ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing, r.may = failing, may
}

// fleetOf are the names of namespaces.
func fleetOf(count int) []string {
	namespaces := make([]string, count)
	for i := range namespaces {
		namespaces[i] = fmt.Sprintf("n%04d", i)
	}
	return namespaces
}

// listing of a caller; some are the namespaces that it may read.
func (r *reviews) of(g *WithT, reviewer *reviewer, user string) func(namespaces ...string) (some []string) {
	return func(namespaces ...string) (some []string) {
		readable, failures := rights{reviewer: reviewer, caller: auth.Caller{Name: user}}.Readable(context.Background(), "talosoperations", namespaces)
		g.Expect(failures).To(BeEmpty())
		for namespace := range readable {
			some = append(some, namespace)
		}
		slices.Sort(some)
		return some
	}
}

func wait(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // The clock is the bubble's.
	synctest.Wait()
}

// Who may read one namespace of many is asked about all of them once, and then about few, without being held up by it.
func TestReadableNamespacesAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		api := &reviews{asked: map[string]int{}, may: []string{"n0007"}}
		reviewer := newReviewer(api, clock.RealClock{})
		list := api.of(g, reviewer, "ada")
		all := fleetOf(1000)
		timed := func(namespaces ...string) ([]string, time.Duration) {
			begun := time.Now()
			some := list(namespaces...)
			return some, time.Since(begun)
		}
		g.Expect(list(all...)).To(Equal([]string{"n0007"}))
		g.Expect(api.count()).To(Equal(1000))
		g.Expect(api.most).To(Equal(atOnce))
		g.Expect(list(all...)).To(Equal([]string{"n0007"}))
		g.Expect(api.count()).To(BeZero())

		// What was allowed is asked about again after seconds: a right is no longer kept that was taken away.
		wait(goodFor + time.Second)
		some, took := timed(all...)
		g.Expect(some).To(Equal([]string{"n0007"}))
		g.Expect(took).To(BeNumerically("<=", 2*takes), "once for all, once for the namespace")
		g.Expect(api.count()).To(Equal(1))
		api.let(nil)
		wait(goodFor + time.Second)
		g.Expect(list(all...)).To(BeEmpty())
		g.Expect(api.count()).To(Equal(1))

		// A new namespace is asked about at once.
		api.let(nil, "new", "n0500")
		wait(time.Second)
		g.Expect(list(append(all, "new")...)).To(Equal([]string{"new"}))
		g.Expect(api.count()).To(BeNumerically("<=", 2))

		// What was denied is asked about in the background.
		wait(deniedFor + jitter)
		some, took = timed(append(all, "new")...)
		g.Expect(some).To(Equal([]string{"new"}))
		g.Expect(took).To(BeNumerically("<=", 2*takes))
		wait(time.Second)
		g.Expect(list(append(all, "new")...)).To(Equal([]string{"n0500", "new"}))
		g.Expect(api.count()).To(BeNumerically("~", 1001, 2))
	})
}

// Many who may read little do not make the hub ask as much as they like: it is done in turn, and spread.
func TestLookingAgainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		api := &reviews{asked: map[string]int{}}
		reviewer := newReviewer(api, clock.RealClock{})
		all := fleetOf(200)
		const users = 50
		for i := range users {
			api.of(g, reviewer, fmt.Sprintf("user-%d", i))(all...)
		}
		wait(deniedFor + jitter)
		api.count()
		api.most = 0
		for i := range users {
			api.of(g, reviewer, fmt.Sprintf("user-%d", i))(all...)
		}
		wait(10 * time.Second)
		g.Expect(api.count()).To(Equal(users * len(all)))
		g.Expect(api.most).To(BeNumerically("<=", asides*asideAtOnce+1))
		g.Expect(reviewer.asides).To(BeEmpty())
	})
}

// Namespaces that there are no more are forgotten, and those that no list is about.
func TestNamespacesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		api := &reviews{asked: map[string]int{}}
		list := api.of(g, newReviewer(api, clock.RealClock{}), "ada")
		all := fleetOf(100)
		list(all...)
		for range 2 { // The first time, the widest was from before.
			wait(deniedFor + jitter)
			list(all[:10]...)
			wait(time.Second)
		}
		api.count()
		wait(deniedFor + jitter)
		list(all[:10]...)
		wait(time.Second)
		g.Expect(api.count()).To(Equal(10))
	})
}

// A management API that is away makes nobody lose what they may read, and is asked again soon.
func TestReadableNamespacesWhileTheAPIIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		api := &reviews{asked: map[string]int{}, may: []string{"n0001"}}
		r := rights{reviewer: newReviewer(api, clock.RealClock{}), caller: auth.Caller{Name: "ada"}}
		all := fleetOf(100)
		api.let(errors.New("away"), "n0001")
		_, failures := r.Readable(t.Context(), "talosoperations", all)
		g.Expect(failures).To(HaveLen(1))
		g.Expect(failures[0].GetScope()).To(BeNil())
		g.Expect(failures[0].GetMessage()).To(And(ContainSubstring("away"), Not(ContainSubstring("n0"))))
		g.Expect(api.count()).To(BeZero(), "and about no single one")

		api.let(nil, "n0001")
		readable, failures := r.Readable(t.Context(), "talosoperations", all)
		g.Expect(failures).To(BeEmpty())
		g.Expect(readable).To(HaveKey("n0001"))

		// It goes away for the time of looking again.
		wait(deniedFor + jitter)
		g.Expect(r.reviewer.may(t.Context(), r.caller, listing("talosoperations", ""))).To(BeFalse())
		api.let(errors.New("away"), "n0001")
		_, failures = r.Readable(t.Context(), "talosoperations", all)
		g.Expect(failures).To(HaveLen(1), "what it may read is not known now")
		wait(time.Second)
		api.let(nil, "n0001", "n0002")
		wait(againAfter)
		readable, _ = r.Readable(t.Context(), "talosoperations", all)
		g.Expect(readable).To(HaveKey("n0001"))
		wait(time.Second)
		readable, _ = r.Readable(t.Context(), "talosoperations", all)
		g.Expect(readable).To(HaveKey("n0002"))
	})
}

// Who leaves before the answer gets none, and who comes after them does not ask again.
func TestImpatientCallersShareOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		api := &reviews{asked: map[string]int{}, may: []string{"n0001"}}
		r := rights{reviewer: newReviewer(api, clock.RealClock{}), caller: auth.Caller{Name: "ada"}}
		all := fleetOf(1000)
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*takes)
			_, failures := r.Readable(ctx, "talosoperations", all)
			g.Expect(failures).To(ConsistOf(HaveField("Code", "deadline_exceeded")))
			cancel()
		}
		readable, failures := r.Readable(t.Context(), "talosoperations", all)
		g.Expect(failures).To(BeEmpty())
		g.Expect(readable).To(HaveLen(1))
		g.Expect(api.count()).To(Equal(1000))
	})
}

// However much one caller asks at once, the management API hears it in turn; others do not wait for it.
func TestQuestionsOfOneCallerAreInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		api := &reviews{asked: map[string]int{}}
		reviewer := newReviewer(api, clock.RealClock{})
		ask := func(user, namespace string) {
			_, err := reviewer.may(t.Context(), auth.Caller{Name: user}, listing("talosoperations", namespace))
			g.Expect(err).NotTo(HaveOccurred())
		}
		var asking sync.WaitGroup
		for _, namespace := range fleetOf(500) {
			asking.Go(func() { ask("mallory", namespace) })
		}
		begun := time.Now()
		ask("ada", "n0001")
		g.Expect(time.Since(begun)).To(Equal(takes))
		asking.Wait()
		g.Expect(api.count()).To(Equal(501))
		g.Expect(api.most).To(BeNumerically("<=", atOnce+1))
	})
}

// Who asks more than is answered hears that it is their own doing.
func TestQuestionsThatAreNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		api := &reviews{asked: map[string]int{}}
		r := rights{reviewer: newReviewer(api, clock.RealClock{}), caller: auth.Caller{Name: "mallory"}}
		of, err := r.reviewer.of(r.caller)
		g.Expect(err).NotTo(HaveOccurred())
		for range atOnce { // As many as hang.
			of.slots <- struct{}{}
		}
		err = r.May(t.Context(), listing("talosoperations", "n0001"))
		g.Expect(connect.CodeOf(err)).To(Equal(connect.CodeResourceExhausted))
		g.Expect(err).To(MatchError(ContainSubstring("16 other questions")))
		g.Expect(api.count()).To(BeZero())
	})
}
