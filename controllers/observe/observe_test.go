// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

var (
	start  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	object = types.NamespacedName{Namespace: "default", Name: "op-1"}
	part   = Key{Object: object, Part: "c1-w-1"}
)

// world is an Observer on a clock that stands still, and the thing that it looks at.
type world struct {
	*Observer
	*testing.T

	g     *WithT
	clock *clocktesting.FakeClock
	woken chan types.NamespacedName

	// begun gets a value when a look begins; it ends with what is sent to tell.
	begun chan context.Context
	tell  chan any
}

func newWorld(t *testing.T, options Options) *world {
	t.Helper()
	w := &world{
		T: t, g: NewWithT(t), clock: clocktesting.NewFakeClock(start), woken: make(chan types.NamespacedName, 64),
		begun: make(chan context.Context, 64), tell: make(chan any),
	}
	w.Observer = New(t.Context(), w.clock, options, func(key types.NamespacedName) { w.woken <- key })
	return w
}

func (w *world) at(ctx context.Context) any {
	w.begun <- ctx
	select {
	case seen := <-w.tell:
		return seen
	case <-ctx.Done():
		return "ended"
	}
}

func (w *world) want(key Key) (any, bool) { return w.Want(key, w.at) }

// look waits for a look to begin, and ends it.
func (w *world) look(seen any) {
	w.g.Eventually(w.begun).Should(Receive())
	w.tell <- seen
}

// pause waits until the observer waits for its next look, and lets time pass.
func (w *world) pause(d time.Duration) {
	w.g.Eventually(w.clock.HasWaiters).Should(BeTrue())
	w.clock.Step(d)
}

var options = Options{Interval: time.Second, Timeout: time.Minute, AtOnce: 8}

func TestFirstLook(t *testing.T) {
	w := newWorld(t, options)
	seen, fresh := w.want(part)
	w.g.Expect(fresh).To(BeFalse())
	w.g.Expect(seen).To(BeNil())
	w.look("a")
	w.g.Eventually(w.woken).Should(Receive(Equal(object)))
	seen, fresh = w.want(part)
	w.g.Expect(fresh).To(BeTrue())
	w.g.Expect(seen).To(Equal("a"))
}

// An object is woken for news, and only for news.
func TestWakesForNews(t *testing.T) {
	w := newWorld(t, options)
	w.want(part)
	w.look("a")
	w.g.Eventually(w.woken).Should(Receive())
	w.pause(time.Second)
	w.look("a")
	w.g.Eventually(w.clock.HasWaiters).Should(BeTrue())
	w.g.Expect(w.woken).To(BeEmpty())
	w.pause(time.Second)
	w.look("b")
	w.g.Eventually(w.woken).Should(Receive(Equal(object)))
}

func TestWaitsForTheInterval(t *testing.T) {
	w := newWorld(t, options)
	w.want(part)
	w.look("a")
	w.pause(999 * time.Millisecond)
	w.g.Expect(w.clock.HasWaiters()).To(BeTrue(), "the pause is not over")
	w.g.Expect(w.begun).To(BeEmpty())
	w.clock.Step(time.Millisecond)
	w.look("a")
}

// What answers slowly is looked at less often: the pause is as long as the look was.
func TestSlowLooksAreSeldom(t *testing.T) {
	w := newWorld(t, options)
	w.want(part)
	w.g.Eventually(w.begun).Should(Receive())
	w.clock.Step(20 * time.Second)
	w.tell <- "a"
	w.pause(19 * time.Second)
	w.g.Expect(w.clock.HasWaiters()).To(BeTrue())
	w.g.Expect(w.begun).To(BeEmpty())
	w.clock.Step(time.Second)
	w.look("a")
}

// What does not change is looked at less and less often, up to a limit; news make the pause short again.
func TestQuietThingsAreSeldomLookedAt(t *testing.T) {
	w := newWorld(t, Options{Interval: 10 * time.Second, Longest: time.Minute, Timeout: time.Hour, AtOnce: 8})
	w.want(part)
	w.look("a")
	w.pauses("a", 10*time.Second, 30*time.Second, time.Minute, time.Minute)
	w.look("b")
	w.pauses("b", 10*time.Second, 30*time.Second)
	w.look("b")
}

// pauses looks at the same again and again, and expects these pauses.
func (w *world) pauses(seen any, all ...time.Duration) {
	w.Helper()
	for i, pause := range all {
		if i > 0 {
			w.look(seen)
		}
		w.pause(pause - time.Millisecond)
		w.g.Expect(w.clock.HasWaiters()).To(BeTrue(), "pause %d is %s", i, pause)
		w.clock.Step(time.Millisecond)
	}
}

