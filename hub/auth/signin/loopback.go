// SPDX-License-Identifier: Apache-2.0

package signin

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

const (
	callbackPath  = "/callback"
	headerTimeout = 10 * time.Second
)

// Loopback signs in with a browser on this machine, which comes back to a port of the loopback address. open shows the browser a URL.
func (p Provider) Loopback(ctx context.Context, open func(url string) error) (Token, error) {
	ctx, c, err := p.connect(ctx)
	if err != nil {
		return Token{}, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return Token{}, fmt.Errorf("listening for the browser: %w", err)
	}
	c.RedirectURL = "http://" + listener.Addr().String() + callbackPath
	begun := newAttempt()
	callback := &callback{state: begun.state, came: make(chan url.Values, 1)}
	server := &http.Server{Handler: callback, ReadHeaderTimeout: headerTimeout}
	go server.Serve(listener) //nolint:errcheck // It ends when it is shut down.
	// The browser is to see the page that says that it may be closed.
	defer server.Shutdown(context.WithoutCancel(ctx)) //nolint:errcheck // It serves one request at a time, for a moment.

	if err := open(c.AuthCodeURL(begun.state, oidc.Nonce(begun.nonce), oauth2.S256ChallengeOption(begun.verifier))); err != nil {
		return Token{}, fmt.Errorf("opening the browser: %w", err)
	}
	select {
	case answer := <-callback.came:
		return c.exchange(ctx, answer, begun)
	case <-ctx.Done():
		return Token{}, fmt.Errorf("waiting for the browser: %w", ctx.Err())
	}
}

func (c client) exchange(ctx context.Context, answer url.Values, begun attempt) (Token, error) {
	if refusal := answer.Get("error"); refusal != "" {
		return Token{}, fmt.Errorf("the identity provider refused: %.64q %.128q", refusal, answer.Get("error_description"))
	}
	tokens, err := c.Exchange(ctx, answer.Get("code"), oauth2.VerifierOption(begun.verifier))
	if err != nil {
		return Token{}, fmt.Errorf("exchanging the code: %w", err)
	}
	return c.token(ctx, tokens, begun.nonce)
}

// callback takes the browser that comes back from the provider, and nobody else.
type callback struct {
	state string
	came  chan url.Values
}

var errForeign = errors.New("this is not the end of a sign-in that ichor began")

// ServeHTTP takes the first answer with the right state.
func (c *callback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := r.URL.Query()
	ours := subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(c.state)) == 1
	if r.URL.Path != callbackPath || r.Method != http.MethodGet || !ours {
		http.Error(w, errForeign.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "You may close this window and go back to ichor.")
	select {
	case c.came <- answer:
	default: // It came already.
	}
}
