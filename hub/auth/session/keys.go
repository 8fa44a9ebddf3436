// SPDX-License-Identifier: Apache-2.0

// Package session keeps people signed in, without a place where sessions are kept: a session is sealed with a key that every replica has, and
// the browser or the command line brings it along.
package session

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/hub/standalone/atomicfile"
)

const (
	// keySize is the size of a key in bytes.
	keySize = 32

	// keyEntry is where a Secret has the key, previousEntry where it has the one before: what that has sealed is still taken.
	keyEntry, previousEntry = "key", "previous"
)

// errSealed tells nobody why something could not be opened: whoever made it up needs no help.
var errSealed = errors.New("it was not sealed by this hub")

// Keys seal with the first of them, and open with any.
type Keys struct{ secrets [][]byte }

// NewKeys makes Keys of 32 bytes each. The first one seals.
func NewKeys(secrets ...[]byte) (Keys, error) {
	if len(secrets) == 0 {
		return Keys{}, errors.New("session key: there is none")
	}
	for _, secret := range secrets {
		if len(secret) != keySize {
			return Keys{}, fmt.Errorf("session key: it has %d bytes, want %d", len(secret), keySize)
		}
	}
	return Keys{secrets: secrets}, nil
}

// FileKeys reads the key of a file, which is made for its owner alone when it is missing. It is for a hub that has no other replicas.
func FileKeys(path string) (Keys, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text = newKey()
		err = atomicfile.Write(path, text)
	}
	if err != nil {
		return Keys{}, fmt.Errorf("session key of file %s: %w", path, err)
	}
	return parse(fmt.Sprintf("file %s", path), text)
}

// SecretKeys reads the keys of a Secret, which is made when it is missing. Replicas that start at once agree on the one that came first.
func SecretKeys(ctx context.Context, c client.Client, key client.ObjectKey) (Keys, error) {
	secret := &corev1.Secret{}
	err := c.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
			Data:       map[string][]byte{keyEntry: newKey()},
		}
		if err = c.Create(ctx, secret); apierrors.IsAlreadyExists(err) {
			err = c.Get(ctx, key, secret)
		}
	}
	if err != nil {
		return Keys{}, fmt.Errorf("session key of Secret %s: %w", key, err)
	}
	texts := [][]byte{secret.Data[keyEntry]}
	if previous, ok := secret.Data[previousEntry]; ok {
		texts = append(texts, previous)
	}
	return parse(fmt.Sprintf("Secret %s", key), texts...)
}

func newKey() []byte {
	secret := make([]byte, keySize)
	rand.Read(secret) // It never fails: it ends the program instead.
	return []byte(base64.StdEncoding.EncodeToString(secret))
}

// parse decodes keys as they are stored: in base64, so that people can make one with openssl rand -base64 32.
func parse(where string, texts ...[]byte) (Keys, error) {
	var secrets [][]byte
	for _, text := range texts {
		secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
		if err != nil || len(secret) != keySize {
			return Keys{}, fmt.Errorf("session key of %s: want %d random bytes in base64, such as of openssl rand -base64 %d", where, keySize, keySize)
		}
		secrets = append(secrets, secret)
	}
	return NewKeys(secrets...)
}

// Seal makes a text of a value that nobody else can read, change or make up. What is sealed for one purpose cannot be opened for another.
func (k Keys) Seal(purpose string, value any) (string, error) {
	if len(k.secrets) == 0 {
		return "", errors.New("sealing: there is no session key")
	}
	plain, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("sealing: %w", err)
	}
	aead, err := seal(k.secrets[0], purpose)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, plain, nil)), nil //nolint:gosec // G407: this AEAD makes its nonce itself.
}

// Open reads what Seal made for the same purpose.
func (k Keys) Open(purpose, text string, value any) error {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return errSealed
	}
	for _, secret := range k.secrets {
		aead, err := seal(secret, purpose)
		if err != nil {
			return err
		}
		if plain, err := aead.Open(nil, nil, sealed, nil); err == nil {
			return json.Unmarshal(plain, value)
		}
	}
	return errSealed
}

// seal is AES-256-GCM under a key of its own for every purpose. Its nonces are random: 2^32 messages may be sealed with a key.
func seal(secret []byte, purpose string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "ichor.maesh.dev/"+purpose, keySize)
	if err != nil {
		return nil, fmt.Errorf("deriving the key for purpose %s: %w", purpose, err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("preparing the key for purpose %s: %w", purpose, err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Empty says that there is no key.
func (k Keys) Empty() bool { return len(k.secrets) == 0 }
