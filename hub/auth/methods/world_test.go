// SPDX-License-Identifier: Apache-2.0

package methods_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"

	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/auth/idp"
	"ichor.maesh.dev/hub/hub/auth/link"
	"ichor.maesh.dev/hub/hub/auth/methods"
	"ichor.maesh.dev/hub/hub/auth/session"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
	"ichor.maesh.dev/hub/test/openid"
)

// world is a hub with every way to sign in, an identity provider and a management API.
type world struct {
	*WithT

	t        *testing.T
	hub      *httptest.Server
	provider *openid.Provider
	api      *api
	links    link.Store
	service  *service
	clock    *clock
	options  methods.Options
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		WithT: NewWithT(t), t: t, api: newAPI(t), links: link.Store{Dir: t.TempDir()}, service: &service{},
		clock: &clock{now: time.Now()}, hub: httptest.NewUnstartedServer(nil),
	}
	at := "https://" + w.hub.Listener.Addr().String()
	w.provider = openid.Start(t, at+idp.CallbackPath)
	w.options = methods.Options{
		Config: &rest.Config{Host: w.api.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, ExternalURL: at, Keys: keys(t, 'k'), Now: w.clock.Now, Recheck: 20 * time.Millisecond,
		OIDC: &idp.Options{
			Issuer: w.provider.URL, ClientID: openid.HubClient, ClientSecret: openid.HubSecret, CLIClientID: openid.CLIClient,
			GroupsClaim: "groups", GroupsPrefix: "oidc:",
		},
		Link: &link.Options{Store: w.links},
	}
	w.hub.Config.Handler = w.handler(w.options)
	w.hub.EnableHTTP2 = true
	w.hub.StartTLS()
	t.Cleanup(w.hub.Close)
	return w
}

// handler is a hub as it is served.
func (w *world) handler(o methods.Options) http.Handler {
	w.t.Helper()
	m, err := methods.New(o)
	w.Expect(err).NotTo(HaveOccurred())
	services := http.NewServeMux()
	services.Handle(ichorv1alpha1connect.NewHubServiceHandler(w.service))
	services.Handle(ichorv1alpha1connect.NewOperationServiceHandler(w.service))
	mux := http.NewServeMux()
	mux.Handle("/auth/", m.Handler())
	guarded := m.Guard(services)
	mux.Handle("/", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/ichor.v1alpha1.") {
			guarded.ServeHTTP(rw, r)
			return
		}
		_, _ = io.WriteString(rw, "page "+r.URL.RequestURI())
	}))
	return mux
}

// replica is another hub on the same address, which only differs in its options. Nothing listens: requests are handed to it.
func (w *world) replica(change func(*methods.Options)) http.Handler {
	o := w.options
	change(&o)
	return w.handler(o)
}

// browser is a client that keeps cookies and follows wherever it is sent.
func (w *world) browser() *http.Client {
	jar, err := cookiejar.New(nil)
	w.Expect(err).NotTo(HaveOccurred())
	c := *w.hub.Client()
	c.Jar = jar
	return &c
}

// signedIn is a browser whose user has signed in with the identity provider.
func (w *world) signedIn() *http.Client {
	w.t.Helper()
	b := w.browser()
	w.Expect(w.get(b, idp.LoginPath)).To(Equal(answer{Status: http.StatusOK, Body: "page /"}))
	return b
}

func (w *world) url(path string) string { return w.hub.URL + path }

// answer is what a hub said.
type answer struct {
	Status int
	Body   string
}

func (w *world) get(c *http.Client, path string) answer {
	w.t.Helper()
	at := path
	if strings.HasPrefix(path, "/") {
		at = w.url(path)
	}
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, at, http.NoBody)
	w.Expect(err).NotTo(HaveOccurred())
	return w.do(c, request)
}

func (w *world) do(c *http.Client, request *http.Request) answer {
	w.t.Helper()
	response, err := c.Do(request)
	w.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close() //nolint:errcheck // It has been read.
	body, err := io.ReadAll(response.Body)
	w.Expect(err).NotTo(HaveOccurred())
	return answer{Status: response.StatusCode, Body: string(body)}
}

// call is a call as a page of the hub makes it, in JSON; change may make it another's.
func (w *world) call(c *http.Client, procedure string, change ...func(*http.Request)) answer {
	w.t.Helper()
	return w.do(c, w.request(procedure, change...))
}

