// SPDX-License-Identifier: Apache-2.0

package component

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Digest is the manifest digest of an image in the registries that the simulation pretends to have. It follows from the name and
// tag, with whatever variant, so that a reference by digest can be told apart and found again.
func Digest(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// The versions that a reference by digest alone is looked up among.
const (
	oldestMinor, newestMinor = 29, 38
	patches                  = 20
)

// TagOf finds the tag of a reference by digest alone: repository@sha256:... . No tag has another's digest.
func TagOf(repository, digest string) (string, bool) {
	for minor := oldestMinor; minor <= newestMinor; minor++ {
		for patch := range patches {
			for _, variant := range append([]string{""}, variants...) {
				tag := fmt.Sprintf("v1.%d.%d%s", minor, patch, variant)
				if Digest(repository+":"+tag) == digest {
					return tag, true
				}
			}
		}
	}
	return "", false
}

// versionOf is Version, and looks a digest up where there is no tag.
func versionOf(image string) string {
	if version := Version(image); version != "" {
		return version
	}
	repository, digest, _ := strings.Cut(image, "@")
	tag, _ := TagOf(repository, digest)
	return Version(repository + ":" + tag)
}

// Resolved is the part with the version that its image has.
func (p Part) Resolved() Part {
	p.Version = versionOf(p.Image)
	return p
}
