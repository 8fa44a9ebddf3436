// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"html/template"
	"net/http"
	"strings"
)

var sorry = template.Must(template.New("sorry").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Ichor hub</title>
<main><h1>You are not signed in</h1><p>{{.}}</p><p><a href="/">Back to the hub</a></p></main>
</html>
`))

// Sorry tells somebody why they were not signed in. A person with a browser gets a page that leads on, everything else the words alone.
func Sorry(w http.ResponseWriter, r *http.Request, message string, status int) {
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Error(w, message, status)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = sorry.Execute(w, message) // Whoever asked is gone if it fails.
}