func (w *world) request(procedure string, change ...func(*http.Request)) *http.Request {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url(procedure), strings.NewReader("{}"))
	w.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Sec-Fetch-Site", "same-origin")
	request.Header.Set("Origin", w.hub.URL)
	for _, f := range change {
		f(request)
	}
	return request
}

// who asks a hub who calls.
func (w *world) who(c *http.Client, change ...func(*http.Request)) (*pb.GetSessionResponse, answer) {
	w.t.Helper()
	return w.whoIn(w.call(c, ichorv1alpha1connect.HubServiceGetSessionProcedure, change...))
}

func (w *world) whoIn(a answer) (*pb.GetSessionResponse, answer) {
	w.t.Helper()
	who := &pb.GetSessionResponse{}
	if a.Status == http.StatusOK {
		var fields struct {
			User, Method string
			Groups       []string
		}
		w.Expect(json.Unmarshal([]byte(a.Body), &fields)).To(Succeed())
		who.User, who.Method, who.Groups = fields.User, fields.Method, fields.Groups
	}
	return who, a
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func without(name string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Del(name) }
}

// cookies are those that a browser sends to the hub.
func (w *world) cookies(c *http.Client) []*http.Cookie {
	at, err := url.Parse(w.hub.URL)
	w.Expect(err).NotTo(HaveOccurred())
	return c.Jar.Cookies(at)
}

// sessionCookie is the cookie of a browser's session.
func (w *world) sessionCookie(c *http.Client) *http.Cookie {
	w.t.Helper()
	for _, cookie := range w.cookies(c) {
		if cookie.Name == session.CookieName {
			return cookie
		}
	}
	w.t.Fatal("the browser has no session")
	return nil
}

func withCookie(cookie *http.Cookie, value string) func(*http.Request) {
	return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookie.Name, Value: value}) }
}

func keys(t *testing.T, fill ...byte) session.Keys {
	t.Helper()
	secrets := make([][]byte, 0, len(fill))
	for _, b := range fill {
		secrets = append(secrets, bytes.Repeat([]byte{b}, 32))
	}
	k, err := session.NewKeys(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// service says who calls, and counts what would have changed something.
type service struct {
	ichorv1alpha1connect.UnimplementedHubServiceHandler
	ichorv1alpha1connect.UnimplementedOperationServiceHandler

	writes atomic.Int32
	last   atomic.Pointer[auth.Caller]
}

func (s *service) GetHub(context.Context, *connect.Request[pb.GetHubRequest]) (*connect.Response[pb.GetHubResponse], error) {
	return connect.NewResponse(&pb.GetHubResponse{Version: "v1"}), nil
}

func (s *service) GetSession(ctx context.Context, _ *connect.Request[pb.GetSessionRequest]) (*connect.Response[pb.GetSessionResponse], error) {
	caller, ok := auth.From(ctx)
	if !ok {
		return nil, connect.NewError(connect.CodeInternal, nil)
	}
	s.last.Store(&caller)
	return connect.NewResponse(&pb.GetSessionResponse{User: caller.Name, Groups: caller.Groups, Method: string(caller.Method)}), nil
}

func (s *service) CreateOperation(context.Context, *connect.Request[pb.CreateOperationRequest]) (*connect.Response[pb.CreateOperationResponse], error) {
	s.writes.Add(1)
	return connect.NewResponse(&pb.CreateOperationResponse{}), nil
}

func (s *service) WatchOperations(ctx context.Context, _ *connect.Request[pb.WatchOperationsRequest], stream *connect.ServerStream[pb.WatchOperationsResponse]) error {
	if err := stream.Send(&pb.WatchOperationsResponse{}); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// api is a management API that reviews tokens, and counts that.
type api struct {
	*httptest.Server

	mu      sync.Mutex
	users   map[string]authenticationv1.TokenReviewStatus
	reviews int
	down    bool
	missed  int // Reviews that were asked for while it was down.
}

func newAPI(t *testing.T) *api {
	a := &api{users: map[string]authenticationv1.TokenReviewStatus{}}
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(a.Server.Close)
	return a
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down {
		a.missed++
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || r.URL.Path != "/apis/authentication.k8s.io/v1/tokenreviews" {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	a.reviews++
	review.Status = a.users[review.Spec.Token]
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(review) //nolint:errchkjson // The hub says what it got.
}

// know makes a token that of a user, or of nobody.
func (a *api) know(token string, status authenticationv1.TokenReviewStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.users[token] = status
}

func (a *api) setDown(down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = down
}

func (a *api) missedAny() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.missed > 0
}

func (a *api) asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reviews
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(by)
}