// Work on something keeps the pause short for as long as it goes on.
func TestClosely(t *testing.T) {
	w := newWorld(t, Options{Interval: 10 * time.Second, Longest: time.Minute, Timeout: time.Hour, AtOnce: 8})
	w.Closely(part, true) // Nothing looks at it yet.
	w.want(part)
	w.look("a")
	w.pauses("a", 10*time.Second, 30*time.Second)
	w.look("a")
	w.g.Eventually(w.clock.HasWaiters).Should(BeTrue())
	w.Closely(part, true)
	w.look("a") // At once.
	for range 3 {
		w.g.Eventually(w.clock.Waiters).Should(Equal(2), "the pause that was cut short, and the next")
		w.clock.Step(10 * time.Second)
		w.Closely(part, true) // No change.
		w.look("a")
	}
	w.g.Eventually(w.clock.Waiters).Should(Equal(2))
	w.Closely(part, false)
	w.clock.Step(10 * time.Second)
	w.look("a")
	w.g.Eventually(w.clock.Waiters).Should(Equal(2))
	w.clock.Step(10 * time.Second)
	w.g.Consistently(w.begun, 20*time.Millisecond).ShouldNot(Receive(), "the pause grows again")
}

func TestJitterAddsToThePause(t *testing.T) {
	w := newWorld(t, Options{Interval: time.Second, Jitter: 0.5, Timeout: time.Hour, AtOnce: 8})
	w.want(part)
	w.look("a")
	w.pause(999 * time.Millisecond)
	w.g.Expect(w.begun).To(BeEmpty(), "no pause is shorter")
	w.clock.Step(501 * time.Millisecond)
	w.look("a")
}

// Things that answered slowly do not take the slots of those that answer.
func TestSlowLooksHaveSlotsOfTheirOwn(t *testing.T) {
	w := newWorld(t, Options{Interval: time.Second, Timeout: time.Minute, AtOnce: 1})
	w.want(part)
	w.g.Eventually(w.begun).Should(Receive())
	w.clock.Step(31 * time.Second)
	w.tell <- "a"
	w.pause(31 * time.Second)
	w.g.Eventually(w.begun).Should(Receive(), "it is slow, and looks again")
	other := Key{Object: types.NamespacedName{Namespace: "default", Name: "op-2"}, Part: "x"}
	w.want(other)
	w.g.Eventually(w.begun).Should(Receive(), "although the slow one is not done")
	w.tell <- "b"
	w.tell <- "b"
}

// A look that hangs moves out of the way, and there are never more looks than slots.
func TestHangingLooksMoveToASlowSlot(t *testing.T) {
	w := newWorld(t, Options{Interval: time.Second, Timeout: 400 * time.Millisecond, AtOnce: 1})
	w.want(part)
	var hangs context.Context
	w.g.Eventually(w.begun).Should(Receive(&hangs))
	w.want(Key{Object: object, Part: "c1-w-2"})
	w.g.Consistently(w.begun, 100*time.Millisecond).ShouldNot(Receive())
	w.g.Eventually(w.begun).Should(Receive())
	w.g.Expect(hangs.Err()).NotTo(HaveOccurred(), "it has not ended yet")
	w.want(Key{Object: object, Part: "c1-w-3"})
	w.g.Eventually(w.begun).Should(Receive())
	w.g.Expect(hangs.Err()).To(HaveOccurred(), "both slots were taken until it ended")
}

// Only observations begun after the last thing that happened count, and the next one is made at once.
func TestInvalidate(t *testing.T) {
	w := newWorld(t, options)
	w.want(part)
	w.look("a")
	w.g.Eventually(w.woken).Should(Receive())
	w.g.Eventually(w.clock.HasWaiters).Should(BeTrue())

	w.Invalidate(object)
	_, fresh := w.want(part)
	w.g.Expect(fresh).To(BeFalse())
	w.g.Eventually(w.begun).Should(Receive(), "without any time passing")
	w.tell <- "a"
	w.g.Eventually(w.clock.Waiters).Should(Equal(2), "one pause was cut short, and the next has begun")
	_, fresh = w.want(part)
	w.g.Expect(fresh).To(BeFalse(), "it began at the very moment, not after it")
	w.g.Expect(w.woken).To(BeEmpty())

	w.pause(time.Second)
	w.look("a")
	w.g.Eventually(w.woken).Should(Receive(Equal(object)), "the same as before, and news all the same: it counts now")
	_, fresh = w.want(part)
	w.g.Expect(fresh).To(BeTrue())
}

