// SPDX-License-Identifier: Apache-2.0

package idp

import (
	"net/url"
	"strings"
	"testing"
)

// FuzzReturn holds that a browser that is sent to a page stays with the hub, whatever the page was said to be. Browsers read addresses in
// their own way: they leave tabs and ends of lines out, and take backslashes for slashes.
func FuzzReturn(f *testing.F) {
	for _, seed := range []string{"", "/", "/clusters?name=c1#top", "//evil.example.com", "/\\evil.example.com", "/\t/evil.example.com", "https://evil.example.com", "/%2f/evil"} {
		f.Add(seed)
	}
	hub, err := url.Parse("https://hub.example.com/auth/callback")
	if err != nil {
		f.Fatal(err)
	}
	asBrowsersRead := strings.NewReplacer("\t", "", "\n", "", "\r", "", "\\", "/")
	f.Fuzz(func(t *testing.T, back string) {
		path, err := localPath(back)
		if err != nil {
			return
		}
		for _, read := range []string{path, asBrowsersRead.Replace(strings.TrimSpace(path))} {
			to, err := hub.Parse(read)
			if err != nil || to.Host != hub.Host || to.Scheme != hub.Scheme || strings.HasPrefix(read, "//") {
				t.Errorf("parameter %q leads to %v (%v)", back, to, err)
			}
		}
	})
}

// FuzzOwns holds that nothing that looks like a token of the provider makes more of it than a question.
func FuzzOwns(f *testing.F) {
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUuY29tIn0.")
	p := &Provider{options: Options{Issuer: "https://id.example.com"}}
	f.Fuzz(func(t *testing.T, token string) {
		if p.Owns(token) && strings.Count(token, ".") != 2 {
			t.Errorf("token %q has no three parts", token)
		}
	})
}
