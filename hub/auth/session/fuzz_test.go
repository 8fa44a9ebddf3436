// SPDX-License-Identifier: Apache-2.0

package session_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"ichor.maesh.dev/hub/hub/auth/session"
)

// sealed is the session of ada, as it was sealed once with the key of FuzzCookie, for the hour from its time.
const sealed = "Mt7VtuGCTSWDoWEzdHuPy6KjxgDU0Tkozdak1lNQswlEObWakpHvPnsi7SiEXvaG0kmpE-Kum71g-LX09gocUhcJbucDAaQyApyACC7TehCb1NDLjdxn"

// FuzzCookie holds that nobody gets in with a cookie that the hub has not sealed.
func FuzzCookie(f *testing.F) {
	keys, err := session.NewKeys(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		f.Fatal(err)
	}
	sessions := session.Sessions{Keys: keys, Lifetime: time.Hour, Now: func() time.Time { return time.Unix(1_800_000_000, 0) }}
	f.Add(sealed)
	f.Add(sealed[:len(sealed)-1])
	f.Add("")
	request := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	request.AddCookie(&http.Cookie{Name: session.CookieName, Value: sealed})
	if caller, found, err := sessions.FromCookie(request); !found || err != nil || caller.Name != "ada" {
		f.Fatalf("the session itself is not known: %v", err)
	}
	f.Fuzz(func(t *testing.T, value string) {
		request := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		request.Header.Set("Cookie", session.CookieName+"="+value)
		caller, found, err := sessions.FromCookie(request)
		if !found || err != nil {
			return
		}
		if cookie, err := request.Cookie(session.CookieName); err != nil || cookie.Value != sealed {
			t.Errorf("cookie %q lets %q in", value, caller.Name)
		}
	})
}
