// SPDX-License-Identifier: Apache-2.0

// Package server serves the hub to the network: its services, who signs in, the page, and how the hub is.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"

	"ichor.maesh.dev/hub/hub/server/routes"
)

const (
	// headerTimeout bounds how long the head of a request may take, idleTimeout how long a connection may be without one.
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute

	// pingAfter is when the hub asks a silent connection of HTTP/2 whether anybody is there, pingTimeout how long that may take, and
	// writeTimeout how long a client may take nothing at all of what it asked for.
	pingAfter    = 30 * time.Second
	pingTimeout  = 15 * time.Second
	writeTimeout = 30 * time.Second

	// maxHeader is how large the head of a request may be. Tokens of identity providers may be large, and so may requests be that are GET.
	maxHeader = 128 << 10
)

// usual bounds leave time for a slow line, and less than a hub has for its end. Whoever sends slower wants connections to be used up.
var usual = bounds{body: 30 * time.Second, read: time.Minute, grace: 5 * time.Second, streams: 100}

// Certificates are what the server shows to clients. They may change while it runs.
type Certificates interface {
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)

	// Start keeps them current until its context ends.
	Start(context.Context) error
}

// Options say what to serve, and where.
type Options struct {
	// Services answer.
	Services routes.Services

	// Calls are applied to every call of a service, such as by the audit. The first is the outermost.
	Calls []connect.HandlerOption

	// Listener is where connections come in. Run closes it.
	Listener net.Listener

	// Certificates serve HTTPS; nil serves plain HTTP, which is for a loopback address alone.
	Certificates Certificates

	// ExternalURL is how browsers know the hub, if that differs from how it is asked for; nil if it does not.
	ExternalURL *url.URL

	// Guard finds out who calls, and lets nobody else through to the services; nil lets everybody through as nobody.
	Guard func(http.Handler) http.Handler

	// Auth answers everything below /auth/, where people sign in; nil answers nothing there.
	Auth http.Handler

	// UI answers what nothing else does; nil serves a page that says that there is none.
	UI http.Handler

	// Ready are what must hold before anybody should be sent here.
	Ready []Check

	// Log hears of every call at level debug, and of panics.
	Log logr.Logger
}

// Server serves a hub.
type Server struct {
	options Options
	http    *http.Server
	streams streams
	ending  atomic.Bool
	bounds  bounds
}

// bounds are how long things may take, and how many there may be.
type bounds struct {
	body    time.Duration // A request, to arrive.
	read    time.Duration // An answer, to be read on by whoever asked.
	grace   time.Duration // Calls that are under way when the hub ends.
	streams int           // Streams that one caller has open.
}

// New prepares a server. It listens already, but nobody answers before Run.
func New(o Options) (*Server, error) { return newServer(o, usual) }

func newServer(o Options, b bounds) (*Server, error) {
	s := &Server{options: o, bounds: b, streams: streams{most: b.streams}}
	handler, err := secure(s.mux(), o.ExternalURL)
	if err != nil {
		return nil, err
	}
	s.http = &http.Server{
		Handler:           inTime(handler, b),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		Protocols:         protocols(o.Certificates != nil),
		HTTP2:             &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: writeTimeout},
		ErrorLog:          quiet(o.Log),
	}
	return s, nil
}

// protocols are those that clients may speak. gRPC needs HTTP/2, which nothing but TLS can agree on: without, clients have to know.
func protocols(encrypted bool) *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(true)
	p.SetHTTP2(encrypted)
	p.SetUnencryptedHTTP2(!encrypted)
	return p
}

// mux is what is served under which path.
func (s *Server) mux() *http.ServeMux {
	o := s.options
	ready := &readiness{checks: append([]Check{{Name: "running", Holds: s.running}}, o.Ready...), log: o.Log, now: time.Now}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", alive)
	mux.Handle("GET /readyz", ready)
	calls := unkept(s.calls(ready))
	for _, name := range names() {
		mux.Handle("/"+name+"/", calls)
	}
	if o.Auth != nil {
		mux.Handle("/auth/", o.Auth)
	}
	if o.UI == nil {
		o.UI = noPage()
	}
	mux.Handle("/", o.UI)
	return mux
}

// names are the names of everything that is called: the hub's own services, and those about services.
func names() []string {
	return append(routes.Names(), grpchealth.HealthV1ServiceName, grpcreflect.ReflectV1ServiceName, grpcreflect.ReflectV1AlphaServiceName)
}

// calls answers calls, behind the guard.
func (s *Server) calls(ready *readiness) http.Handler {
	o := s.options
	observed := observer{log: o.Log.WithName("access"), now: time.Now}
	every := connect.WithInterceptors(observed, &s.streams)
	mux := http.NewServeMux()
	routes.Mount(mux, o.Services, o.Log, append([]connect.HandlerOption{every}, o.Calls...)...)
	mux.Handle(grpchealth.NewHandler(ready, every))
	reflector := grpcreflect.NewStaticReflector(append(routes.Names(), grpchealth.HealthV1ServiceName)...)
	mux.Handle(grpcreflect.NewHandlerV1(reflector, every))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(reflector, every))
	if o.Guard == nil {
		return mux
	}
	return observed.guarded(mux, o.Guard)
}

// running is the first of what must hold.
func (s *Server) running(context.Context) error {
	if s.ending.Load() {
		return errStopping
	}
	return nil
}

// URL is where the server is, for a client on this machine.
func (s *Server) URL() string {
	scheme := "https"
	if s.options.Certificates == nil {
		scheme = "http"
	}
	return (&url.URL{Scheme: scheme, Host: s.options.Listener.Addr().String()}).String()
}

// Run serves until ctx ends. Then open streams end, and calls that are under way may finish for some seconds.
func (s *Server) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if s.options.Certificates != nil {
		group.Go(func() error { return s.options.Certificates.Start(ctx) })
	}
	group.Go(func() error {
		if err := s.serve(); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving on %s: %w", s.options.Listener.Addr(), err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return s.shutDown()
	})
	return group.Wait()
}

func (s *Server) serve() error {
	if s.options.Certificates == nil {
		return s.http.Serve(s.options.Listener)
	}
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: s.options.Certificates.GetCertificate,
	}
	return s.http.Serve(tls.NewListener(s.options.Listener, config))
}

// shutDown ends the server. What is not over in time is cut off.
func (s *Server) shutDown() error {
	s.ending.Store(true)
	s.streams.end()
	ctx, cancel := context.WithTimeout(context.Background(), s.bounds.grace)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		s.options.Log.Info("Cutting off calls that take too long to finish", "grace", s.bounds.grace.String())
		return s.http.Close()
	}
	return err
}
