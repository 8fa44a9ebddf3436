// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/reflect/protoreflect"

	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/server/routes"
	"ichor.maesh.dev/hub/hub/standalone/pki"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

// soon bounds what takes milliseconds.
const soon = 10 * time.Second

// reply is an answer, read to its end.
type reply struct {
	status int
	header http.Header
	body   string
}

func do(t *testing.T, client *http.Client, method, url, body string, header http.Header) reply {
	t.Helper()
	g := NewWithT(t)
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	g.Expect(err).NotTo(HaveOccurred())
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := client.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close() //nolint:errcheck // It has been read.
	answer, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return reply{response.StatusCode, response.Header, string(answer)}
}

// One handler speaks Connect, gRPC, gRPC-Web and JSON, over the versions of HTTP that they need.
func TestEveryProtocolIsSpoken(t *testing.T) {
	w := run(t, Options{}, bounds{})
	for name, row := range map[string]struct {
		version int
		options []connect.ClientOption
	}{
		"Connect":          {1, nil},
		"Connect, HTTP/2":  {2, nil},
		"Connect, GET":     {1, []connect.ClientOption{connect.WithHTTPGet()}},
		"JSON":             {1, []connect.ClientOption{connect.WithProtoJSON()}},
		"gRPC":             {2, []connect.ClientOption{connect.WithGRPC()}},
		"gRPC-Web, HTTP/1": {1, []connect.ClientOption{connect.WithGRPCWeb()}},
		"compressed":       {2, []connect.ClientOption{connect.WithSendGzip()}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			hub := ichorv1alpha1connect.NewHubServiceClient(w.client(t, row.version), w.URL(), row.options...)
			response, err := hub.GetHub(t.Context(), connect.NewRequest(&pb.GetHubRequest{}))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.Msg.GetVersion()).To(Equal("v1.2.3"))
			operations := ichorv1alpha1connect.NewOperationServiceClient(w.client(t, row.version), w.URL(), row.options...)
			_, err = operations.DeleteOperation(t.Context(), connect.NewRequest(&pb.DeleteOperationRequest{}))
			g.Expect(connect.CodeOf(err)).To(Equal(connect.CodeUnimplemented), "errors have their codes: %v", err)
		})
	}
}

// Plain HTTP has gRPC, too, for a proxy on the same machine.
func TestPlainHTTPHasNoLess(t *testing.T) {
	g := NewWithT(t)
	w := (&world{ended: make(chan error, 1)}).start(t, Options{}, bounds{})
	g.Expect(w.URL()).To(HavePrefix("http://127.0.0.1:"))
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	hub := ichorv1alpha1connect.NewHubServiceClient(client, w.URL(), connect.WithGRPC())
	response, err := hub.GetHub(t.Context(), connect.NewRequest(&pb.GetHubRequest{}))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.Msg.GetVersion()).To(Equal("v1.2.3"))
}

func TestRequestsHaveTheirSize(t *testing.T) {
	w := run(t, Options{}, bounds{})
	const mebibyte = 1 << 20
	for name, options := range map[string][]connect.ClientOption{
		"Connect": nil,
		"JSON":    {connect.WithProtoJSON()},
		"gRPC":    {connect.WithGRPC()},
		"bomb":    {connect.WithSendGzip()}, // Small on the way, large when it is unpacked.
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			operations := w.operations(t, options...)
			clusters := ichorv1alpha1connect.NewClusterServiceClient(w.client(t, 2), w.URL(), options...)
			list := func(size int) error {
				_, err := operations.ListOperations(t.Context(), connect.NewRequest(&pb.ListOperationsRequest{Filter: &pb.OperationFilter{Text: strings.Repeat("x", size)}}))
				return err
			}
			load := func(size int) error {
				_, err := clusters.ImportCluster(t.Context(), connect.NewRequest(&pb.ImportClusterRequest{Kubeconfig: make([]byte, size)}))
				return err
			}
			g.Expect(list(mebibyte - 1000)).To(Succeed())
			g.Expect(connect.CodeOf(list(mebibyte + 1))).To(Equal(connect.CodeResourceExhausted))
			g.Expect(load(2 * mebibyte)).To(Succeed())
			g.Expect(connect.CodeOf(load(4*mebibyte + 1))).To(Equal(connect.CodeResourceExhausted))
		})
	}
}

