// SPDX-License-Identifier: Apache-2.0

// Package image reads the image references of a machine config, and gives them another version.
package image

import (
	_ "crypto/sha256" // Digests are judged by what is linked.
	_ "crypto/sha512"
	"fmt"
	"path"
	"regexp"

	"github.com/distribution/reference"

	"ichor.maesh.dev/hub/controllers/versions"
)

// Reference is an image reference as somebody wrote it: nothing is added that they left out.
type Reference struct {
	// Name is the registry, with its port, and the path.
	Name string

	// Tag is what comes after the colon. It is empty where the digest alone says which image it is.
	Tag string

	// Digest pins the image; it is empty where the tag may move.
	Digest string

	// Version is the version that the tag tells, with its v. It is empty where it tells none: what runs there tells then.
	Version string

	// Suffix is what the tag has after its version, such as -fat or -slim.
	Suffix string

	// prefix is the v of the tag, for those whose registry has none.
	prefix string
}

// tagged is a tag that tells a version.
var tagged = regexp.MustCompile(`^(v?)(\d+\.\d+\.\d+(?:-(?:alpha|beta|rc)\.\d+)?)((?:[-_][0-9A-Za-z_.-]*)?)$`)

// Parse reads an image reference.
func Parse(text string) (Reference, error) {
	parsed, err := reference.Parse(text)
	if err != nil {
		return Reference{}, fmt.Errorf("image %.128q: %w", text, err)
	}
	named, ok := parsed.(reference.Named)
	if !ok {
		return Reference{}, fmt.Errorf("image %.128q has no name", text)
	}
	r := Reference{Name: named.Name()}
	if digested, ok := parsed.(reference.Digested); ok {
		r.Digest = digested.Digest().String()
	}
	if tag, ok := parsed.(reference.Tagged); ok {
		r.Tag = tag.Tag()
	}
	if parts := tagged.FindStringSubmatch(r.Tag); parts != nil {
		if version, err := versions.Parse(parts[2]); err == nil {
			r.prefix, r.Version, r.Suffix = parts[1], "v"+version.String(), parts[3]
		}
	}
	return r, nil
}

// String writes the reference as it was read.
func (r Reference) String() string {
	text := r.Name
	if r.Tag != "" {
		text += ":" + r.Tag
	}
	if r.Digest != "" {
		text += "@" + r.Digest
	}
	return text
}

// WithVersion is the same image in another version: registry, path, suffix and form stay. A digest cannot stay, since it pins what it was
// made of; the note says so, and is empty where there is nothing to say. An image that has the version already stays as it is.
func (r Reference) WithVersion(text string) (changed Reference, note string, err error) {
	version, err := versions.Parse(text)
	switch {
	case err != nil:
		return Reference{}, "", err
	case r.Version == "v"+version.String():
		return r, "", nil
	case r.Version == "" && (r.Tag != "" || r.Digest == ""):
		return Reference{}, "", fmt.Errorf("image %.128q tells no version to change: give it a tag such as v%s", r, version)
	}
	prefix := r.prefix
	if r.Version == "" {
		prefix = "v"
	}
	changed, err = Parse(r.Name + ":" + prefix + version.String() + r.Suffix)
	if err != nil {
		return Reference{}, "", err
	}
	return changed, r.unpinned(changed), nil
}

// unpinned says what is lost with a digest.
func (r Reference) unpinned(changed Reference) string {
	if r.Digest == "" {
		return ""
	}
	const shown = 19 // The algorithm of most, and twelve digits.
	note := fmt.Sprintf("image %.64s is pinned to %.*s…, which is no %s: the digest is left out", path.Base(r.Name), shown, r.Digest, changed.Version)
	if r.Version == "" {
		note += ", and with it what nobody can tell from it, such as -fat or -slim"
	}
	return note
}
