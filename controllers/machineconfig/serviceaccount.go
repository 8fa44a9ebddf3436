// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	stdx509 "crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"github.com/siderolabs/crypto/x509"
)

// Accepting takes the tokens of one more key, and goes on signing with its own.
func (s ServiceAccount) Accepting(public string) (ServiceAccount, error) {
	ids, err := s.KeyIDs()
	if err != nil {
		return s, err
	}
	id, err := KeyID(public)
	if err != nil || slices.Contains(ids, id) {
		return s, err
	}
	s.Accepted = append(slices.Clone(s.Accepted), public)
	return s, nil
}

// Issuing signs with another key, and goes on taking the tokens of the one that it signed with.
func (s ServiceAccount) Issuing(private string) (ServiceAccount, error) {
	before, err := PublicKey(s.Issuer)
	if err != nil {
		return s, err
	}
	after, err := PublicKey(private)
	if err != nil {
		return s, err
	}
	s.Issuer = private
	if s, err = s.Dropping(after); err != nil { // The key that signs is taken anyway.
		return s, err
	}
	return s.Accepting(before)
}

// Dropping takes no tokens of keys any more. The one that signs stays.
func (s ServiceAccount) Dropping(publics ...string) (ServiceAccount, error) {
	var gone []string
	for _, public := range publics {
		id, err := KeyID(public)
		if err != nil {
			return s, err
		}
		gone = append(gone, id)
	}
	var left []string
	for _, public := range s.Accepted {
		id, err := KeyID(public)
		if err != nil {
			return s, err
		}
		if !slices.Contains(gone, id) {
			left = append(left, public)
		}
	}
	s.Accepted = left
	return s, nil
}

// KeyIDs are the IDs of all keys whose tokens are taken, the one that signs first, as an API server publishes them.
func (s ServiceAccount) KeyIDs() ([]string, error) {
	first, err := PublicKey(s.Issuer)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, public := range append([]string{first}, s.Accepted...) {
		id, err := KeyID(public)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// PublicKey is the public half of a private key, both in PEM.
func PublicKey(private string) (string, error) {
	pair := x509.PEMEncodedKey{Key: []byte(private)}
	key, err := pair.GetKey()
	if err != nil { // Its text may quote the key.
		return "", errors.New("the key of service accounts is no private key that Talos takes")
	}
	return string(key.GetPublicKeyPEM()), nil
}

// KeyID is how an API server names a public key in the tokens that it signs, and in the set of keys that it publishes.
func KeyID(public string) (string, error) {
	der, err := publicDER(public)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// KeyFingerprint tells a key of service accounts from others, by its public half, as snapshots of etcd do.
func KeyFingerprint(public string) (string, error) {
	block, _ := pem.Decode([]byte(public))
	if block == nil {
		return "", errNoPublicKey
	}
	sum := sha256.Sum256(block.Bytes)
	return hex.EncodeToString(sum[:]), nil
}

// errNoPublicKey means that a text is no public key.
var errNoPublicKey = errors.New("a key whose tokens are accepted is no public key in PEM that an API server takes")

// publicDER is a public key in the form that its ID is made of, whichever form it came in.
func publicDER(public string) ([]byte, error) {
	key, err := parsePublic(public)
	if err != nil {
		return nil, err
	}
	return stdx509.MarshalPKIXPublicKey(key)
}

// parsePublic reads a public key of a kind that signs tokens.
func parsePublic(public string) (key crypto.PublicKey, err error) {
	block, _ := pem.Decode([]byte(public))
	if block == nil {
		return nil, errNoPublicKey
	}
	if parsed, err := stdx509.ParsePKIXPublicKey(block.Bytes); err == nil {
		key = parsed
	} else if parsed, err := stdx509.ParsePKCS1PublicKey(block.Bytes); err == nil {
		key = parsed
	} else if certificate, err := stdx509.ParseCertificate(block.Bytes); err == nil {
		key = certificate.PublicKey
	}
	switch key.(type) {
	case *rsa.PublicKey, *ecdsa.PublicKey:
		return key, nil
	}
	return nil, errNoPublicKey
}

// NewServiceAccountKey makes a private key, in PEM, of the kind that another one is: what verifies the tokens of a cluster may not take any.
func NewServiceAccountKey(like string) (string, error) {
	public, err := PublicKey(like)
	if err != nil {
		return "", err
	}
	key, err := parsePublic(public)
	if err != nil {
		return "", err
	}
	if _, isRSA := key.(*rsa.PublicKey); isRSA {
		made, err := x509.NewRSAKey()
		if err != nil {
			return "", fmt.Errorf("making a key: %w", err)
		}
		return string(made.KeyPEM), nil
	}
	made, err := x509.NewECDSAKey()
	if err != nil {
		return "", fmt.Errorf("making a key: %w", err)
	}
	return string(made.KeyPEM), nil
}
