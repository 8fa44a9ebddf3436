// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
	"ichor.maesh.dev/hub/test/sim/link"
	"ichor.maesh.dev/hub/test/sim/tlsfault"
)

// Options say what a cluster's Kubernetes API needs besides its store.
type Options struct {
	// Cluster is the cluster's name.
	Cluster string
	// Version is the Kubernetes version, "v1.35.2", of the server at an address, or of a load balancer's backend.
	Version func(local net.Addr, backend string) string
	// Server is the one at an address, or a load balancer's backend.
	Server func(local net.Addr, backend string) (*Server, error)
	// Spoiled makes a certificate that has a problem, and is otherwise like the server's.
	Spoiled func(server *Server, problem string) (tls.Certificate, error)
	// Faults are asked for what goes wrong, and Site says at which node or load balancer an address is.
	Faults *fault.Registry
	Site   func(local net.Addr) fault.Site
	// Journal records every change.
	Journal *journal.Journal
	// Serving waits for the backing store, and fails when it does not serve in time.
	Serving func(context.Context) error
	// Healthy says whether the backing store serves now.
	Healthy func() bool
	// DeletePod begins the end of a pod; grace is nil when the client did not say.
	DeletePod func(pod Object, grace *int64)
	// Changed runs after each change that a client made.
	Changed func()
}

// API are the API servers of one cluster. What one control plane serves differs from the others' in certificates and keys alone.
type API struct {
	Options
	store  *Store
	server *http.Server
}

// New makes the API of a store.
func New(store *Store, o Options) *API {
	a := &API{Options: o, store: store}
	certificates := &tlsfault.Server{
		Config: a.tlsConfig, Faults: o.Faults, API: "kube",
		Spoiled: func(hello *tls.ClientHelloInfo, problem string) (tls.Certificate, error) {
			server, err := a.Server(hello.Conn.LocalAddr(), link.Backend(hello.Conn))
			if err != nil {
				return tls.Certificate{}, err
			}
			return o.Spoiled(server, problem)
		},
		Site: func(hello *tls.ClientHelloInfo) fault.Site { return o.Site(hello.Conn.LocalAddr()) },
	}
	a.server = &http.Server{
		Handler:           a,
		ReadHeaderTimeout: 30 * time.Second,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, GetConfigForClient: certificates.ConfigForClient, NextProtos: []string{"h2", "http/1.1"},
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, backendKey{}, link.Backend(c))
		},
		ErrorLog: discardLog, // Handshakes that faults cut off are not news.
	}
	return a
}

// Serve serves a listener until Close.
func (a *API) Serve(l net.Listener) error { return a.server.ServeTLS(l, "", "") }

// Close ends all listeners and connections.
func (a *API) Close() error { return a.server.Close() }

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r, known := a.authenticated(r)
	if presented := r.TLS != nil && len(r.TLS.PeerCertificates) > 0; !known && presented {
		// Who presents a certificate is not anonymous: one that does not verify is refused everywhere.
		writeError(w, r, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	if a.serveStatic(w, r) {
		return
	}
	if !known {
		writeError(w, r, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	if a.serveMetrics(w, r) || a.serveDeprecated(w, r) || a.serveDiscovery(w, r) || a.serveKeys(w, r) || a.serveTokenReview(w, r) {
		return
	}
	req, err := parse(r)
	if err != nil {
		writeError(w, r, err)
		return
	}
	if err := a.refused(req); err != nil {
		writeError(w, r, err)
		return
	}
	a.serveResource(w, req)
}

// refused asks whether the request was ordered to fail.
func (a *API) refused(r *request) error {
	resource := r.kindOfObject()
	f, refused := a.Faults.FireIf(fault.KubernetesRefused, fault.Site{Cluster: a.Cluster}, func(f fault.Fault) bool {
		return slices.Contains([]string{"*", r.Method}, f.Params[fault.ParamMethod]) &&
			slices.Contains([]string{"*", resource}, f.Params[fault.ParamResource])
	})
	if !refused {
		return nil
	}
	named := schema.GroupResource{Group: r.resource.Group, Resource: resource}
	switch f.Params[fault.ParamCode] {
	case "401":
		return apierrors.NewUnauthorized("Unauthorized")
	case "403":
		return apierrors.NewForbidden(named, r.name, fmt.Errorf("User %q cannot %s resource %q in API group %q in the namespace %q", //nolint:staticcheck // The real server's words.
			userOf(r.Request).Username, verbs[r.Method], resource, r.resource.Group, r.namespace))
	case "503":
		return apierrors.NewServiceUnavailable("apiserver is shutting down")
	}
	return apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
}

// verbs are what the authorizer calls the HTTP methods.
var verbs = map[string]string{
	http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// serveStatic serves what needs neither a user nor the store.
func (a *API) serveStatic(w http.ResponseWriter, r *http.Request) bool {
	switch r.URL.Path {
	case "/healthz", "/livez":
		_, _ = w.Write([]byte("ok"))
	case "/readyz":
		if !a.Healthy() {
			http.Error(w, "[-]etcd failed: reason withheld", http.StatusInternalServerError)
			break
		}
		_, _ = w.Write([]byte("ok"))
	case "/version":
		writeJSON(w, http.StatusOK, versionInfo(a.version(r)))
	default:
		return false
	}
	return true
}

// serveResource serves one request for a resource. Requests wait for the store as they would for etcd.
func (a *API) serveResource(w http.ResponseWriter, r *request) {
	if r.Method == http.MethodGet {
		a.serveRead(w, r)
		return
	}
	entry := a.record(r)
	status, obj, err := a.mutate(r)
	if err != nil {
		code, message := outcome(err)
		entry.End(strconv.Itoa(code), message)
		writeError(w, r.Request, err)
		return
	}
	entry.End(strconv.Itoa(status), "")
	writeObject(w, r, status, obj)
}

func (a *API) mutate(r *request) (int, any, error) {
	if err := a.Serving(r.Context()); err != nil {
		return 0, nil, apierrors.NewInternalError(err)
	}
	body, err := readBody(r.Request)
	if err != nil {
		return 0, nil, err
	}
	if err := a.admit(r, body); err != nil {
		return 0, nil, err
	}
	status, obj, err := a.write(r, body)
	if err == nil && !r.dryRun && a.Changed != nil {
		a.Changed()
	}
	return status, obj, err
}

func (a *API) serveRead(w http.ResponseWriter, r *request) {
	if err := a.Serving(r.Context()); err != nil {
		writeError(w, r.Request, apierrors.NewInternalError(err))
		return
	}
	switch {
	case r.subresource != "" && r.subresource != "status":
		writeError(w, r.Request, apierrors.NewMethodNotSupported(r.resource.GroupResource(), "get"))
	case r.watching():
		a.watch(w, r)
	case r.name != "":
		a.get(w, r)
	default:
		a.list(w, r)
	}
}

func (a *API) get(w http.ResponseWriter, r *request) {
	obj, err := a.store.Get(r.resource, r.namespace, r.name)
	if err == nil {
		err = a.readable(r, obj)
	}
	if err != nil {
		writeError(w, r.Request, err)
		return
	}
	writeObject(w, r, http.StatusOK, obj)
}

func (a *API) list(w http.ResponseWriter, r *request) {
	objects, version := a.store.List(r.resource, r.namespace)
	if err := a.readable(r, objects...); err != nil {
		writeError(w, r.Request, err)
		return
	}
	kept := objects[:0]
	for _, obj := range objects {
		if r.matches(obj) {
			kept = append(kept, obj)
		}
	}
	writeList(w, r, kept, version)
}
