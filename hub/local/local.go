// SPDX-License-Identifier: Apache-2.0

// Package local runs the hub's service in the process of its caller, as whoever a kubeconfig names: for management APIs that no hub serves.
package local

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"ichor.maesh.dev/hub/hub/audit"
	"ichor.maesh.dev/hub/hub/server/routes"
	"ichor.maesh.dev/hub/hub/service"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// url is where the service is, for its own client alone.
const url = "http://ichor.local"

// Options say whose service it is.
type Options struct {
	// Config is the access to the management API.
	Config *rest.Config

	// Namespaces are those that are looked at where a call names none; empty is every namespace.
	Namespaces []string

	// Version is what the service says that it is.
	Version string

	// Client is what the audit says that has called, such as "ichor v0.3.0".
	Client string

	// Log hears of defects; its zero value discards.
	Log logr.Logger
}

// Conn is a connection to a service in this process.
type Conn struct {
	backend *backend // Set by Dial.
	memory  *memory
	client  *http.Client
	server  *http.Server
	served  chan error
	once    sync.Once
	ended   error // What Close returns.
}

// Dial starts the service. Nothing is asked of the management API before the first call.
func Dial(o Options) (*Conn, error) {
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	b, err := newBackend(o)
	if err != nil {
		return nil, err
	}
	c := Serve(newService(b, o), o.Log, b.callOptions()...)
	c.backend = b
	return c, nil
}

// Serve serves any services in memory.
func Serve(services routes.Services, log logr.Logger, options ...connect.HandlerOption) *Conn {
	mux := http.NewServeMux()
	routes.Mount(mux, services, log, append(options, connect.WithCompression("gzip", nil, nil))...) // Nothing leaves the process.
	c := &Conn{memory: newMemory(), served: make(chan error, 1)}
	c.client = c.memory.client()
	c.server = &http.Server{Handler: mux, Protocols: onlyHTTP2(), ReadHeaderTimeout: time.Minute}
	go func() { c.served <- c.server.Serve(c.memory) }()
	return c
}

func newService(b *backend, o Options) *service.Server {
	return &service.Server{Backend: b, Now: time.Now, Hub: &pb.GetHubResponse{Version: o.Version}}
}

// options are what is done with every call.
func (b *backend) callOptions() []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithInterceptors(identity{b}, audit.Interceptor(audit.NewClientRecorder(b.client, b.options.Log.WithName("audit")))),
	}
}

// HTTPClient speaks to the service: HTTP/2 over a connection in memory.
func (c *Conn) HTTPClient() *http.Client { return c.client }

// URL is the base of the service's URLs.
func (c *Conn) URL() string { return url }

// Close ends the service with all that is open. More calls do nothing more.
func (c *Conn) Close() error {
	c.once.Do(func() { c.ended = c.close() })
	return c.ended
}

func (c *Conn) close() error {
	if c.backend != nil {
		c.backend.close()
	}
	err := c.server.Close()
	c.client.CloseIdleConnections()
	if served := <-c.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serving in memory: %w", served))
	}
	return err
}

// identity finds out who calls before anything else asks.
type identity struct{ backend *backend }

// WrapUnary implements connect.Interceptor.
func (i identity) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, err := i.backend.identify(ctx, request.Spec())
		if err != nil {
			return nil, err
		}
		return next(ctx, request)
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (i identity) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (i identity) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		ctx, err := i.backend.identify(ctx, conn.Spec())
		if err != nil {
			return err
		}
		return next(ctx, conn)
	}
}
