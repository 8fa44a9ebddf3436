// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"
	"net/url"
	"time"
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

// inTime bounds the time that requests may take to arrive, and that their answers may wait for somebody to read on. Streams are answers, which
// may be silent for as long as they like.
func inTime(next http.Handler, b bounds) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if r.Body != nil && r.Body != http.NoBody {
			if err := control.SetReadDeadline(time.Now().Add(b.body)); err == nil {
				r.Body = &timedBody{ReadCloser: r.Body, arrived: func() { _ = control.SetReadDeadline(time.Time{}) }}
			}
		}
		timed := &timedAnswer{ResponseWriter: w, control: control, most: b.read}
		timed.wait() // The answer before it on this connection has left its own bound.
		defer timed.hurry()
		next.ServeHTTP(timed, r)
	})
}

// unkept marks answers as nobody's to keep: they are one caller's, at one time.
func unkept(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}
