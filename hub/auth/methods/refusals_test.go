// SPDX-License-Identifier: Apache-2.0

package methods_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

// Anybody may bring tokens, and each costs the management API a review: one address must not make the hub ask without end.
func TestRefusedTokensAreBounded(t *testing.T) {
	w := newWorld(t)
	w.api.know("robot", robot)
	w.api.know("other", robot)
	hub := w.handler(w.options)
	number := 0
	from := func(peer, token string) *httptest.ResponseRecorder {
		request := w.request(ichorv1alpha1connect.HubServiceGetSessionProcedure, bearer(token))
		request.RemoteAddr = peer
		recorder := httptest.NewRecorder()
		hub.ServeHTTP(recorder, request)
		return recorder
	}
	junk := func(peer string) int {
		number++
		return from(peer, fmt.Sprintf("junk-%d", number)).Code
	}
	const peer = "192.0.2.1:5"
	w.Expect(from(peer, "robot").Code).To(Equal(http.StatusOK))
	before := w.api.asked()
	refused := 0
	for range 100 {
		if junk(peer) == http.StatusUnauthorized {
			refused++
		}
	}
	w.Expect(refused).To(Equal(30))
	w.Expect(w.api.asked() - before).To(Equal(30))
	answer := from(peer, "other")
	w.Expect(answer.Code).To(Equal(http.StatusTooManyRequests), "nobody knows yet that it is good")
	w.Expect(answer.Body.String()).To(ContainSubstring(`"code":"resource_exhausted"`))
	w.Expect(answer.Body.String()).To(ContainSubstring("too many bearer tokens of this address were refused"))
	w.clock.advance(500 * time.Millisecond)
	w.Expect(from(peer, "robot").Code).To(Equal(http.StatusOK), "it was good before")
	w.Expect(from("192.0.2.2:5", "other").Code).To(Equal(http.StatusOK), "another address")

	w.clock.advance(2 * time.Second)
	w.Expect(junk(peer)).To(Equal(http.StatusUnauthorized), "one each second")
	w.Expect(junk(peer)).To(Equal(http.StatusUnauthorized))
	w.Expect(junk(peer)).To(Equal(http.StatusTooManyRequests))

	refused = 0
	for i := range 40 { // Whoever has one address of IPv6 has its network.
		if junk(fmt.Sprintf("[2001:db8::%x]:5", i+1)) == http.StatusUnauthorized {
			refused++
		}
	}
	w.Expect(refused).To(Equal(30))
	w.Expect(junk("[2001:db8:0:1::1]:5")).To(Equal(http.StatusUnauthorized))
}

// The page's way to bring a token is no way around.
func TestRefusedTokensOfBrowsersAreBounded(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	for i := range 30 {
		w.Expect(w.exchange(b, fmt.Sprintf("junk-%d", i)).Status).To(Equal(http.StatusUnauthorized))
	}
	w.Expect(w.exchange(b, "junk").Status).To(Equal(http.StatusTooManyRequests))
	w.Expect(w.api.asked()).To(Equal(30))
}

// hanging is a method that does not answer until it is told to.
type hanging struct {
	asked  atomic.Int32
	answer chan struct{}
}

func (h *hanging) Owns(token string) bool { return token != "other" }

func (h *hanging) Authenticate(ctx context.Context, _ string) (auth.Caller, error) {
	h.asked.Add(1)
	select {
	case <-h.answer:
	case <-ctx.Done():
	}
	return auth.Caller{}, auth.Unauthenticated("no")
}

// quick is a method that answers at once.
type quick struct{}

func (quick) Owns(string) bool { return true }

func (quick) Authenticate(context.Context, string) (auth.Caller, error) {
	return auth.Caller{Name: "ada"}, nil
}

// However many come at once, so many are asked about, and a method that hangs holds up no other.
func TestTokensAreAskedAboutInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		h := &hanging{answer: make(chan struct{})}
		guard := &auth.Guard{Bearers: []auth.Bearer{h, quick{}}, Refusals: auth.NewRefusals(time.Now)}
		ctx := guard.Sourced(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)).Context()
		codes := make(chan connect.Code, 200)
		for i := range cap(codes) {
			go func() {
				_, err := guard.Bearer(ctx, fmt.Sprintf("junk-%d", i))
				codes <- connect.CodeOf(err)
			}()
		}
		synctest.Wait()
		g.Expect(h.asked.Load()).To(Equal(int32(32)))
		g.Expect(guard.Bearer(ctx, "other")).To(HaveField("Name", "ada"))
		close(h.answer)
		synctest.Wait()
		count := map[connect.Code]int{}
		for range cap(codes) {
			count[<-codes]++
		}
		g.Expect(h.asked.Load()).To(BeNumerically("<=", 30+32), "who waited is bounded, too")
		g.Expect(count[connect.CodeResourceExhausted]).To(BeNumerically(">=", 200-30-32))
	})
}
