// SPDX-License-Identifier: Apache-2.0

package methods_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"

	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/auth/methods"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

var robot = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
	Username: "system:serviceaccount:team-a:robot", UID: "uid-1", Groups: []string{"system:serviceaccounts", "system:authenticated"},
	Extra: map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {"JTI=1"}},
}}

func TestTokenOfTheManagementAPI(t *testing.T) {
	w := newWorld(t)
	w.api.know("robot", robot)
	for range 3 {
		_, said := w.who(w.hub.Client(), bearer("robot"), header("User-Agent", "ichor/v1"))
		w.Expect(said.Status).To(Equal(http.StatusOK))
	}
	w.Expect(w.api.asked()).To(Equal(1), "the answer is kept")
	caller := *w.service.last.Load()
	w.Expect(caller.Source).To(Equal("127.0.0.1"))
	caller.Source = ""
	w.Expect(caller).To(Equal(auth.Caller{
		Name: robot.User.Username, UID: "uid-1", Groups: robot.User.Groups, Method: auth.TokenMethod, Client: "ichor/v1",
		Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=1"}},
	}))
}

func TestBypassByRevokedToken(t *testing.T) {
	w := newWorld(t)
	w.api.know("robot", robot)
	w.Expect(w.call(w.hub.Client(), createOperation, bearer("robot")).Status).To(Equal(http.StatusOK))
	w.api.know("robot", authenticationv1.TokenReviewStatus{})
	w.clock.advance(11 * time.Second)
	w.Expect(w.call(w.hub.Client(), createOperation, bearer("robot")).Status).To(Equal(http.StatusUnauthorized))
	w.Expect(w.service.writes.Load()).To(Equal(int32(1)))
}

func TestTokenThatIsGoodOnlyLater(t *testing.T) {
	w := newWorld(t)
	_, said := w.who(w.hub.Client(), bearer("robot"))
	w.Expect(said.Status).To(Equal(http.StatusUnauthorized))
	w.api.know("robot", robot)
	w.clock.advance(6 * time.Second)
	_, said = w.who(w.hub.Client(), bearer("robot"))
	w.Expect(said.Status).To(Equal(http.StatusOK))
}

// A token that names nobody would be the hub itself to the management API.
func TestBypassByTokenOfNobody(t *testing.T) {
	w := newWorld(t)
	w.api.know("nobody", authenticationv1.TokenReviewStatus{Authenticated: true})
	_, said := w.who(w.hub.Client(), bearer("nobody"))
	w.Expect(said.Status).To(Equal(http.StatusUnauthorized))
}

func TestTokenForAnAudience(t *testing.T) {
	w := newWorld(t)
	hub := w.replica(func(o *methods.Options) { o.Audiences = []string{"ichor-hub"} })
	ask := func(token string) int {
		recorder := httptest.NewRecorder()
		hub.ServeHTTP(recorder, w.request(ichorv1alpha1connect.HubServiceGetSessionProcedure, bearer(token)))
		return recorder.Code
	}
	ours := robot
	ours.Audiences = []string{"ichor-hub"}
	w.api.know("ours", ours)
	w.api.know("of-an-api-without-audiences", robot)
	w.Expect(ask("ours")).To(Equal(http.StatusOK))
	w.Expect(ask("of-an-api-without-audiences")).To(Equal(http.StatusUnauthorized))
}

// Whoever follows an operation must not be told to sign in again while the management API restarts.
func TestManagementAPIThatIsDown(t *testing.T) {
	w := newWorld(t)
	w.api.know("robot", robot)
	w.api.setDown(true)
	c := ichorv1alpha1connect.NewHubServiceClient(w.hub.Client(), w.hub.URL, connect.WithGRPC())
	request := connect.NewRequest(&pb.GetSessionRequest{})
	request.Header().Set("Authorization", "Bearer robot")
	_, err := c.GetSession(t.Context(), request)
	w.Expect(connect.CodeOf(err)).To(Equal(connect.CodeUnavailable))
	w.api.setDown(false)
	_, err = c.GetSession(t.Context(), request)
	w.Expect(err).NotTo(HaveOccurred(), "a failure is not kept")
}