func TestAPanicIsToldToTheLogAlone(t *testing.T) {
	g := NewWithT(t)
	var log bytes.Buffer
	services := &fake{get: func(context.Context) error { panic("the secret is 42") }}
	w := run(t, Options{Services: services, Log: logr.FromSlogHandler(slog.NewTextHandler(&log, nil))}, bounds{})
	operations := w.operations(t)
	_, err := operations.GetOperation(t.Context(), connect.NewRequest(&pb.GetOperationRequest{}))
	g.Expect(connect.CodeOf(err)).To(Equal(connect.CodeInternal))
	g.Expect(err.Error()).NotTo(ContainSubstring("42"))
	_, err = operations.ListOperations(t.Context(), connect.NewRequest(&pb.ListOperationsRequest{}))
	g.Expect(err).NotTo(HaveOccurred(), "the hub goes on")
	g.Expect(w.stop()).To(Succeed())
	g.Expect(log.String()).To(And(ContainSubstring("the secret is 42"), ContainSubstring("GetOperation"), ContainSubstring("server_test.go")))
}

func TestHealthIsServedInEveryWay(t *testing.T) {
	g := NewWithT(t)
	var ready atomic.Bool
	check := Check{Name: "fleet", Holds: func(context.Context) error {
		if ready.Load() {
			return nil
		}
		return errors.New("not all of it is known yet")
	}}
	w := run(t, Options{Ready: []Check{check}}, bounds{})
	health := func(service string) (string, error) {
		return callHealth(t, w, service)
	}
	answer := w.get(t, "/healthz")
	g.Expect(answer.status).To(Equal(http.StatusOK))
	g.Expect(answer.body).To(Equal("ok\n"), "it runs, ready or not")
	answer = w.get(t, "/readyz")
	g.Expect(answer.status).To(Equal(http.StatusServiceUnavailable))
	g.Expect(answer.body).To(And(ContainSubstring("[+]running ok"), ContainSubstring("[-]fleet failed"), Not(ContainSubstring("known yet"))))
	g.Expect(health("")).To(Equal("SERVING_STATUS_NOT_SERVING"))

	ready.Store(true)
	g.Eventually(func() int { return w.get(t, "/readyz").status }).WithTimeout(soon).Should(Equal(http.StatusOK))
	for _, service := range append(routes.Names(), "") {
		g.Expect(health(service)).To(Equal("SERVING_STATUS_SERVING"), service)
	}
	_, err := health("ichor.v1alpha1.NoService")
	g.Expect(connect.CodeOf(err)).To(Equal(connect.CodeNotFound))
}

// callHealth asks as a probe does that knows JSON.
func callHealth(t *testing.T, w *world, service string) (string, error) {
	t.Helper()
	body := do(t, w.client(t, 1), http.MethodPost, w.URL()+"/"+grpchealth.HealthV1ServiceName+"/Check", `{"service":"`+service+`"}`,
		http.Header{"Content-Type": {"application/json"}}).body
	if strings.Contains(body, `"code":"not_found"`) {
		return "", connect.NewError(connect.CodeNotFound, errors.New(body))
	}
	return strings.Trim(body[strings.Index(body, ":")+1:], `" }`), nil
}

func TestReflectionNamesEveryService(t *testing.T) {
	g := NewWithT(t)
	w := run(t, Options{}, bounds{})
	stream := grpcreflect.NewClient(w.client(t, 2), w.URL(), connect.WithGRPC()).NewStream(t.Context())
	defer stream.Close() //nolint:errcheck // The test is over.
	services, err := stream.ListServices()
	g.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, name := range services {
		names = append(names, string(name))
	}
	g.Expect(names).To(ConsistOf(append(routes.Names(), grpchealth.HealthV1ServiceName)))
	for _, name := range routes.Names() {
		files, err := stream.FileContainingSymbol(protoreflect.FullName(name))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(files).NotTo(BeEmpty())
	}
}

