// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"ichor.maesh.dev/hub/cmd/ichor/contexts"
	"ichor.maesh.dev/hub/cmd/ichor/dial"
	"ichor.maesh.dev/hub/hub/auth/signin"
)

// bearer is the token of a context. One that is about to end is renewed before it is sent, for the time that a long command takes, too.
func (a *app) bearer(c *contexts.Context) dial.Bearer {
	if c.Credentials == nil {
		return func(context.Context) (string, error) { return "", nil } // The hub says what it wants.
	}
	if file := c.Credentials.TokenFile; file != "" {
		return func(context.Context) (string, error) { return tokenOf(file) }
	}
	held := &holder{app: a, context: c}
	return held.token
}

// tokenOf reads a token from a file.
func tokenOf(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", &dial.SignInError{Err: fmt.Errorf("reading the token: %w", err)}
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", &dial.SignInError{Err: fmt.Errorf("%s does not hold a token: one word is expected", file)}
	}
	return token, nil
}

// holder holds the token of a context in the file of contexts.
type holder struct {
	*app

	mu      sync.Mutex
	context *contexts.Context
}

func (h *holder) token(ctx context.Context) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.context.Credentials
	if held.Expires == nil || tokenFrom(held).Fresh(h.Now()) {
		return held.Token, nil
	}
	if held.RefreshToken == "" {
		if h.Now().Before(*held.Expires) {
			return held.Token, nil
		}
		return "", h.signInAgain(fmt.Errorf("you were signed in until %s", held.Expires.Local().Format(time.DateTime)))
	}
	if err := h.renew(ctx); err != nil {
		return "", err
	}
	return h.context.Credentials.Token, nil
}

func (h *holder) signInAgain(err error) error {
	return &dial.SignInError{Err: fmt.Errorf("%w; sign in again with: ichor login --context %s", err, h.context.Name)}
}

// renew gets another token. Of several commands that want one at the same time, one asks, since it uses the refresh token up; the others
// find what it got in the file.
func (h *holder) renew(ctx context.Context) error {
	path, err := contexts.Path(h.Getenv)
	if err != nil {
		return err
	}
	return contexts.Update(path, func(file *contexts.File) error {
		current := file.Find(h.context.Name)
		if current == nil || current.Credentials == nil || current.Hub != h.context.Hub {
			return h.signInAgain(errors.New("another command has signed you out"))
		}
		if !tokenFrom(current.Credentials).Fresh(h.Now()) {
			if err := h.ask(ctx, current); err != nil {
				return err
			}
		}
		h.context.Credentials = current.Credentials
		return nil
	})
}

// ask asks the identity provider. That it does not answer may pass; that it refuses does not.
func (h *holder) ask(ctx context.Context, c *contexts.Context) error {
	held := c.Credentials
	provider := signin.Provider{
		Issuer: held.Issuer, ClientID: held.ClientID, Scopes: held.Scopes,
		HTTPClient: dial.ProviderClient(dial.Trust{CertificateAuthority: c.CertificateAuthority}),
	}
	token, err := provider.Renew(ctx, tokenFrom(held))
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused):
		return h.signInAgain(err)
	case err != nil:
		return err
	}
	keep(held, token)
	return nil
}

func tokenFrom(c *contexts.Credentials) signin.Token {
	token := signin.Token{Bearer: c.Token, Refresh: c.RefreshToken}
	if c.Expires != nil {
		token.Expires = *c.Expires
	}
	return token
}

// keep puts a token into credentials.
func keep(c *contexts.Credentials, token signin.Token) {
	c.Token, c.RefreshToken, c.Expires = token.Bearer, token.Refresh, nil
	if !token.Expires.IsZero() {
		expires := token.Expires.UTC()
		c.Expires = &expires
	}
}
