// SPDX-License-Identifier: Apache-2.0

package methods_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/hub/auth/idp"
	"ichor.maesh.dev/hub/hub/auth/methods"
	"ichor.maesh.dev/hub/hub/auth/session"
	"ichor.maesh.dev/hub/hub/auth/signin"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
	"ichor.maesh.dev/hub/test/openid"
)

func TestBrowserSignsInWithAnIdentityProvider(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	w.Expect(w.get(b, idp.LoginPath+"?return=/clusters%3Fname%3Dc1")).To(Equal(answer{Status: http.StatusOK, Body: "page /clusters?name=c1"}))

	who, _ := w.who(b)
	w.Expect(who.GetUser()).To(Equal(w.provider.URL + "#subject-1"))
	w.Expect(who.GetGroups()).To(Equal([]string{"oidc:platform", "oidc:oncall", "system:authenticated"}))
	w.Expect(who.GetMethod()).To(Equal("oidc"))
	w.Expect(w.service.last.Load().Expires).To(BeTemporally("~", w.clock.Now().Add(session.DefaultLifetime), time.Second))
	w.Expect(w.cookies(b)).To(HaveLen(1), "what the attempt kept is gone")
}

func TestSessionCookieIsClosedToScriptsAndOtherSites(t *testing.T) {
	w := newWorld(t)
	code, err := w.links.Create(w.clock.Now(), 0)
	w.Expect(err).NotTo(HaveOccurred())
	form := httptest.NewRequest(http.MethodPost, "/auth/link", strings.NewReader("code="+code))
	form.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	form.Header.Set("Sec-Fetch-Site", "same-origin")
	recorder := httptest.NewRecorder()
	w.hub.Config.Handler.ServeHTTP(recorder, form)
	set := recorder.Result().Cookies()
	w.Expect(set).To(HaveLen(1))
	w.Expect(set[0].Name).To(HavePrefix("__Host-"))
	w.Expect(set[0].Secure).To(BeTrue())
	w.Expect(set[0].HttpOnly).To(BeTrue())
	w.Expect(set[0].SameSite).To(Equal(http.SameSiteLaxMode))
	w.Expect(set[0].Path).To(Equal("/"))
	w.Expect(set[0].Domain).To(BeEmpty())
	w.Expect(set[0].MaxAge).To(Equal(int(session.DefaultLifetime.Seconds())))
}

func TestEveryReplicaTakesTheCookie(t *testing.T) {
	w := newWorld(t)
	cookie := w.sessionCookie(w.signedIn())
	ask := func(hub http.Handler) int {
		recorder := httptest.NewRecorder()
		request := w.request(ichorv1alpha1connect.HubServiceGetSessionProcedure, withCookie(cookie, cookie.Value))
		hub.ServeHTTP(recorder, request)
		return recorder.Code
	}
	w.Expect(ask(w.replica(func(*methods.Options) {}))).To(Equal(http.StatusOK))
	w.Expect(ask(w.replica(func(o *methods.Options) { o.Keys = keys(t, 'n', 'k') }))).To(Equal(http.StatusOK), "the key was renewed, and the one before is there")
	w.Expect(ask(w.replica(func(o *methods.Options) { o.Keys = keys(t, 'n') }))).To(Equal(http.StatusUnauthorized), "the key was taken away")
}

func TestLogout(t *testing.T) {
	w := newWorld(t)
	b := w.signedIn()
	w.Expect(w.call(b, methods.LogoutPath, header("Sec-Fetch-Site", "cross-site")).Status).To(Equal(http.StatusForbidden))
	_, still := w.who(b)
	w.Expect(still.Status).To(Equal(http.StatusOK))

	w.Expect(w.call(b, methods.LogoutPath)).To(Equal(answer{Status: http.StatusOK, Body: "page /"}))
	w.Expect(w.cookies(b)).To(BeEmpty())
	_, gone := w.who(b)
	w.Expect(gone.Status).To(Equal(http.StatusUnauthorized))
}

// cli signs a command line in.
func (w *world) cli(clientID string) signin.Token {
	w.t.Helper()
	p := signin.Provider{Issuer: w.provider.URL, ClientID: clientID}
	token, err := p.Loopback(w.t.Context(), func(at string) error {
		go w.get(http.DefaultClient, at)
		return nil
	})
	w.Expect(err).NotTo(HaveOccurred())
	return token
}

func TestCommandLineSignsInWithAnIdentityProvider(t *testing.T) {
	w := newWorld(t)
	token := w.cli(openid.CLIClient)
	who, _ := w.who(w.hub.Client(), bearer(token.Bearer))
	w.Expect(who.GetUser()).To(Equal(w.provider.URL + "#subject-1"))
	w.Expect(who.GetGroups()).To(ContainElement("oidc:platform"))
	w.Expect(who.GetMethod()).To(Equal("oidc"))
	w.Expect(w.api.asked()).To(BeZero(), "the token is nothing to the management API")
}

func TestHubSaysHowToSignIn(t *testing.T) {
	w := newWorld(t)
	m, err := methods.New(w.options)
	w.Expect(err).NotTo(HaveOccurred())
	s := m.SignIn(t.Context())
	w.Expect(s.GetToken()).To(BeTrue())
	w.Expect(s.GetLink()).To(BeTrue())
	w.Expect(s.GetOidc().GetIssuer()).To(Equal(w.provider.URL))
	w.Expect(s.GetOidc().GetClientId()).To(Equal(openid.CLIClient))
	w.Expect(s.GetOidc().GetDevice()).To(BeTrue())
}