func TestAnswersKeepOtherSitesOut(t *testing.T) {
	g := NewWithT(t)
	external, err := url.Parse("https://hub.example")
	g.Expect(err).NotTo(HaveOccurred())
	w := run(t, Options{ExternalURL: external}, bounds{})
	for _, path := range []string{"/", "/healthz", "/ichor.v1alpha1.HubService/GetHub", "/nothing/here"} {
		header := w.get(t, path).header
		g.Expect(header.Get("X-Frame-Options")).To(Equal("DENY"), path)
		g.Expect(header.Get("X-Content-Type-Options")).To(Equal("nosniff"), path)
		g.Expect(header.Get("Referrer-Policy")).To(Equal("same-origin"), path)
		g.Expect(header.Get("Content-Security-Policy")).To(ContainSubstring("frame-ancestors 'none'"), path)
	}
	for name, row := range map[string]struct {
		header http.Header
		status int
	}{
		"no browser":            {http.Header{}, http.StatusOK},
		"the page itself":       {http.Header{"Sec-Fetch-Site": {"same-origin"}, "Origin": {w.URL()}}, http.StatusOK},
		"by its external name":  {http.Header{"Origin": {"https://hub.example"}}, http.StatusOK},
		"another site":          {http.Header{"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://evil.example"}}, http.StatusForbidden},
		"another site, old way": {http.Header{"Origin": {"https://evil.example"}}, http.StatusForbidden},
		"another port":          {http.Header{"Sec-Fetch-Site": {"same-site"}, "Origin": {"https://127.0.0.1:1"}}, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			row.header.Set("Content-Type", "application/json")
			answer := do(t, w.client(t, 1), http.MethodPost, w.URL()+"/ichor.v1alpha1.HubService/GetHub", "{}", row.header)
			NewWithT(t).Expect(answer.status).To(Equal(row.status), answer.body)
		})
	}
}

func TestPageIsWhatNothingElseAnswers(t *testing.T) {
	g := NewWithT(t)
	w := run(t, Options{Auth: http.NotFoundHandler()}, bounds{})
	answer := w.get(t, "/")
	g.Expect(answer.status).To(Equal(http.StatusOK))
	g.Expect(answer.body).To(ContainSubstring("built without its page"))
	g.Expect(w.get(t, "/clusters").status).To(Equal(http.StatusNotFound))

	named := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
	}
	w = run(t, Options{UI: named("page"), Auth: named("sign-in")}, bounds{})
	for path, want := range map[string]string{"/": "page", "/clusters/a": "page", "/auth/login": "sign-in", "/healthz": "ok\n"} {
		g.Expect(w.get(t, path).body).To(Equal(want), path)
	}
}

func TestCertificatesAreReadAgain(t *testing.T) {
	g := NewWithT(t)
	w := run(t, Options{}, bounds{})
	before, err := pki.Fingerprint(w.files.Certificate)
	g.Expect(err).NotTo(HaveOccurred())
	w.get(t, "/healthz")
	g.Expect(w.files.Ensure([]string{"127.0.0.1", "hub.example"}, time.Now())).To(Succeed())
	g.Expect(pki.Fingerprint(w.files.Certificate)).NotTo(Equal(before))
	fresh := w.client(t, 1) // It trusts the new certificate alone.
	g.Eventually(func() error {
		response, err := fresh.Get(w.URL() + "/healthz") //nolint:noctx // The test bounds it.
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}).WithTimeout(30 * time.Second).Should(Succeed())
}

// A hub that ends tells open streams to go elsewhere, and lets calls finish.
func TestShutdownIsInGoodOrder(t *testing.T) {
	for name, row := range map[string]struct {
		version int
		options []connect.ClientOption
	}{
		"Connect, HTTP/1": {1, nil},
		"Connect, HTTP/2": {2, nil},
		"gRPC":            {2, []connect.ClientOption{connect.WithGRPC()}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			entered, finish := make(chan struct{}), make(chan struct{})
			services := &fake{watch: untilTheEnd, get: func(context.Context) error { close(entered); <-finish; return nil }}
			w := run(t, Options{Services: services}, bounds{})
			operations := ichorv1alpha1connect.NewOperationServiceClient(w.client(t, row.version), w.URL(), row.options...)
			stream, err := operations.WatchOperations(t.Context(), connect.NewRequest(&pb.WatchOperationsRequest{}))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(stream.Receive()).To(BeTrue(), "%v", stream.Err())
			called := make(chan error, 1)
			go func() {
				_, err := operations.GetOperation(context.Background(), connect.NewRequest(&pb.GetOperationRequest{}))
				called <- err
			}()
			g.Eventually(entered).WithTimeout(soon).Should(BeClosed())

			w.cut()
			g.Expect(stream.Receive()).To(BeFalse())
			g.Expect(connect.CodeOf(stream.Err())).To(Equal(connect.CodeUnavailable), "%v", stream.Err())
			g.Expect(stream.Err()).To(MatchError(ContainSubstring("connect again")))
			close(finish)
			g.Eventually(called).WithTimeout(soon).Should(Receive(BeNil()))
			start := time.Now()
			g.Expect(w.stop()).To(Succeed())
			g.Expect(time.Since(start)).To(BeNumerically("<", usual.grace))
		})
	}
}

