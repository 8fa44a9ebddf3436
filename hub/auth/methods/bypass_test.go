// SPDX-License-Identifier: Apache-2.0

package methods_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"

	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/auth/idp"
	"ichor.maesh.dev/hub/hub/auth/session"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
	"ichor.maesh.dev/hub/test/openid"
)

const createOperation = ichorv1alpha1connect.OperationServiceCreateOperationProcedure

// Every test here is an attempt to get past the guard.

func TestBypassByImpersonationHeader(t *testing.T) {
	w := newWorld(t)
	w.api.know("good", authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "ada"}})
	for _, name := range []string{"Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-Scopes", "impersonate_user", "X-Remote-User", "X-Remote-Group"} {
		for protocol, options := range map[string][]connect.ClientOption{
			"Connect": nil, "JSON": {connect.WithProtoJSON()}, "gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()},
		} {
			c := ichorv1alpha1connect.NewOperationServiceClient(w.hub.Client(), w.hub.URL, options...)
			request := connect.NewRequest(&pb.CreateOperationRequest{})
			request.Header().Set("Authorization", "Bearer good")
			_, err := c.CreateOperation(t.Context(), request)
			w.Expect(err).NotTo(HaveOccurred(), "the same without the header, by %s", protocol)

			request = connect.NewRequest(&pb.CreateOperationRequest{})
			request.Header().Set("Authorization", "Bearer good")
			request.Header()[name] = []string{"system:admin"}
			writes := w.service.writes.Load()
			_, err = c.CreateOperation(t.Context(), request)
			w.Expect(connect.CodeOf(err)).To(Equal(connect.CodePermissionDenied), "%s by %s", name, protocol)
			w.Expect(err).To(MatchError(ContainSubstring("does not act for somebody else")))
			w.Expect(w.service.writes.Load()).To(Equal(writes))
		}
	}
}

func TestBypassByImpersonationHeaderWithoutCredentials(t *testing.T) {
	w := newWorld(t)
	a := w.call(w.hub.Client(), ichorv1alpha1connect.HubServiceGetHubProcedure, header("Impersonate-User", "system:admin"))
	w.Expect(a.Status).To(Equal(http.StatusForbidden))
}

func TestBypassByForgedCookie(t *testing.T) {
	w := newWorld(t)
	cookie := w.sessionCookie(w.signedIn())
	sealed, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	w.Expect(err).NotTo(HaveOccurred())
	forged := map[string]string{"cut": cookie.Value[:len(cookie.Value)-4], "longer": cookie.Value + "AAAA", "empty": "", "no base64": "{}", "short": "AAAA"}
	for at := range sealed {
		flipped := append([]byte(nil), sealed...)
		flipped[at] ^= 1
		forged[fmt.Sprintf("bit of byte %d", at)] = base64.RawURLEncoding.EncodeToString(flipped)
	}
	other := session.Sessions{Keys: keys(t, 'o'), Lifetime: time.Hour, Now: w.clock.Now}
	token, _, err := other.Token(auth.Caller{Name: "ada"})
	w.Expect(err).NotTo(HaveOccurred())
	_, madeUp, _ := strings.Cut(token, ".")
	forged["sealed with another key"] = madeUp

	for name, value := range forged {
		a := w.call(w.hub.Client(), createOperation, withCookie(cookie, value))
		w.Expect(a.Status).To(Equal(http.StatusUnauthorized), name)
		w.Expect(a.Body).NotTo(ContainSubstring("message authentication"), "whoever makes cookies up needs no help")
	}
	w.Expect(w.service.writes.Load()).To(BeZero())
	w.Expect(w.call(w.hub.Client(), createOperation, withCookie(cookie, cookie.Value)).Status).To(Equal(http.StatusOK), "the cookie itself")
}

// What the hub seals for one purpose is not taken for another.
func TestBypassByCookieOfAnotherPurpose(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	w.leave(b)
	attempts := w.cookies(b)
	w.Expect(attempts).To(HaveLen(1))
	w.Expect(w.call(w.hub.Client(), createOperation, withCookie(&http.Cookie{Name: session.CookieName}, attempts[0].Value)).Status).To(Equal(http.StatusUnauthorized))

	ours := session.Sessions{Keys: w.options.Keys, Lifetime: time.Hour, Now: w.clock.Now}
	token, _, err := ours.Token(auth.Caller{Name: "ada"})
	w.Expect(err).NotTo(HaveOccurred())
	prefix, sealed, _ := strings.Cut(token, ".")
	w.Expect(w.call(w.hub.Client(), createOperation, withCookie(&http.Cookie{Name: session.CookieName}, sealed)).Status).To(Equal(http.StatusUnauthorized))
	cookie := w.sessionCookie(w.signedIn())
	w.Expect(w.call(w.hub.Client(), createOperation, bearer(prefix+"."+cookie.Value)).Status).To(Equal(http.StatusUnauthorized))
	w.Expect(w.service.writes.Load()).To(BeZero())
	w.Expect(w.call(w.hub.Client(), createOperation, bearer(token)).Status).To(Equal(http.StatusOK), "the token itself")
}

