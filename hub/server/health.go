// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"github.com/go-logr/logr"

	"ichor.maesh.dev/hub/hub/server/routes"
)

const (
	// readyFor is how long an answer about readiness is kept: anybody may ask, and each check may cost a request.
	readyFor = time.Second

	// readyTimeout bounds one look.
	readyTimeout = 2 * time.Second
)

// Check is something without which the hub has no answers.
type Check struct {
	// Name says what is checked.
	Name string

	// Holds returns an error that says why not.
	Holds func(context.Context) error
}

// readiness says whether all checks hold.
type readiness struct {
	checks []Check
	log    logr.Logger
	now    func() time.Time

	mu     sync.Mutex
	asked  time.Time
	failed []string
}

// look returns the names of the checks that fail.
func (r *readiness) look(ctx context.Context) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.asked.IsZero() && r.now().Sub(r.asked) < readyFor {
		return r.failed
	}
	// Whoever asks may go before the answer, which is kept for others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	var failed []string
	for _, check := range r.checks {
		if err := check.Holds(ctx); err != nil {
			failed = append(failed, check.Name)
			r.log.V(debugLevel).Info("Not ready", "check", check.Name, "reason", err.Error())
		}
	}
	r.failed, r.asked = failed, r.now()
	return failed
}

// ServeHTTP answers /readyz. It names what fails, but not why: anybody may ask.
func (r *readiness) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	failed := r.look(request.Context())
	plain(w, len(failed) == 0)
	for _, check := range r.checks {
		mark := "[+]%s ok\n"
		if slices.Contains(failed, check.Name) {
			mark = "[-]%s failed, see the log at level debug\n"
		}
		fmt.Fprintf(w, mark, check.Name)
	}
	if len(failed) == 0 {
		fmt.Fprintln(w, "ready")
	}
}

// Check implements grpchealth.Checker: every service is ready if the hub is.
func (r *readiness) Check(ctx context.Context, request *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if request.Service != "" && !slices.Contains(routes.Names(), request.Service) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("service %q: this hub has none of that name", request.Service))
	}
	if len(r.look(ctx)) > 0 {
		return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
	}
	return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
}

// alive answers /healthz: the process answers.
func alive(w http.ResponseWriter, _ *http.Request) {
	plain(w, true)
	fmt.Fprintln(w, "ok")
}

// plain begins an answer in plain text that nobody keeps.
func plain(w http.ResponseWriter, ok bool) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// errStopping is why a hub that ends is not ready.
var errStopping = errors.New("the hub is shutting down")