func TestShutdownIsBounded(t *testing.T) {
	g := NewWithT(t)
	entered, never := make(chan struct{}), make(chan struct{})
	defer close(never)
	services := &fake{get: func(context.Context) error { close(entered); <-never; return nil }}
	w := run(t, Options{Services: services}, altered(func(b *bounds) { b.grace = 100 * time.Millisecond }))
	go func() {
		_, _ = w.operations(t).GetOperation(context.Background(), connect.NewRequest(&pb.GetOperationRequest{}))
	}()
	g.Eventually(entered).WithTimeout(soon).Should(BeClosed())
	start := time.Now()
	g.Expect(w.stop()).To(Succeed())
	g.Expect(time.Since(start)).To(BeNumerically("<", soon))
}

// A stream is quiet for longer than a request may take to arrive.
func TestRequestsArriveInTimeAndStreamsLast(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run("HTTP/"+string(rune('0'+version)), func(t *testing.T) {
			g := NewWithT(t)
			const most = 200 * time.Millisecond
			services := &fake{watch: func(ctx context.Context, stream *connect.ServerStream[pb.WatchOperationsResponse]) error {
				for _, pause := range []time.Duration{0, 3 * most} {
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(pause):
					}
					if err := stream.Send(beat()); err != nil {
						return err
					}
				}
				return nil
			}}
			reads := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.ReadAll(r.Body); err != nil {
					http.Error(w, err.Error(), http.StatusBadRequest)
				}
			})
			w := run(t, Options{Services: services, Auth: reads, UI: reads}, altered(func(b *bounds) { b.body = most }))
			operations := ichorv1alpha1connect.NewOperationServiceClient(w.client(t, version), w.URL())
			stream, err := operations.WatchOperations(t.Context(), connect.NewRequest(&pb.WatchOperationsRequest{}))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(stream.Receive()).To(BeTrue())
			g.Expect(stream.Receive()).To(BeTrue(), "%v", stream.Err())
			g.Expect(stream.Receive()).To(BeFalse())
			g.Expect(stream.Err()).NotTo(HaveOccurred())

			// Whoever sends them, and whatever they ask for.
			for _, path := range []string{"/ichor.v1alpha1.HubService/GetHub", "/" + grpchealth.HealthV1ServiceName + "/Check", "/auth/link", "/page"} {
				g.Expect(w.sendSlowly(t, version, path)).NotTo(Equal(http.StatusOK), path)
			}
		})
	}
}

// sendSlowly begins a request, and never sends the rest. It returns the status of the answer, 0 if there is none.
func (w *world) sendSlowly(t *testing.T, version int, path string) int {
	t.Helper()
	g := NewWithT(t)
	slow, end := io.Pipe()
	defer end.Close() //nolint:errcheck // A pipe's end has no error.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.URL()+path, slow)
	g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	done := make(chan int, 1)
	go func() {
		status := 0
		if response, err := w.client(t, version).Do(request); err == nil {
			status = response.StatusCode
			_ = response.Body.Close()
		}
		done <- status
	}()
	_, err = end.Write([]byte("{"))
	g.Expect(err).NotTo(HaveOccurred())
	status := -1
	g.Eventually(done).WithTimeout(soon).Should(Receive(&status), path)
	return status
}

