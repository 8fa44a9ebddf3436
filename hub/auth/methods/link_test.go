// SPDX-License-Identifier: Apache-2.0

package methods_test

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/hub/auth/link"
	"ichor.maesh.dev/hub/hub/auth/session"
	"ichor.maesh.dev/hub/hub/auth/signin"
)

// newLink is a link as a hub prints it.
func (w *world) newLink() string {
	w.t.Helper()
	code, err := w.links.Create(w.clock.Now(), 0)
	w.Expect(err).NotTo(HaveOccurred())
	return link.URL(w.hub.URL, code)
}

// press is the button of a link's page.
func (w *world) press(b *http.Client, at string, change ...func(*http.Request)) answer {
	w.t.Helper()
	u, err := url.Parse(at)
	w.Expect(err).NotTo(HaveOccurred())
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url(link.Path), strings.NewReader(u.RawQuery))
	w.Expect(err).NotTo(HaveOccurred())
	request.Header = w.request(link.Path, header("Content-Type", "application/x-www-form-urlencoded")).Header
	for _, f := range change {
		f(request)
	}
	return w.do(b, request)
}

func TestBrowserSignsInWithALink(t *testing.T) {
	w := newWorld(t)
	at, b := w.newLink(), w.browser()
	page := w.get(b, at)
	w.Expect(page.Status).To(Equal(http.StatusOK))
	w.Expect(page.Body).To(ContainSubstring(`<form method="post" action="/auth/link">`))
	w.Expect(w.press(b, at)).To(Equal(answer{Status: http.StatusOK, Body: "page /"}))
	who, _ := w.who(b)
	w.Expect(who.GetUser()).To(Equal("ichor-admin"))
	w.Expect(who.GetGroups()).To(Equal([]string{"ichor:admins", "system:authenticated"}))
	w.Expect(who.GetMethod()).To(Equal("link"))
}

func TestCommandLineSignsInWithALink(t *testing.T) {
	w := newWorld(t)
	token, err := signin.Link(t.Context(), w.hub.Client(), w.newLink())
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(token.Expires).To(BeTemporally("~", w.clock.Now().Add(session.DefaultLifetime), time.Second))
	who, _ := w.who(w.hub.Client(), bearer(token.Bearer), without("Origin"), without("Sec-Fetch-Site"))
	w.Expect(who.GetUser()).To(Equal("ichor-admin"))

	w.clock.advance(session.DefaultLifetime)
	_, said := w.who(w.hub.Client(), bearer(token.Bearer))
	w.Expect(said.Status).To(Equal(http.StatusUnauthorized))
	w.Expect(said.Body).To(ContainSubstring("sign in again"))
}

// Looking at a link, as mail programs do, does not use it up.
func TestLinkIsNotUsedUpByLooking(t *testing.T) {
	w := newWorld(t)
	at := w.newLink()
	for range 3 {
		w.Expect(w.get(w.browser(), at).Status).To(Equal(http.StatusOK))
	}
	_, err := signin.Link(t.Context(), w.hub.Client(), at)
	w.Expect(err).NotTo(HaveOccurred())
}

func TestBypassByReplayedLink(t *testing.T) {
	w := newWorld(t)
	at := w.newLink()
	_, err := signin.Link(t.Context(), w.hub.Client(), at)
	w.Expect(err).NotTo(HaveOccurred())
	_, err = signin.Link(t.Context(), w.hub.Client(), at)
	w.Expect(err).To(MatchError(ContainSubstring("403 Forbidden: the link has been used, or its time is over: make a new one with: ichor-hub login-link")))
	b := w.browser()
	w.Expect(w.press(b, at).Status).To(Equal(http.StatusForbidden))
	w.Expect(w.cookies(b)).To(BeEmpty())
}

func TestBypassByReplayedLinkAtOnce(t *testing.T) {
	w := newWorld(t)
	at := w.newLink()
	var group sync.WaitGroup
	var good atomic.Int32
	for range 16 {
		group.Go(func() {
			if _, err := signin.Link(t.Context(), w.hub.Client(), at); err == nil {
				good.Add(1)
			}
		})
	}
	group.Wait()
	w.Expect(good.Load()).To(Equal(int32(1)))
}

func TestBypassByOldLink(t *testing.T) {
	w := newWorld(t)
	at := w.newLink()
	w.clock.advance(link.DefaultLifetime)
	_, err := signin.Link(t.Context(), w.hub.Client(), at)
	w.Expect(err).To(HaveOccurred())
}

func TestBypassByMadeUpLink(t *testing.T) {
	w := newWorld(t)
	w.newLink()
	for _, code := range []string{"AAAA", "../session.key", "."} {
		_, err := signin.Link(t.Context(), w.hub.Client(), link.URL(w.hub.URL, code))
		w.Expect(err).To(MatchError(ContainSubstring("403 Forbidden")))
	}
	_, err := signin.Link(t.Context(), w.hub.Client(), w.hub.URL)
	w.Expect(err).To(MatchError(ContainSubstring("want one as ichor-hub printed it")))
}

// Another site must not sign somebody in.
func TestBypassByLinkOfAnotherSite(t *testing.T) {
	w := newWorld(t)
	at, b := w.newLink(), w.browser()
	w.Expect(w.press(b, at, header("Sec-Fetch-Site", "cross-site")).Status).To(Equal(http.StatusForbidden))
	w.Expect(w.press(b, at, without("Sec-Fetch-Site"), header("Origin", "https://evil.example.com")).Status).To(Equal(http.StatusForbidden))
	w.Expect(w.cookies(b)).To(BeEmpty())
	w.Expect(w.press(b, at).Status).To(Equal(http.StatusOK), "and the link is still good")
}
