// SPDX-License-Identifier: Apache-2.0

// Package link signs people in by a link that works once: it is how a standalone hub, which has no identity provider, lets its owner in.
package link

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ichor.maesh.dev/hub/hub/standalone/atomicfile"
)

const (
	// DefaultLifetime is how long a link works.
	DefaultLifetime = 10 * time.Minute

	// MaxLifetime is how long one may.
	MaxLifetime = time.Hour

	// Path is where the hub takes links.
	Path = "/auth/link"

	// CodeParameter is where a link has its code.
	CodeParameter = "code"
)

// errSpent says of every code that is not good the same.
var errSpent = errors.New("the link has been used, or its time is over: make a new one with: ichor-hub login-link --data-dir DIR")

// Store keeps the links that work, as files: another process can add one, and taking one away is what only one of two can do. What is
// kept is a hash of a code, and not the code.
type Store struct {
	// Dir is the directory of the links, made for its owner alone.
	Dir string
}

// Create makes a link's code that works for some time; 0 means DefaultLifetime.
func (s Store) Create(now time.Time, lasts time.Duration) (code string, err error) {
	if lasts == 0 {
		lasts = DefaultLifetime
	}
	if lasts < 0 || lasts > MaxLifetime {
		return "", fmt.Errorf("a login link that works for %s: want more than 0s and at most %s", lasts, MaxLifetime)
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return "", fmt.Errorf("creating the directory of login links: %w", err)
	}
	s.sweep(now)
	code = rand.Text() + rand.Text() // 256 bits and some.
	if err := atomicfile.Write(s.path(code), []byte(now.Add(lasts).UTC().Format(time.RFC3339))); err != nil {
		return "", fmt.Errorf("keeping a login link: %w", err)
	}
	return code, nil
}

// Redeem uses a code up. It is nil for one call with the code of a link that works, and an error for all others.
func (s Store) Redeem(code string, now time.Time) error {
	path := s.path(code)
	ends, err := ends(path)
	if err != nil {
		return errSpent
	}
	// Whoever removes the file has used the link.
	if err := os.Remove(path); err != nil || !now.Before(ends) {
		return errSpent
	}
	return nil
}

// sweep removes links whose time is over.
func (s Store) sweep(now time.Time) {
	paths, _ := filepath.Glob(filepath.Join(s.Dir, "*"))
	for _, path := range paths {
		if ends, err := ends(path); err == nil && !now.Before(ends) {
			os.Remove(path) //nolint:errcheck // It is refused as well.
		}
	}
}

func (s Store) path(code string) string {
	hash := sha256.Sum256([]byte(code))
	return filepath.Join(s.Dir, hex.EncodeToString(hash[:]))
}

func ends(path string) (time.Time, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339, string(text))
}

// URL is the link of a code at a hub.
func URL(hub, code string) string {
	return strings.TrimSuffix(hub, "/") + Path + "?" + url.Values{CodeParameter: {code}}.Encode()
}
