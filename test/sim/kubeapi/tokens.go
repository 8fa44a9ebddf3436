// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/util/keyutil"
)

// Tokens signs and verifies the tokens of service accounts with the keys of one API server.
type Tokens struct {
	issuer    string
	issuers   []string // All that are accepted, the own one first.
	audiences []string
	signer    jose.Signer
	keys      []jose.JSONWebKey // Public ones.
}

// algorithms are those that Kubernetes signs with.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512}

// NewTokens reads the keys: the private one that signs, and the public ones that verify, both in PEM. The own issuer is the first.
func NewTokens(private, public []byte, issuers, audiences []string) (*Tokens, error) {
	if len(issuers) == 0 {
		return nil, errors.New("tokens of service accounts need an issuer")
	}
	key, err := keyutil.ParsePrivateKeyPEM(private)
	if err != nil {
		return nil, fmt.Errorf("key that signs tokens: %w", err)
	}
	keys, err := publicKeys(public)
	if err != nil {
		return nil, fmt.Errorf("keys that verify tokens: %w", err)
	}
	own, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("key that signs tokens: a %T signs nothing", key)
	}
	id, algorithm, err := identify(own.Public())
	if err != nil {
		return nil, err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		return nil, fmt.Errorf("key that signs tokens: %w", err)
	}
	return &Tokens{issuer: issuers[0], issuers: issuers, audiences: audiences, signer: signer, keys: keys}, nil
}

func publicKeys(data []byte) ([]jose.JSONWebKey, error) {
	parsed, err := keyutil.ParsePublicKeysPEM(data)
	if err != nil {
		return nil, err
	}
	keys := make([]jose.JSONWebKey, 0, len(parsed))
	for _, key := range parsed {
		id, algorithm, err := identify(key)
		if err != nil {
			return nil, err
		}
		keys = append(keys, jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(algorithm), Use: "sig"})
	}
	return keys, nil
}

// identify names a public key as Kubernetes does, and says what it signs with.
func identify(public crypto.PublicKey) (string, jose.SignatureAlgorithm, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", "", fmt.Errorf("public key: %w", err)
	}
	sum := sha256.Sum256(der)
	id := base64.RawURLEncoding.EncodeToString(sum[:])
	switch key := public.(type) {
	case *rsa.PublicKey:
		return id, jose.RS256, nil
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return id, jose.ES256, nil
		case elliptic.P384():
			return id, jose.ES384, nil
		case elliptic.P521():
			return id, jose.ES512, nil
		}
	}
	return "", "", fmt.Errorf("public key: Kubernetes takes no %T of that kind", public)
}

// claims are what a token says.
type claims struct {
	jwt.Claims
	Kubernetes struct {
		Namespace string  `json:"namespace"`
		Account   subject `json:"serviceaccount"`
	} `json:"kubernetes.io"`
}

// subject is a service account as tokens name it.
type subject struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

const accountPrefix = "system:serviceaccount"

func (c *claims) user() authenticationv1.UserInfo {
	namespace := c.Kubernetes.Namespace
	return authenticationv1.UserInfo{
		Username: c.Subject, UID: c.Kubernetes.Account.UID,
		Groups: []string{accountPrefix + "s", accountPrefix + "s:" + namespace, authenticatedGroup},
	}
}

// Sign makes a token for a service account.
func (t *Tokens) Sign(namespace string, account subject, audiences []string, from, to time.Time) (string, error) {
	if len(audiences) == 0 {
		audiences = t.audiences
	}
	c := claims{Claims: jwt.Claims{
		Issuer: t.issuer, Subject: accountPrefix + ":" + namespace + ":" + account.Name, Audience: audiences, ID: uuid.NewString(),
		IssuedAt: jwt.NewNumericDate(from), NotBefore: jwt.NewNumericDate(from), Expiry: jwt.NewNumericDate(to),
	}}
	c.Kubernetes.Namespace, c.Kubernetes.Account = namespace, account
	token, err := jwt.Signed(t.signer).Claims(c).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign the token: %w", err)
	}
	return token, nil
}

// verify reads a token if one of the keys has signed it and it is good for one of the audiences, or without any for the server's own.
func (t *Tokens) verify(token string, audiences []string, now time.Time) (*claims, error) {
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	c, err := t.claimsOf(parsed)
	if err != nil {
		return nil, err
	}
	if len(audiences) == 0 {
		audiences = t.audiences
	}
	switch {
	case !slices.Contains(t.issuers, c.Issuer):
		return nil, fmt.Errorf("token: issuer %q is not accepted, want one of %q", c.Issuer, t.issuers)
	case !slices.ContainsFunc(audiences, c.Audience.Contains):
		return nil, fmt.Errorf("token audiences %q is invalid for the target audiences %q", []string(c.Audience), audiences)
	}
	if err := c.ValidateWithLeeway(jwt.Expected{Time: now}, 0); err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	return c, nil
}

// errSignature is what the real server says about a token that no key verifies.
var errSignature = errors.New("invalid signature, no keys found")

func (t *Tokens) claimsOf(token *jwt.JSONWebToken) (*claims, error) {
	for _, key := range t.keys {
		c := &claims{}
		if token.Claims(key.Key, c) == nil {
			return c, nil
		}
	}
	return nil, errSignature
}

// KeySet is what the server shows of its public keys.
func (t *Tokens) KeySet() jose.JSONWebKeySet { return jose.JSONWebKeySet{Keys: t.keys} }
