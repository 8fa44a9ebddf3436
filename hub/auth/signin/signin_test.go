// SPDX-License-Identifier: Apache-2.0

package signin_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/hub/auth/signin"
	"ichor.maesh.dev/hub/test/openid"
)

// browse is a browser: it follows wherever it is sent.
func browse(ctx context.Context, at string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // It has been read.
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func start(t *testing.T) (*WithT, context.Context, *openid.Provider, signin.Provider) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	provider := openid.Start(t, "https://ichor.example.com/auth/callback")
	return NewWithT(t), ctx, provider, signin.Provider{Issuer: provider.URL, ClientID: openid.CLIClient, Scopes: []string{"email"}}
}

func TestLoopback(t *testing.T) {
	g, ctx, _, p := start(t)
	pages := make(chan string, 1)
	token, err := p.Loopback(ctx, func(at string) error {
		asked, err := url.Parse(at)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(asked.Query()).To(HaveKeyWithValue("code_challenge_method", ConsistOf("S256")))
		g.Expect(asked.Query().Get("nonce")).NotTo(BeEmpty())
		go func() {
			page, err := browse(ctx, at)
			pages <- page
			g.Expect(err).NotTo(HaveOccurred())
		}()
		return nil
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(<-pages).To(ContainSubstring("You may close this window"))
	g.Expect(token.Bearer).NotTo(BeEmpty())
	g.Expect(token.Refresh).NotTo(BeEmpty())
	g.Expect(token.Fresh(time.Now())).To(BeTrue())
	g.Expect(token.Fresh(token.Expires)).To(BeFalse())

	renewed, err := p.Renew(ctx, token)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(renewed.Bearer).NotTo(BeEmpty())
	g.Expect(renewed.Refresh).NotTo(Equal(token.Refresh), "the provider gives a new one with every use")

	_, err = p.Renew(ctx, token)
	g.Expect(err).To(MatchError(ContainSubstring("sign in again with: ichor login")), "a refresh token that was used")
}

// Another program on the machine, or a page in the browser, must not be able to end the sign-in.
func TestLoopbackTakesOnlyItsOwnState(t *testing.T) {
	g, ctx, _, p := start(t)
	opened := false
	_, err := p.Loopback(ctx, func(at string) error {
		asked, err := url.Parse(at)
		g.Expect(err).NotTo(HaveOccurred())
		page, err := browse(ctx, asked.Query().Get("redirect_uri")+"?code=stolen&state=made-up")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(page).To(ContainSubstring("not the end of a sign-in that ichor began"))
		opened = true
		go browse(ctx, at) //nolint:errcheck // Loopback says what became of it.
		return nil
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(opened).To(BeTrue())
}

func TestLoopbackEndsWithItsContext(t *testing.T) {
	g, ctx, _, p := start(t)
	ctx, cancel := context.WithCancel(ctx)
	_, err := p.Loopback(ctx, func(string) error { cancel(); return nil })
	g.Expect(err).To(MatchError(context.Canceled))
}

func TestDevice(t *testing.T) {
	g, ctx, provider, p := start(t)
	token, err := p.Device(ctx, func(at, code string) {
		g.Expect(at).To(HavePrefix(provider.URL + "/device"))
		g.Expect(provider.Approve(ctx, code)).To(Succeed())
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(token.Bearer).NotTo(BeEmpty())
	g.Expect(token.Fresh(time.Now())).To(BeTrue())
}

func TestProviderThatIsDown(t *testing.T) {
	g, ctx, provider, p := start(t)
	provider.Close()
	_, err := p.Device(ctx, nil)
	g.Expect(err).To(MatchError(ContainSubstring("looking up identity provider " + provider.URL)))
}
