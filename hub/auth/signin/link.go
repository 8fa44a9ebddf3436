// SPDX-License-Identifier: Apache-2.0

package signin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"ichor.maesh.dev/hub/hub/auth/link"
)

// maxAnswer bounds what is read of a hub's answer.
const maxAnswer = 64 << 10

// Link uses up the one-time link of a standalone hub. The client trusts the hub's certificate.
func Link(ctx context.Context, client *http.Client, text string) (Token, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Query().Get(link.CodeParameter) == "" {
		return Token{}, fmt.Errorf("login link %.64q: want one as ichor-hub printed it, such as https://127.0.0.1:8443%s?%s=CODE", text, link.Path, link.CodeParameter)
	}
	body, err := json.Marshal(link.Exchange{Code: u.Query().Get(link.CodeParameter)})
	if err != nil {
		return Token{}, fmt.Errorf("encoding the link's code: %w", err)
	}
	u.RawQuery, u.Fragment = "", ""
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return Token{}, fmt.Errorf("using the login link: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return Token{}, fmt.Errorf("using the login link: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // It has been read.
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return Token{}, fmt.Errorf("using the login link: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return Token{}, fmt.Errorf("using the login link: the hub answered %s: %.256s", response.Status, strings.TrimSpace(string(answer)))
	}
	var grant link.Grant
	if err := json.Unmarshal(answer, &grant); err != nil || grant.Token == "" {
		return Token{}, fmt.Errorf("using the login link: %s is no hub of this version", u.Host)
	}
	return Token{Bearer: grant.Token, Expires: grant.Expires}, nil
}
