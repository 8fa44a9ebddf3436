// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ichor.maesh.dev/hub/test/sim/journal"
)

// Options say what a cluster's Kubernetes API needs besides its store.
type Options struct {
	// Cluster is the cluster's name.
	Cluster string
	// Version is the Kubernetes version, "v1.35.2".
	Version string
	// Certificate is the servers' certificate, and Clients the CA of their clients.
	Certificate tls.Certificate
	Clients     *x509.CertPool
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

// API is the API server of one cluster; all its control planes serve it.
type API struct {
	Options
	store  *Store
	server *http.Server
}

// New makes the API of a store.
func New(store *Store, o Options) *API {
	a := &API{Options: o, store: store}
	a.server = &http.Server{
		Handler:           a,
		ReadHeaderTimeout: 30 * time.Second,
		TLSConfig: &tls.Config{
			MinVersion:   tls.VersionTLS12,
			Certificates: []tls.Certificate{o.Certificate},
			ClientCAs:    o.Clients,
			ClientAuth:   tls.VerifyClientCertIfGiven,
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
	if a.serveStatic(w, r) {
		return
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		writeError(w, r, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	if a.serveDiscovery(w, r) {
		return
	}
	req, err := parse(r)
	if err != nil {
		writeError(w, r, err)
		return
	}
	a.serveResource(w, req)
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
		writeJSON(w, http.StatusOK, a.versionInfo())
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
	if err != nil {
		writeError(w, r.Request, err)
		return
	}
	writeObject(w, r, http.StatusOK, obj)
}

func (a *API) list(w http.ResponseWriter, r *request) {
	objects, version := a.store.List(r.resource, r.namespace)
	kept := objects[:0]
	for _, obj := range objects {
		if r.matches(obj) {
			kept = append(kept, obj)
		}
	}
	writeList(w, r, kept, version)
}