// Who asks and does not read on is dropped, by whichever protocol and whatever they asked for.
func TestAnswersAreReadInTime(t *testing.T) {
	for name, row := range map[string]struct {
		version int
		options []connect.ClientOption
	}{
		"Connect, HTTP/1": {1, nil},
		"Connect, HTTP/2": {2, nil},
		"gRPC":            {2, []connect.ClientOption{connect.WithGRPC()}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			ended := make(chan error, 1)
			services := &fake{watch: func(_ context.Context, stream *connect.ServerStream[pb.WatchOperationsResponse]) error {
				message := &pb.WatchOperationsResponse{ResumeToken: strings.Repeat("x", 1<<20)}
				for {
					if err := stream.Send(message); err != nil {
						ended <- err
						return err
					}
				}
			}}
			w := run(t, Options{Services: services}, altered(func(b *bounds) { b.read = 200 * time.Millisecond }))
			options := slices.Concat(row.options, []connect.ClientOption{connect.WithAcceptCompression("gzip", nil, nil)})
			operations := ichorv1alpha1connect.NewOperationServiceClient(w.client(t, row.version), w.URL(), options...)
			stream, err := operations.WatchOperations(t.Context(), connect.NewRequest(&pb.WatchOperationsRequest{}))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(stream.Receive()).To(BeTrue(), "%v", stream.Err())
			g.Eventually(ended).WithTimeout(soon).Should(Receive(HaveOccurred()))
			g.Expect(w.stop()).To(Succeed())
		})
	}
}

// Who reads in pauses that are longer than a piece may take has nothing cut off that was sent before, nor the next answer on the connection.
func TestQuietConnectionsAreKept(t *testing.T) {
	g := NewWithT(t)
	const most = 100 * time.Millisecond
	w := run(t, Options{}, altered(func(b *bounds) { b.read = most }))
	client := w.client(t, 1)
	var connections atomic.Int32
	trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{ConnectStart: func(string, string) { connections.Add(1) }})
	for range 2 {
		request, err := http.NewRequestWithContext(trace, http.MethodGet, w.URL()+"/healthz", http.NoBody)
		g.Expect(err).NotTo(HaveOccurred())
		response, err := client.Do(request)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = io.Copy(io.Discard, response.Body)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.Body.Close()).To(Succeed())
		<-time.After(3 * most)
	}
	g.Expect(connections.Load()).To(Equal(int32(1)))
}

func TestStreamsOfOneCallerAreBounded(t *testing.T) {
	g := NewWithT(t)
	guard := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(auth.With(r.Context(), auth.Caller{Name: r.Header.Get("Test-User")})))
		})
	}
	w := run(t, Options{Services: &fake{watch: untilTheEnd}, Guard: guard}, altered(func(b *bounds) { b.streams = 2 }))
	operations := w.operations(t)
	open := func(user string) (end func(), code string) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		request := connect.NewRequest(&pb.WatchOperationsRequest{})
		request.Header().Set("Test-User", user)
		stream, err := operations.WatchOperations(ctx, request)
		g.Expect(err).NotTo(HaveOccurred())
		if stream.Receive() {
			return cancel, ""
		}
		return cancel, stream.Err().Error()
	}
	end, code := open("ada")
	g.Expect(code).To(BeEmpty())
	_, code = open("ada")
	g.Expect(code).To(BeEmpty())
	_, code = open("ada")
	g.Expect(code).To(Equal(`resource_exhausted: user "ada" has 2 streams open: want at most 2; end one of them`))
	_, code = open("bob")
	g.Expect(code).To(BeEmpty(), "others have their own")
	end()
	g.Eventually(func() string { _, code := open("ada"); return code }).WithTimeout(soon).Should(BeEmpty(), "one of them has ended")
}

func TestAnswersOfServicesAreNotKept(t *testing.T) {
	g := NewWithT(t)
	w := run(t, Options{}, bounds{})
	for _, path := range []string{
		"/ichor.v1alpha1.HubService/GetHub?connect=v1&encoding=json&message={}", "/ichor.v1alpha1.HubService/GetHub?connect=v1&encoding=no",
		"/ichor.v1alpha1.OperationService/NoSuchThing",
	} {
		g.Expect(w.get(t, path).header.Get("Cache-Control")).To(Equal("no-store"), path)
	}
	g.Expect(w.get(t, "/ichor.v1alpha1.HubService/GetHub?connect=v1&encoding=json&message={}").status).To(Equal(http.StatusOK))
}
