// SPDX-License-Identifier: Apache-2.0

// Package versions holds the rules about versions: how people write them, which may follow which, and which go together.
package versions

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/blang/semver/v4"
)

// mostVersion is how long a version may be; the objects have no room for more.
const mostVersion = 64

var twoParts = regexp.MustCompile(`^v?(0|[1-9]\d*)\.(0|[1-9]\d*)$`)

// Parse reads a version as people write it, with or without its v.
func Parse(text string) (semver.Version, error) {
	trimmed := strings.TrimSpace(text)
	version, err := semver.Parse(strings.TrimPrefix(trimmed, "v"))
	switch {
	case err == nil:
		return version, nil
	case twoParts.MatchString(trimmed):
		return semver.Version{}, fmt.Errorf("version %.64q has no patch level: did you mean %.64s.0?", text, trimmed)
	}
	return semver.Version{}, fmt.Errorf("version %.64q is not of the form v1.2.3", text)
}

// Compare orders versions, and what is none of them by its text.
func Compare(a, b string) int {
	versionA, errA := Parse(a)
	versionB, errB := Parse(b)
	if errA != nil || errB != nil {
		return strings.Compare(a, b)
	}
	return versionA.Compare(versionB)
}

// Objection is why one version may not follow another, or does not go with another.
type Objection struct {
	// Message says what is wrong and what is allowed.
	Message string

	// Help says what to do about it, where that is not plain.
	Help string

	// Overridable objections are about what nobody has tested, not about what cannot work.
	Overridable bool
}

// hubFirst is the help where only a newer hub knows better.
const hubFirst = "upgrade the hub first"

// beyond objects to what is newer than the newest minor version that this build knows; nil means that it is not. It is no judgement: a
// newer hub may know better.
func (p Product) beyond(version semver.Version, text string) *Objection {
	newest := p.known().To
	if minorOf(version).compare(newest) <= 0 {
		return nil
	}
	return &Objection{Message: fmt.Sprintf("this hub knows %s up to %s, and not %.64s", p, newest, text), Help: hubFirst}
}

// step objects to a version that nobody may go to from another, however far it is: one that is not final, is not known, or is older. Nil
// means nothing.
func (p Product) step(from, to semver.Version, fromText, toText string) *Objection {
	if len(to.Pre) > 0 {
		return &Objection{Message: fmt.Sprintf("%.64s is not a final version", toText)}
	}
	if objection := p.beyond(to, toText); objection != nil {
		return objection
	}
	if to.LT(from) {
		return &Objection{Message: fmt.Sprintf("%.64s is older than the running %.64s: a downgrade is no upgrade", toText, fromText)}
	}
	return nil
}

// both reads two versions.
func both(one, other string) (a, b semver.Version, err error) {
	if a, err = Parse(one); err != nil {
		return a, b, err
	}
	b, err = Parse(other)
	return a, b, err
}
