// SPDX-License-Identifier: Apache-2.0

package server

import "net/http"

// noPage is what a browser shows of a hub that has no page built in.
const hint = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Ichor hub</title>
<h1>Ichor hub</h1>
<p>This hub answers, but it was built without its page.</p>
<p>The command line works with it: <code>ichor login</code> followed by the address of this page. Scripts find the services under
<code>/ichor.v1alpha1.OperationService/</code> and its neighbours.</p>
</html>
`

// noPage stands in for the page.
func noPage() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write([]byte(hint)) // The browser may have gone.
	})
	return mux
}
