// SPDX-License-Identifier: Apache-2.0

package page

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/ui"
)

// built is a page as it is built, in small.
var built = fstest.MapFS{
	".keep":                 {},
	"index.html":            {Data: []byte("the page")},
	"index.html.br":         {Data: []byte("the page, br")},
	"index.html.gz":         {Data: []byte("the page, gzip")},
	"favicon.svg":           {Data: []byte("<svg/>")},
	"assets/index-1.js":     {Data: []byte("script")},
	"assets/index-1.js.br":  {Data: []byte("script, br")},
	"assets/index-1.js.gz":  {Data: []byte("script, gzip")},
	"assets/index-1.css":    {Data: []byte("style")},
	"assets/index-1.css.gz": {Data: []byte("style, gzip")},
}

func ask(t *testing.T, method, path, encodings string) *httptest.ResponseRecorder {
	t.Helper()
	handler, err := Handler(built)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	r := httptest.NewRequest(method, path, http.NoBody)
	r.Header.Set("Accept-Encoding", encodings)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

func TestHandler(t *testing.T) {
	const forever, fresh = "public, max-age=31536000, immutable", "no-cache"
	for name, row := range map[string]struct {
		path, encodings                   string
		body, contentType, encoding, kept string
	}{
		"the page":                      {"/", "gzip, deflate, br", "the page, br", "text/html; charset=utf-8", "br", fresh},
		"an address of the page":        {"/clusters/retail/bravo", "gzip", "the page, gzip", "text/html; charset=utf-8", "gzip", fresh},
		"an address with a dot in it":   {"/clusters/retail/v1.13", "", "the page", "text/html; charset=utf-8", "", fresh},
		"no encoding":                   {"/assets/index-1.js", "", "script", "text/javascript; charset=utf-8", "", forever},
		"the smallest one":              {"/assets/index-1.js", "gzip, br", "script, br", "text/javascript; charset=utf-8", "br", forever},
		"one that is not taken":         {"/assets/index-1.js", "br;q=0, gzip;q=0.5", "script, gzip", "text/javascript; charset=utf-8", "gzip", forever},
		"one that there is not":         {"/assets/index-1.css", "br", "style", "text/css; charset=utf-8", "", forever},
		"a file that is not compressed": {"/favicon.svg", "br, gzip", "<svg/>", "image/svg+xml", "", fresh},
		"a way out":                     {"/../assets/../assets/index-1.css", "gzip", "style, gzip", "text/css; charset=utf-8", "gzip", forever},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := ask(t, http.MethodGet, row.path, row.encodings)
			g.Expect(w.Code).To(Equal(http.StatusOK))
			g.Expect(w.Body.String()).To(Equal(row.body))
			g.Expect(w.Header().Get("Content-Type")).To(Equal(row.contentType))
			g.Expect(w.Header().Get("Content-Encoding")).To(Equal(row.encoding))
			g.Expect(w.Header().Get("Cache-Control")).To(Equal(row.kept))
			g.Expect(w.Header().Get("Vary")).To(Equal("Accept-Encoding"))
		})
	}
}

func TestHandlerRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		method, path string
		code         int
	}{
		"a script of another version": {http.MethodGet, "/assets/index-0.js", http.StatusNotFound},
		"an asset without a type":     {http.MethodGet, "/assets/index", http.StatusNotFound},
		"a script elsewhere":          {http.MethodGet, "/clusters/x.js", http.StatusNotFound},
		"a hidden file":               {http.MethodGet, "/.keep", http.StatusNotFound},
		"a compressed copy by itself": {http.MethodGet, "/assets/index-1.js.br", http.StatusNotFound},
		"a write":                     {http.MethodPost, "/", http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(ask(t, row.method, row.path, "").Code).To(Equal(row.code))
		})
	}
}

func TestHandlerWithoutPage(t *testing.T) {
	g := NewWithT(t)
	handler, err := Handler(fstest.MapFS{".keep": {}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(handler).To(BeNil(), "the server says that there is none")
}

func TestFiles(t *testing.T) {
	g := NewWithT(t)
	_, err := Handler(ui.Files())
	g.Expect(err).NotTo(HaveOccurred())
}
