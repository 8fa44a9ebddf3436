// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/hub/auth"
)

func TestSorryLeadsABrowserOn(t *testing.T) {
	g := NewWithT(t)
	answer := func(accept string) *httptest.ResponseRecorder {
		recorder := httptest.NewRecorder()
		request := httptest.NewRequest(http.MethodGet, "/auth/callback", http.NoBody)
		request.Header.Set("Accept", accept)
		auth.Sorry(recorder, request, `the provider said "<b>no</b>"`, http.StatusForbidden)
		return recorder
	}
	browser := answer("text/html,application/xhtml+xml,*/*;q=0.8")
	g.Expect(browser.Code).To(Equal(http.StatusForbidden))
	g.Expect(browser.Header().Get("Content-Type")).To(HavePrefix("text/html"))
	g.Expect(browser.Body.String()).To(And(ContainSubstring(`<a href="/">`), ContainSubstring("&lt;b&gt;no&lt;/b&gt;"), Not(ContainSubstring("<b>"))))

	program := answer("*/*")
	g.Expect(program.Code).To(Equal(http.StatusForbidden))
	g.Expect(program.Header().Get("Content-Type")).To(HavePrefix("text/plain"))
	g.Expect(program.Body.String()).To(Equal("the provider said \"<b>no</b>\"\n"))
}
