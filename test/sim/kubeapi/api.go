// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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
	// Certificate is the servers' certificate, and Spoiled makes one that has a problem; Clients is the CA of their clients.
	Certificate tls.Certificate
	Spoiled     func(problem string) (tls.Certificate, error)
	Clients     *x509.CertPool
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

// API is the API server of one cluster; all its control planes serve it.
type API struct {
	Options
	store  *Store
	server *http.Server
}

// New makes the API of a store.
func New(store *Store, o Options) *API {
	a := &API{Options: o, store: store}
	certificates := &tlsfault.Server{
		Config: &tls.Config{
			MinVersion:   tls.VersionTLS12,
			Certificates: []tls.Certificate{o.Certificate},
			ClientCAs:    o.Clients,
			ClientAuth:   tls.RequestClientCert, // Whoever shows none, or one of another CA, hears of it in HTTP.
			NextProtos:   []string{"h2", "http/1.1"},
		},
		Faults: o.Faults, API: "kube", Spoiled: o.Spoiled,
		Site: func(hello *tls.ClientHelloInfo) fault.Site { return o.Site(hello.Conn.LocalAddr()) },
	}
	a.server = &http.Server{
		Handler:           a,
		ReadHeaderTimeout: 30 * time.Second,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{o.Certificate},
			GetConfigForClient: certificates.ConfigForClient, NextProtos: []string{"h2", "http/1.1"},
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
	if a.serveStatic(w, r) {
		return
	}
	if !a.authenticated(r) {
		writeError(w, r, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	if a.serveMetrics(w, r) || a.serveDeprecated(w, r) || a.serveDiscovery(w, r) {
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

// authenticated says whether the client showed a certificate of the cluster's CA, and none that was ordered to be refused.
func (a *API) authenticated(r *http.Request) bool {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	certificate := r.TLS.PeerCertificates[0]
	_, err := certificate.Verify(x509.VerifyOptions{Roots: a.Clients, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return err == nil && !tlsfault.Distrusted(a.Faults, a.Site(local), "kube", certificate)
}

// refused asks whether the request was ordered to fail.
func (a *API) refused(r *request) error {
	resource := r.resource.Plural
	if r.subresource != "" {
		resource += "/" + r.subresource
	}
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
			r.TLS.PeerCertificates[0].Subject.CommonName, verbs[r.Method], resource, r.resource.Group, r.namespace))
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

// backendKey is under what the context of a connection has its backend.
type backendKey struct{}

// version is that of the server which got the request.
func (a *API) version(r *http.Request) string {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	backend, _ := r.Context().Value(backendKey{}).(string)
	return a.Version(local, backend)
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
