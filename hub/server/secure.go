// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"ichor.maesh.dev/hub/hub/server/routes"
)

// headers are on every answer: nothing of a hub belongs into a frame of another page, is guessed to be of another type, or tells other sites
// where somebody came from.
var headers = map[string]string{
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Content-Security-Policy":      "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'",
	"Referrer-Policy":              "same-origin",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
}

// secure puts in front of a handler what holds for every request.
func secure(next http.Handler, externalURL *url.URL) (http.Handler, error) {
	foreign := http.NewCrossOriginProtection()
	if externalURL != nil {
		// A proxy may ask for the hub by another name than browsers know it by.
		if err := foreign.AddTrustedOrigin(externalURL.Scheme + "://" + externalURL.Host); err != nil {
			return nil, fmt.Errorf("trusting the external URL %s: %w", externalURL, err)
		}
	}
	next = foreign.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		next.ServeHTTP(w, r)
	}), nil
}

// inTime bounds the time that the requests of the hub's services may take to arrive. Streams are answers, so it bounds none of them.
func inTime(next http.Handler, most time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody && ofService(r.URL.Path) {
			control := http.NewResponseController(w)
			if err := control.SetReadDeadline(time.Now().Add(most)); err == nil {
				r.Body = &timedBody{ReadCloser: r.Body, arrived: func() { _ = control.SetReadDeadline(time.Time{}) }}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// ofService says whether a path is that of a procedure of a hub.
func ofService(path string) bool {
	service, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	for _, name := range routes.Names() {
		if service == name {
			return true
		}
	}
	return false
}
