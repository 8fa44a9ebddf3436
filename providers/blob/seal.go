// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
)

// Keys of the Secret that holds the key of age.
const (
	// RecipientKey holds the public key: enough to encrypt.
	RecipientKey = "recipient"

	// IdentityKey holds the private key. The public one follows from it.
	IdentityKey = "identity"
)

// Seal encrypts what is stored for one recipient.
type Seal struct {
	recipient *age.X25519Recipient
	identity  *age.X25519Identity
}

// NewSeal reads the key of a Secret.
func NewSeal(secret map[string][]byte) (*Seal, error) {
	s := &Seal{}
	identity, recipient := text(secret[IdentityKey]), text(secret[RecipientKey])
	if identity == "" && recipient == "" {
		return nil, fmt.Errorf("the Secret has no %s and no %s", RecipientKey, IdentityKey)
	}
	var err error
	if identity != "" {
		if s.identity, err = age.ParseX25519Identity(identity); err != nil { // Its text may quote the key.
			return nil, fmt.Errorf("%s of the Secret is no private key of age: it begins with AGE-SECRET-KEY-1", IdentityKey)
		}
		s.recipient = s.identity.Recipient()
	}
	if recipient == "" {
		return s, nil
	}
	given, err := age.ParseX25519Recipient(recipient)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s of the Secret is no public key of age: it begins with age1", RecipientKey)
	case s.recipient != nil && s.recipient.String() != given.String():
		return nil, fmt.Errorf("%s and %s of the Secret are not the halves of one key", RecipientKey, IdentityKey)
	}
	s.recipient = given
	return s, nil
}

// text is a key without what surrounds it in a file that age-keygen wrote.
func text(data []byte) string {
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return ""
}

// Recipient is the public key.
func (s *Seal) Recipient() string { return s.recipient.String() }

// Opens says whether the seal can decrypt.
func (s *Seal) Opens() bool { return s.identity != nil }

// Encrypt encrypts what is written to it until it is closed. Closing it writes what is left and does not close to.
func (s *Seal) Encrypt(to io.Writer) (io.WriteCloser, error) {
	writer, err := age.Encrypt(to, s.recipient)
	if err != nil {
		return nil, fmt.Errorf("encrypting: %w", err)
	}
	return writer, nil
}

// intro is how everything begins that is encrypted with age.
const intro = "age-encryption.org/v1\n"

// Decrypt decrypts what it reads. It fails at the first byte that is not as it was written.
func (s *Seal) Decrypt(from io.Reader) (io.Reader, error) {
	if s.identity == nil {
		return nil, fmt.Errorf("decrypting: the Secret has no %s", IdentityKey)
	}
	whole := bufio.NewReader(from)
	if begin, err := whole.Peek(len(intro)); err == nil && string(begin) != intro { // What age says of it quotes whatever is there.
		return nil, errors.New("decrypting: it is not encrypted with age")
	}
	reader, err := age.Decrypt(whole, s.identity)
	var other *age.NoIdentityMatchError
	if errors.As(err, &other) {
		return nil, fmt.Errorf("decrypting: it is encrypted for another key than %s", s.Recipient())
	}
	if err != nil {
		return nil, fmt.Errorf("decrypting: %w", err)
	}
	return reader, nil
}
