// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/server/routes"
)

// debugLevel is the level of the access log, one line for every call: what slog calls debug.
const debugLevel = 4

var (
	// requests counts calls that are over.
	requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ichor_service_requests_total",
		Help: "Calls of the hub's services that are over, by procedure and code of Connect.",
	}, []string{"procedure", "code"})

	// durations are how long calls took that are no streams.
	durations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "ichor_service_request_duration_seconds",
		Help:    "Time from the request to the answer, by procedure; streams are left out.",
		Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
	}, []string{"procedure"})

	// openStreams are those that are open now.
	openStreams = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ichor_service_open_streams",
		Help: "Streams that are open, by procedure.",
	}, []string{"procedure"})
)

func init() { metrics.Registry.MustRegister(requests, durations, openStreams) }

// observer counts calls, and writes the access log.
type observer struct {
	log logr.Logger
	now func() time.Time
}

// WrapUnary implements connect.Interceptor.
func (o observer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		start := o.now()
		response, err := next(ctx, request)
		took := o.now().Sub(start)
		durations.WithLabelValues(request.Spec().Procedure).Observe(took.Seconds())
		o.over(ctx, request.Spec(), request.Peer(), took, err)
		return response, err
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (o observer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (o observer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		start := o.now()
		open := openStreams.WithLabelValues(conn.Spec().Procedure)
		open.Inc()
		defer open.Dec()
		err := next(ctx, conn)
		o.over(ctx, conn.Spec(), conn.Peer(), o.now().Sub(start), err)
		return err
	}
}

// guarded puts a guard in front of calls, and counts those that it does not let through, which the interceptors do not see.
func (o observer) guarded(calls http.Handler, guard func(http.Handler) http.Handler) http.Handler {
	next := guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if passed, ok := r.Context().Value(passedKey{}).(*bool); ok {
			*passed = true
		}
		calls.ServeHTTP(w, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		passed, start, answer := new(bool), o.now(), &answer{ResponseWriter: w}
		next.ServeHTTP(answer, r.WithContext(context.WithValue(r.Context(), passedKey{}, passed)))
		if !*passed && known(r.URL.Path) {
			o.tell(r.URL.Path, answer.code(), o.now().Sub(start), "", r.RemoteAddr, "")
		}
	})
}

// passedKey is where a request carries whether the guard has let it through.
type passedKey struct{}

// known says whether a path is that of a procedure. Others must not become a series of the metrics each.
func known(path string) bool {
	service, method, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + method))
	_, procedure := found.(protoreflect.MethodDescriptor)
	return err == nil && procedure && slices.Contains(routes.Names(), service)
}

// answer notes the status that is answered with.
type answer struct {
	http.ResponseWriter

	status int
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// Flush implements http.Flusher, which streams need.
func (a *answer) Flush() { _ = http.NewResponseController(a.ResponseWriter).Flush() }

// Unwrap lets http.ResponseController through.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// code is the code of Connect that a refusal has, whatever its protocol.
func (a *answer) code() string {
	for _, header := range []string{"Grpc-Status", http.TrailerPrefix + "Grpc-Status"} {
		if status, err := strconv.ParseUint(a.Header().Get(header), 10, 32); err == nil {
			return connect.Code(status).String()
		}
	}
	switch a.status {
	case http.StatusUnauthorized:
		return connect.CodeUnauthenticated.String()
	case http.StatusForbidden:
		return connect.CodePermissionDenied.String()
	case http.StatusTooManyRequests:
		return connect.CodeResourceExhausted.String()
	case http.StatusServiceUnavailable:
		return connect.CodeUnavailable.String()
	}
	return connect.CodeUnknown.String()
}

// over tells of a call that is over.
func (o observer) over(ctx context.Context, spec connect.Spec, peer connect.Peer, took time.Duration, err error) {
	code := "ok"
	if err != nil {
		code = connect.CodeOf(err).String()
	}
	caller, _ := auth.From(ctx)
	o.tell(spec.Procedure, code, took, peer.Protocol, peer.Addr, caller.Name)
}

func (o observer) tell(procedure, code string, took time.Duration, protocol, source, user string) {
	requests.WithLabelValues(procedure, code).Inc()
	o.log.V(debugLevel).Info("Call", "procedure", procedure, "code", code, "duration", took.String(), "protocol", protocol, "source", source, "user", user)
}