func TestHubSaysHowToSignInWithoutCredentials(t *testing.T) {
	w := newWorld(t)
	c := ichorv1alpha1connect.NewHubServiceClient(w.hub.Client(), w.hub.URL)
	answer, err := c.GetHub(t.Context(), connect.NewRequest(&pb.GetHubRequest{}))
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(answer.Msg.GetVersion()).To(Equal("v1"))
	_, err = c.GetSession(t.Context(), connect.NewRequest(&pb.GetSessionRequest{}))
	w.Expect(connect.CodeOf(err)).To(Equal(connect.CodeUnauthenticated))
}

// A provider that is down keeps nobody out who comes in another way, and is asked again when it is back.
func TestProviderThatIsDown(t *testing.T) {
	w := newWorld(t)
	token := w.cli(openid.CLIClient)
	w.provider.Close()
	hub := httptest.NewTLSServer(w.replica(func(*methods.Options) {}))
	defer hub.Close()
	c := ichorv1alpha1connect.NewHubServiceClient(hub.Client(), hub.URL)
	request := connect.NewRequest(&pb.GetSessionRequest{})
	request.Header().Set("Authorization", "Bearer "+token.Bearer)
	_, err := c.GetSession(t.Context(), request)
	w.Expect(connect.CodeOf(err)).To(Equal(connect.CodeUnavailable), "the caller is to try again, and not to sign in again")

	m, err := methods.New(w.options)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(m.SignIn(t.Context()).GetOidc().GetDevice()).To(BeFalse())
}

func TestWhatTheProviderSaysOfSomebody(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*idp.Options)
		user    openid.User
		is      string
		groups  []string
		refusal string
	}{
		"email": {
			change: func(o *idp.Options) { o.UsernameClaim = "email" },
			user:   openid.User{Email: "ada@example.com", EmailVerified: true}, is: "ada@example.com",
		},
		"email that nobody has verified": {
			change: func(o *idp.Options) { o.UsernameClaim = "email" },
			user:   openid.User{Email: "ada@example.com", Claims: map[string]any{"email_verified": false}}, refusal: `has not verified "ada@example.com"`,
		},
		"prefix":    {change: func(o *idp.Options) { o.UsernamePrefix = "id:" }, is: "id:subject-1"},
		"no prefix": {change: func(o *idp.Options) { o.UsernamePrefix = "-" }, is: "subject-1"},
		"user of Kubernetes": {
			change: func(o *idp.Options) { o.UsernamePrefix = "-" },
			user:   openid.User{Subject: "system:kube-controller-manager"}, refusal: "must not be named",
		},
		"the hub itself": {
			change: func(o *idp.Options) { o.UsernamePrefix = "-" },
			user:   openid.User{Subject: "ichor-hub"}, refusal: "must not be named",
		},
		"group of Kubernetes": {
			change: func(o *idp.Options) { o.UsernamePrefix, o.GroupsPrefix = "-", "" },
			user:   openid.User{Claims: map[string]any{"groups": []string{"team", "system:masters"}}}, refusal: "must not be named",
		},
		"one group": {
			change: func(o *idp.Options) { o.UsernamePrefix, o.GroupsPrefix = "-", "" },
			user:   openid.User{Claims: map[string]any{"groups": "team"}}, is: "subject-1", groups: []string{"team", "system:authenticated"},
		},
		"groups that are none": {
			change: func(*idp.Options) {},
			user:   openid.User{Claims: map[string]any{"groups": []any{"team", 7}}}, refusal: "want names of groups",
		},
		"claim that is missing": {change: func(o *idp.Options) { o.UsernameClaim = "upn" }, refusal: `claim "upn"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.provider.SetUser(c.user)
			token := w.cli(openid.CLIClient)
			hub := w.replica(func(o *methods.Options) {
				oidc := *o.OIDC
				c.change(&oidc)
				o.OIDC = &oidc
			})
			recorder := httptest.NewRecorder()
			hub.ServeHTTP(recorder, w.request(ichorv1alpha1connect.HubServiceGetSessionProcedure, bearer(token.Bearer)))
			who, said := w.whoIn(answer{Status: recorder.Code, Body: recorder.Body.String()})
			if c.refusal != "" {
				w.Expect(said.Status).To(Equal(http.StatusUnauthorized))
				w.Expect(said.Body).To(ContainSubstring(strings.ReplaceAll(c.refusal, `"`, `\"`)))
				return
			}
			w.Expect(who.GetUser()).To(Equal(c.is))
			if c.groups != nil {
				w.Expect(who.GetGroups()).To(Equal(c.groups))
			}
		})
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*methods.Options){
		"want https":      func(o *methods.Options) { o.OIDC.Issuer = "http://id.example.com" },
		"client ID":       func(o *methods.Options) { o.OIDC.ClientID = "" },
		"openid":          func(o *methods.Options) { o.OIDC.Scopes = []string{"email"} },
		"external URL":    func(o *methods.Options) { o.ExternalURL = "http://ichor.example.com" },
		"session key":     func(o *methods.Options) { o.Keys = session.Keys{} },
		"want 1m0s to 24": func(o *methods.Options) { o.Lifetime = 48 * time.Hour },
	} {
		o, oidc := w.options, *w.options.OIDC
		o.OIDC = &oidc
		change(&o)
		_, err := methods.New(o)
		w.Expect(err).To(MatchError(ContainSubstring(name)))
	}
}

// leave begins to sign in, and returns where the provider sends the browser back to.
func (w *world) leave(b *http.Client) *url.URL {
	w.t.Helper()
	var back *url.URL
	follower := *b
	follower.CheckRedirect = func(next *http.Request, _ []*http.Request) error {
		if next.URL.Path == idp.CallbackPath {
			back = next.URL
			return http.ErrUseLastResponse
		}
		return nil
	}
	w.get(&follower, idp.LoginPath)
	w.Expect(back).NotTo(BeNil())
	return back
}