func TestBypassByExpiredCookie(t *testing.T) {
	w := newWorld(t)
	cookie := w.sessionCookie(w.signedIn())
	w.clock.advance(session.DefaultLifetime - time.Minute)
	w.Expect(w.call(w.hub.Client(), createOperation, withCookie(cookie, cookie.Value)).Status).To(Equal(http.StatusOK))
	w.clock.advance(time.Minute)
	a := w.call(w.hub.Client(), createOperation, withCookie(cookie, cookie.Value))
	w.Expect(a.Status).To(Equal(http.StatusUnauthorized))
	w.Expect(a.Body).To(ContainSubstring("the session ended at"))
	w.Expect(w.service.writes.Load()).To(Equal(int32(1)))
}

func TestBypassByCrossSitePost(t *testing.T) {
	w := newWorld(t)
	b := w.signedIn()
	for name, change := range map[string][]func(*http.Request){
		"another site":          {header("Sec-Fetch-Site", "cross-site")},
		"another host":          {header("Sec-Fetch-Site", "same-site")},
		"an old browser":        {without("Sec-Fetch-Site"), header("Origin", "https://evil.example.com")},
		"a sandboxed page":      {without("Sec-Fetch-Site"), header("Origin", "null")},
		"nobody says":           {without("Sec-Fetch-Site"), without("Origin")},
		"a form":                {header("Content-Type", "application/x-www-form-urlencoded")},
		"a form with files":     {header("Content-Type", "multipart/form-data; boundary=x")},
		"a form of text":        {header("Content-Type", "text/plain; charset=utf-8")},
		"no type":               {without("Content-Type")},
		"a type that is broken": {header("Content-Type", "application/json; =")},
	} {
		w.Expect(w.call(b, createOperation, change...).Status).To(Equal(http.StatusForbidden), name)
	}
	w.Expect(w.service.writes.Load()).To(BeZero())

	w.Expect(w.call(b, createOperation).Status).To(Equal(http.StatusOK), "the hub's own page")
	w.Expect(w.call(b, createOperation, without("Sec-Fetch-Site")).Status).To(Equal(http.StatusOK), "the hub's own page in an old browser")
	w.Expect(w.service.writes.Load()).To(Equal(int32(2)))
}

