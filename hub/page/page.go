// SPDX-License-Identifier: Apache-2.0

// Package page serves the hub's page to browsers.
package page

import (
	"bytes"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

// index is what a browser gets for every address that is one of the page's own.
const index = "index.html"

// assets is where files are whose names change with their content.
const assets = "assets/"

// encodings are those that files lie beside in, the smallest first.
var encodings = []struct{ name, suffix string }{{"br", ".br"}, {"gzip", ".gz"}}

// types are those of the files of a page. What the system knows is not asked: it may be wrong, or missing.
var types = map[string]string{
	".css":  "text/css; charset=utf-8",
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".json": "application/json",
	".svg":  "image/svg+xml",
}

// Handler serves the files of a page, or nil if there is none to serve. It holds all of them in memory, as the binary does.
func Handler(files fs.FS) (http.Handler, error) {
	p := &page{files: map[string]file{}}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || hidden(name) {
			return err
		}
		return p.read(files, name)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the files of the page: %w", err)
	}
	if _, built := p.files[index]; !built {
		return nil, nil
	}
	return p, nil
}

// page are the files of a page.
type page struct{ files map[string]file }

// file is a file in each encoding that there is; the empty one is the file itself.
type file map[string][]byte

// read takes a file in.
func (p *page) read(files fs.FS, name string) error {
	content, err := fs.ReadFile(files, name)
	if err != nil {
		return err
	}
	encoding := ""
	for _, each := range encodings {
		if plain, cut := strings.CutSuffix(name, each.suffix); cut {
			name, encoding = plain, each.name
		}
	}
	if p.files[name] == nil {
		p.files[name] = file{}
	}
	p.files[name][encoding] = content
	return nil
}

// ServeHTTP implements http.Handler.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	name, found := p.find(r.URL.Path)
	if !found {
		http.NotFound(w, r)
		return
	}
	serve(w, r, name, p.files[name])
}

// find is the file of a path. Whatever does not look like a file is an address of the page, which knows itself what is there. A file that is
// missing is not: a browser would take the page for a script.
func (p *page) find(asked string) (name string, found bool) {
	name = strings.TrimPrefix(path.Clean("/"+asked), "/")
	if _, found = p.files[name]; found && path.Ext(name) != "" {
		return name, true
	}
	if strings.HasPrefix(name, assets) || types[path.Ext(name)] != "" || hidden(name) {
		return "", false
	}
	return index, true
}

// hidden says whether a file is nobody's business.
func hidden(name string) bool { return strings.HasPrefix(path.Base("/"+name), ".") }

// serve writes a file in the smallest encoding that the browser takes.
func serve(w http.ResponseWriter, r *http.Request, name string, f file) {
	header := w.Header()
	content, encoding := f[""], ""
	for _, each := range encodings {
		if encoded, there := f[each.name]; there && accepts(r, each.name) {
			content, encoding = encoded, each.name
			break
		}
	}
	header.Set("Content-Type", contentType(name))
	header.Set("Vary", "Accept-Encoding")
	header.Set("Cache-Control", "no-cache")
	if strings.HasPrefix(name, assets) {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if encoding != "" {
		header.Set("Content-Encoding", encoding)
		header.Set("Content-Length", strconv.Itoa(len(content)))
	}
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
}

// contentType is the type of a file.
func contentType(name string) string {
	extension := path.Ext(name)
	if known := types[extension]; known != "" {
		return known
	}
	if guessed := mime.TypeByExtension(extension); guessed != "" {
		return guessed
	}
	return "application/octet-stream"
}

// accepts says whether a browser takes an encoding. One that it weighs with zero it does not.
func accepts(r *http.Request, encoding string) bool {
	for _, part := range strings.Split(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, parameters, _ := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(name), encoding) {
			continue
		}
		weight, weighed := strings.CutPrefix(strings.ReplaceAll(parameters, " ", ""), "q=")
		value, err := strconv.ParseFloat(weight, 64)
		return !weighed || (err == nil && value > 0)
	}
	return false
}
