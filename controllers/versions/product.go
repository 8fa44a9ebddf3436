// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"fmt"
	"strings"

	"github.com/blang/semver/v4"
)

// Product is something that has versions of its own.
type Product string

// The products whose versions go together.
const (
	Talos      Product = "Talos"
	Kubernetes Product = "Kubernetes"
	Cilium     Product = "Cilium"
)

// Parse reads a version of a product that somebody asks for. It guesses what they meant where it cannot be what they wrote; whether a
// version may follow another, or goes with one, is not its to say.
func (p Product) Parse(text string) (semver.Version, error) {
	version, err := Parse(text)
	half := twoParts.MatchString(strings.TrimSpace(text))
	if half {
		var none error
		if version, none = Parse(strings.TrimSpace(text) + ".0"); none != nil {
			return semver.Version{}, err
		}
	}
	switch {
	case err != nil && !half:
		return semver.Version{}, err
	case minorOf(version).compare(p.known().From) < 0:
		return semver.Version{}, fmt.Errorf("version %.64q is older than any %s that this hub knows (%s)%s", text, p, p.known(), p.meant(version, half))
	case half:
		return semver.Version{}, err
	case len(version.Build) > 0:
		return semver.Version{}, fmt.Errorf("version %.64q is somebody's build, and no release of %s: did you mean v%s?", text, p, final(version))
	case len(version.String()) >= mostVersion:
		return semver.Version{}, fmt.Errorf("version %.64q is longer than %d characters", text, mostVersion)
	}
	return version, nil
}

// Normalize writes a version that somebody asks for as the objects have it: with its v.
func (p Product) Normalize(text string) (string, error) {
	version, err := p.Parse(text)
	if err != nil {
		return "", err
	}
	return "v" + version.String(), nil
}

// meant guesses which version lost a digit or a dot: 1.3.1 may be 1.30.1, whose zero something took for a fraction's, or 1.31.0.
func (p Product) meant(version semver.Version, half bool) string {
	guesses := []semver.Version{{Major: version.Major, Minor: version.Minor * 10, Patch: version.Patch}}
	if !half && version.Patch < 10 {
		guesses = append(guesses, semver.Version{Major: version.Major, Minor: version.Minor*10 + version.Patch})
	}
	var texts []string
	for _, guess := range guesses {
		if text := "v" + guess.String(); p.known().has(minorOf(guess)) && (len(texts) == 0 || texts[0] != text) {
			texts = append(texts, text)
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return fmt.Sprintf(": did you mean %s?", strings.Join(texts, " or "))
}

// final is a version without what makes it a pre-release or a build.
func final(version semver.Version) semver.Version {
	return semver.Version{Major: version.Major, Minor: version.Minor, Patch: version.Patch}
}