func TestWhereACallComesFrom(t *testing.T) {
	w := newWorld(t)
	w.api.know("robot", robot)
	proxied := w.replica(func(o *methods.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	for _, c := range []struct{ peer, forwarded, is string }{
		{peer: "192.0.2.1:5", is: "192.0.2.1"},
		{peer: "192.0.2.1:5", forwarded: "198.51.100.7", is: "192.0.2.1"},
		{peer: "10.0.0.1:5", forwarded: "198.51.100.7", is: "198.51.100.7"},
		{peer: "10.0.0.1:5", forwarded: "203.0.113.9, 198.51.100.7, 10.0.0.2", is: "198.51.100.7"},
		{peer: "[::ffff:10.0.0.1]:5", forwarded: "2001:db8::1", is: "2001:db8::1"},
		{peer: "10.0.0.1:5", forwarded: "nonsense", is: "10.0.0.1"},
	} {
		request := w.request(ichorv1alpha1connect.HubServiceGetSessionProcedure, bearer("robot"), header("X-Forwarded-For", c.forwarded))
		request.RemoteAddr = c.peer
		recorder := httptest.NewRecorder()
		proxied.ServeHTTP(recorder, request)
		w.Expect(recorder.Code).To(Equal(http.StatusOK))
		w.Expect(w.service.last.Load().Source).To(Equal(c.is), "%+v", c)
	}
}

// exchange is what the page does with a token that somebody typed.
func (w *world) exchange(b *http.Client, token string, change ...func(*http.Request)) answer {
	w.t.Helper()
	request := w.request(methods.TokenPath, change...)
	request.Body = io.NopCloser(strings.NewReader(`{"token":"` + token + `"}`))
	request.ContentLength = -1
	return w.do(b, request)
}

func TestBrowserSignsInWithAToken(t *testing.T) {
	w := newWorld(t)
	w.api.know("robot", robot)
	b := w.browser()
	w.Expect(w.exchange(b, "robot").Status).To(Equal(http.StatusNoContent))
	who, _ := w.who(b)
	w.Expect(who.GetUser()).To(Equal(robot.User.Username))
	w.Expect(who.GetMethod()).To(Equal("token"))
	w.Expect(w.sessionCookie(b).Value).NotTo(ContainSubstring("robot"), "the token is sealed")

	w.Expect(w.call(b, methods.LogoutPath).Status).To(Equal(http.StatusOK))
	_, said := w.who(b)
	w.Expect(said.Status).To(Equal(http.StatusUnauthorized))
}

func TestBypassByRevokedTokenInASession(t *testing.T) {
	w := newWorld(t)
	w.api.know("robot", robot)
	b := w.browser()
	w.Expect(w.exchange(b, "robot").Status).To(Equal(http.StatusNoContent))
	w.api.know("robot", authenticationv1.TokenReviewStatus{})
	w.clock.advance(11 * time.Second)
	w.Expect(w.call(b, createOperation).Status).To(Equal(http.StatusUnauthorized))
	w.Expect(w.service.writes.Load()).To(BeZero())
}

func TestTokenExchangeRefuses(t *testing.T) {
	w := newWorld(t)
	w.api.know("robot", robot)
	for name, row := range map[string]struct {
		token  string
		change func(*http.Request)
		status int
		says   string
	}{
		"a token that nobody knows":      {"other", header("X", "y"), http.StatusUnauthorized, "the management API does not know the bearer token"},
		"no token":                       {"", header("X", "y"), http.StatusBadRequest, `want {\"token\":\"...\"}`},
		"a form":                         {"robot", header("Content-Type", "text/plain"), http.StatusBadRequest, "application/json"},
		"another site":                   {"robot", header("Sec-Fetch-Site", "cross-site"), http.StatusForbidden, "another site"},
		"a token that fits in no cookie": {"ichor-session." + strings.Repeat("a", 5000), header("X", "y"), http.StatusUnauthorized, "the session is not valid"},
		"more than is read":              {strings.Repeat("a", 40<<10), header("X", "y"), http.StatusBadRequest, "want"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := w.browser()
			said := w.exchange(b, row.token, row.change)
			g.Expect(said.Status).To(Equal(row.status), said.Body)
			g.Expect(said.Body).To(ContainSubstring(row.says))
			g.Expect(w.cookies(b)).To(BeEmpty())
		})
	}
	long := strings.Repeat("b", 4000)
	w.api.know(long, robot)
	said := w.exchange(w.browser(), long)
	w.Expect(said).To(Equal(answer{http.StatusBadRequest, `{"message":"beginning a session for a token: its 4000 bytes do not fit in a cookie; bring a shorter one"}` + "\n"}))
}
