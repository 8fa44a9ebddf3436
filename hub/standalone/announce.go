// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"ichor.maesh.dev/hub/hub/standalone/atomicfile"
)

// Announce writes down where the hub serves, for other processes of its owner.
func (i *Instance) Announce(url string) error { return atomicfile.Write(i.dir.url(), []byte(url+"\n")) }

// AnnouncedURL is where the hub of a data directory serves, or served last.
func AnnouncedURL(dataDir string) (string, error) {
	content, err := os.ReadFile(layout(dataDir).url())
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("data directory %s: no standalone hub has served from it", dataDir)
	}
	if err != nil {
		return "", fmt.Errorf("reading where the hub serves: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// SessionKey is the file with the key that seals sessions.
func SessionKey(dataDir string) string { return layout(dataDir).sessionKey() }

// LoginLinks is the directory of the links that sign in once.
func LoginLinks(dataDir string) string { return layout(dataDir).loginLinks() }