// A header is only sent by who means to, so it needs no more proof; and it is what counts, whatever cookie comes along.
func TestBypassByCookieBesideABadToken(t *testing.T) {
	w := newWorld(t)
	b := w.signedIn()
	w.Expect(w.call(b, createOperation, bearer("unknown")).Status).To(Equal(http.StatusUnauthorized))
	w.Expect(w.call(b, createOperation, header("Authorization", "Basic YWRhOmFkYQ==")).Status).To(Equal(http.StatusUnauthorized))
	w.Expect(w.call(b, createOperation, func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer a", "Bearer b"} }).Status).To(Equal(http.StatusUnauthorized))
	w.Expect(w.service.writes.Load()).To(BeZero())
}

func TestBypassByReplayedState(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	back := w.leave(b)
	kept := w.cookies(b)
	w.Expect(kept).To(HaveLen(1))

	w.Expect(w.get(w.browser(), back.RequestURI()).Status).To(Equal(http.StatusBadRequest), "another browser has not begun this")
	w.Expect(w.get(b, back.RequestURI())).To(Equal(answer{Status: http.StatusOK, Body: "page /"}))
	w.Expect(w.get(b, back.RequestURI()).Status).To(Equal(http.StatusBadRequest), "once more")

	again := w.browser()
	again.Jar.SetCookies(back, []*http.Cookie{{Name: kept[0].Name, Value: kept[0].Value, Path: "/", Secure: true}})
	a := w.get(again, back.RequestURI())
	w.Expect(a.Status).To(Equal(http.StatusForbidden), "with a copy of the cookie: the provider takes the code once")
	w.Expect(w.get(again, "/").Status).To(Equal(http.StatusOK))
	_, said := w.who(again)
	w.Expect(said.Status).To(Equal(http.StatusUnauthorized))
}

// Somebody who makes a victim's browser end their own attempt would have the victim work as them.
func TestBypassByAnothersState(t *testing.T) {
	w := newWorld(t)
	attacker, victim := w.leave(w.browser()), w.browser()
	own := w.leave(victim)
	mixed := url.Values{"state": {own.Query().Get("state")}, "code": {attacker.Query().Get("code")}}
	w.Expect(w.get(victim, idp.CallbackPath+"?"+mixed.Encode()).Status).To(Equal(http.StatusForbidden), "the code belongs to another challenge")
	_, said := w.who(victim)
	w.Expect(said.Status).To(Equal(http.StatusUnauthorized))
}

func TestBypassByLateCallback(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	back := w.leave(b)
	w.clock.advance(10 * time.Minute)
	w.Expect(w.get(b, back.RequestURI()).Status).To(Equal(http.StatusBadRequest))
}

func TestBypassByOpenRedirect(t *testing.T) {
	w := newWorld(t)
	for _, back := range []string{
		"https://evil.example.com/", "//evil.example.com", "/\\evil.example.com", "\\\\evil.example.com", "/\t/evil.example.com", "/\n/evil.example.com",
		"javascript:alert(1)", "evil.example.com", "http:evil.example.com", "///evil.example.com", "/ /evil.example.com",
	} {
		a := w.get(w.browser(), idp.LoginPath+"?"+url.Values{"return": {back}}.Encode())
		w.Expect(a.Status).To(Equal(http.StatusBadRequest), back)
		w.Expect(a.Body).To(ContainSubstring("want a path of the hub"))
	}
}

func TestBypassByTokenOfAnotherAudience(t *testing.T) {
	w := newWorld(t)
	// The provider gives an ID token to any of its clients.
	w.options.OIDC.CLIClientID = "ichor-other"
	hub := w.handler(w.options)
	w.hub.Config.Handler = hub
	_, said := w.who(w.hub.Client(), bearer(w.cli(openid.CLIClient).Bearer))
	w.Expect(said.Status).To(Equal(http.StatusUnauthorized))
	w.Expect(said.Body).To(ContainSubstring("audience"))
}

func TestBypassByTokenThatWasChanged(t *testing.T) {
	w := newWorld(t)
	parts := strings.Split(w.cli(openid.CLIClient).Bearer, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	w.Expect(err).NotTo(HaveOccurred())
	changed := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(payload), "subject-1", "subject-2", 1)))
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`))
	for name, token := range map[string]string{
		"another subject":         parts[0] + "." + changed + "." + parts[2],
		"no signature":            none + "." + changed + ".",
		"a signature left out":    parts[0] + "." + parts[1] + ".",
		"an algorithm of no kind": none + "." + parts[1] + "." + parts[2],
	} {
		_, said := w.who(w.hub.Client(), bearer(token))
		w.Expect(said.Status).To(Equal(http.StatusUnauthorized), name)
	}
}

func TestBypassByStaleIDToken(t *testing.T) {
	w := newWorld(t)
	token := w.cli(openid.CLIClient)
	w.clock.advance(59 * time.Minute)
	_, said := w.who(w.hub.Client(), bearer(token.Bearer))
	w.Expect(said.Status).To(Equal(http.StatusOK))
	w.clock.advance(2 * time.Minute)
	_, said = w.who(w.hub.Client(), bearer(token.Bearer))
	w.Expect(said.Status).To(Equal(http.StatusUnauthorized))
	w.Expect(said.Body).To(ContainSubstring("expired at"))
}

// A token of another provider is not the provider's, so the management API is asked, which does not know it.
func TestBypassByAnotherProvider(t *testing.T) {
	w := newWorld(t)
	another := openid.Start(t, "https://elsewhere.example.com/auth/callback")
	ours := w.provider
	w.provider = another
	token := w.cli(openid.CLIClient)
	w.provider = ours
	_, said := w.who(w.hub.Client(), bearer(token.Bearer))
	w.Expect(said.Status).To(Equal(http.StatusUnauthorized))
	w.Expect(w.api.asked()).To(Equal(1))
}

// A watch that began with good credentials must not outlive them.
func TestBypassByAWatchThatGoesOn(t *testing.T) {
	for name, end := range map[string]func(*world){
		"the token is revoked": func(w *world) {
			w.api.setDown(true)
			w.clock.advance(11 * time.Second)
			w.Eventually(w.api.missedAny).Should(BeTrue(), "an API that is away is no reason to end")
			w.api.setDown(false)
			w.Eventually(w.api.asked).Should(Equal(2))
			w.api.know("robot", authenticationv1.TokenReviewStatus{})
			w.clock.advance(11 * time.Second)
		},
		"the session is over": func(w *world) { w.clock.advance(session.DefaultLifetime) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.api.know("robot", robot)
			ours := session.Sessions{Keys: w.options.Keys, Lifetime: session.DefaultLifetime, Now: w.clock.Now}
			token, _, err := ours.Token(auth.Caller{Name: "ada"})
			w.Expect(err).NotTo(HaveOccurred())
			if strings.Contains(name, "revoked") {
				token = "robot"
			}
			c := ichorv1alpha1connect.NewOperationServiceClient(w.hub.Client(), w.hub.URL, connect.WithGRPC())
			request := connect.NewRequest(&pb.WatchOperationsRequest{})
			request.Header().Set("Authorization", "Bearer "+token)
			stream, err := c.WatchOperations(t.Context(), request)
			w.Expect(err).NotTo(HaveOccurred())
			defer stream.Close() //nolint:errcheck // It has ended.
			w.Expect(stream.Receive()).To(BeTrue())

			end(w)
			w.Expect(stream.Receive()).To(BeFalse())
			w.Expect(connect.CodeOf(stream.Err())).To(Equal(connect.CodeUnauthenticated))
		})
	}
}
