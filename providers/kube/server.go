// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/target"
)

// Server is the API server of one control plane. Nobody else answers in its place.
type Server interface {
	// SigningKeys are the IDs of the keys whose tokens of service accounts it takes, as it publishes them, in order.
	SigningKeys(ctx context.Context) ([]string, error)

	// IssueToken has it sign a token of a service account that may do nothing, for so long.
	IssueToken(ctx context.Context, lifetime time.Duration) (Token, error)

	// TakesToken says whether it takes a token.
	TakesToken(ctx context.Context, token string) (bool, error)

	// Rewrite has it write the objects of a kind again, as Writer does.
	Rewrite(ctx context.Context, kind, after string, limit int) (Rewritten, error)

	// ReadAll has it read every object of a kind, and counts them. What is in them stays there.
	ReadAll(ctx context.Context, kind string) (int, error)
}

// Token is a token of a service account.
type Token struct {
	// Text is the token itself.
	Text string

	// KeyID is the ID of the key that signed it.
	KeyID string
}

// probeAccount is the service account whose tokens prove something. Every cluster has it, and nothing is granted to it.
const probeAccount = "default"

// jwksPath is where an API server publishes the keys of service accounts.
const jwksPath = "/openid/v1/jwks"

// Server implements Provider.
func (p *Pool) Server(ctx context.Context, t target.Target, g guard.Func, address string, port int) (Server, func(), error) {
	config, err := p.credentials.Kubeconfig(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	way, err := newRoute(config, target.Target{})
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to the API server at %s: %w", address, err)
	}
	way.server.Host = net.JoinHostPort(address, strconv.Itoa(port)) // It has to prove itself under the name that the kubeconfig has.
	clients, err := newClients(way)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to the API server at %s: %w", address, err)
	}
	return &server{connection: connection{clients: clients, guard: g}, address: address}, way.retire, nil
}

// server is a connection to one API server.
type server struct {
	connection

	address string
}

func (s *server) SigningKeys(ctx context.Context) ([]string, error) {
	data, err := s.clients.CoreV1().RESTClient().Get().AbsPath(jwksPath).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the keys that the API server at %s takes: %w", s.address, err)
	}
	var set struct {
		Keys []struct {
			ID string `json:"kid"`
		} `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("reading the keys that the API server at %s takes: the answer is no set of keys", s.address)
	}
	var ids []string
	for _, key := range set.Keys {
		ids = append(ids, key.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func (s *server) IssueToken(ctx context.Context, lifetime time.Duration) (Token, error) {
	seconds := int64(lifetime / time.Second)
	made, err := s.clients.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(guard.With(ctx, s.guard), probeAccount,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return Token{}, fmt.Errorf("having the API server at %s sign a token: %w", s.address, err)
	}
	id, err := keyIDOf(made.Status.Token)
	if err != nil {
		return Token{}, fmt.Errorf("having the API server at %s sign a token: %w", s.address, err)
	}
	return Token{Text: made.Status.Token, KeyID: id}, nil
}

// errNoToken means that an answer is no token.
var errNoToken = errors.New("the answer is no token that names its key")

// keyIDOf is the ID of the key that a token says to be signed with.
func keyIDOf(token string) (string, error) {
	header, _, _ := strings.Cut(token, ".")
	data, err := base64.RawURLEncoding.DecodeString(header)
	var parsed struct {
		KeyID string `json:"kid"`
	}
	if err != nil || json.Unmarshal(data, &parsed) != nil || parsed.KeyID == "" {
		return "", errNoToken
	}
	return parsed.KeyID, nil
}

func (s *server) TakesToken(ctx context.Context, token string) (bool, error) {
	review, err := s.clients.AuthenticationV1().TokenReviews().Create(guard.With(ctx, s.guard),
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("having the API server at %s review a token: %w", s.address, err)
	}
	return review.Status.Authenticated, nil
}

// TokenEnds is when a token ends, as it says itself.
func TokenEnds(token string) (time.Time, error) {
	parts := strings.Split(token, ".")
	if len(parts) < 2 {
		return time.Time{}, errNoToken
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	var parsed struct {
		Ends int64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(data, &parsed) != nil || parsed.Ends == 0 {
		return time.Time{}, errNoToken
	}
	return time.Unix(parsed.Ends, 0), nil
}