// A look that was under way when something happened does not count, whatever it tells.
func TestInvalidateDuringALook(t *testing.T) {
	w := newWorld(t, options)
	w.want(part)
	w.g.Eventually(w.begun).Should(Receive())
	w.clock.Step(time.Millisecond)
	w.Invalidate(object)
	w.tell <- "a"
	w.g.Eventually(w.begun).Should(Receive(), "another look follows at once")
	_, fresh := w.want(part)
	w.g.Expect(fresh).To(BeFalse())
	w.g.Expect(w.woken).To(BeEmpty())
	w.tell <- "b"
}

func TestInvalidateIsAboutOneObject(t *testing.T) {
	w := newWorld(t, options)
	w.want(part)
	w.look("a")
	w.g.Eventually(w.woken).Should(Receive())
	w.Invalidate(types.NamespacedName{Namespace: "default", Name: "op-2"})
	_, fresh := w.want(part)
	w.g.Expect(fresh).To(BeTrue())
}

func TestKeepEndsWhatIsNotWanted(t *testing.T) {
	w := newWorld(t, options)
	other := Key{Object: types.NamespacedName{Namespace: "default", Name: "op-2"}, Part: "x"}
	for _, key := range []Key{part, {Object: object, Part: "c1-w-2"}, other} {
		w.want(key)
	}
	var contexts []context.Context
	for range 3 {
		var ctx context.Context
		w.g.Eventually(w.begun).Should(Receive(&ctx))
		contexts = append(contexts, ctx)
	}
	w.Keep(object, map[string]bool{"c1-w-2": true})
	ended := func() int {
		count := 0
		for _, ctx := range contexts {
			if ctx.Err() != nil {
				count++
			}
		}
		return count
	}
	w.g.Eventually(ended).Should(Equal(1))
	w.g.Expect(w.woken).To(BeEmpty(), "the end of a look is no news")
	w.Keep(object, nil)
	w.g.Eventually(ended).Should(Equal(2))
	seen, fresh := w.want(part)
	w.g.Expect(fresh).To(BeFalse(), "wanted anew, it is looked at anew")
	w.g.Expect(seen).To(BeNil())
}

func TestLooksAreBounded(t *testing.T) {
	t.Run("in time", func(t *testing.T) {
		w := newWorld(t, Options{Interval: time.Second, Timeout: time.Nanosecond, AtOnce: 1})
		w.want(part)
		w.g.Eventually(w.woken).Should(Receive())
		seen, _ := w.want(part)
		w.g.Expect(seen).To(Equal("ended"))
	})
	t.Run("in number", func(t *testing.T) {
		w := newWorld(t, Options{Interval: time.Second, Timeout: time.Minute, AtOnce: 1})
		w.want(part)
		w.g.Eventually(w.begun).Should(Receive())
		w.want(Key{Object: object, Part: "c1-w-2"})
		w.g.Consistently(w.begun, 20*time.Millisecond).ShouldNot(Receive(), "the only slot is taken")
		w.tell <- "a"
		w.g.Eventually(w.begun).Should(Receive())
	})
}

// The latest closure is asked: what it closes over changes from reconcile to reconcile.
func TestLatestClosureIsAsked(t *testing.T) {
	w := newWorld(t, options)
	var mu sync.Mutex
	var asked []string
	ask := func(name string) func(context.Context) any {
		return func(context.Context) any {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, name)
			return name
		}
	}
	w.Want(part, ask("first"))
	w.g.Eventually(w.woken).Should(Receive())
	w.Want(part, ask("second"))
	w.pause(time.Second)
	w.g.Eventually(w.woken).Should(Receive())
	mu.Lock()
	defer mu.Unlock()
	w.g.Expect(asked).To(Equal([]string{"first", "second"}))
}

func TestEndsWithItsContext(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	looked := make(chan context.Context, 1)
	o := New(ctx, clocktesting.NewFakeClock(start), options, func(types.NamespacedName) { t.Error("woken by the end") })
	o.Want(part, func(ctx context.Context) any {
		looked <- ctx
		<-ctx.Done()
		return "ended"
	})
	var look context.Context
	g.Eventually(looked).Should(Receive(&look))
	cancel()
	g.Eventually(look.Done()).Should(BeClosed())
}
