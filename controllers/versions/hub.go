// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"fmt"

	"github.com/blang/semver/v4"
)

// NormalizeHub writes a version of the hub that somebody asks for as the objects have it: with its v. Whether the hub may go there is not its to say.
func NormalizeHub(text string) (string, error) {
	version, err := Parse(text)
	switch {
	case err != nil:
		return "", err
	case len(version.Pre) > 0 || len(version.Build) > 0:
		return "", fmt.Errorf("version %.64q is not a final version, such as v%s", text, final(version))
	case len(version.String()) >= mostVersion:
		return "", fmt.Errorf("version %.64q is longer than %d characters", text, mostVersion)
	}
	return "v" + version.String(), nil
}

// HubUpgrade says what speaks against bringing a hub from one version to another; nil means nothing. Equal versions are no upgrade, and nothing
// speaks against them: who finds them has nothing to do. A hub reads what the minor version before it has written, so none may be skipped; of
// another major version only the first minor follows on all of the one before, and its installer knows better which of them it can follow on.
func HubUpgrade(from, to string) (*Objection, error) {
	toVersion, err := Parse(to)
	if err != nil {
		return nil, err
	}
	fromVersion, err := Parse(from)
	if err != nil {
		return &Objection{
			Message: fmt.Sprintf("this hub is a build without a version (%.64q), so nobody knows whether %.64s may follow on it", from, to),
			Help:    "install the release once in the way in which this hub was installed",
		}, nil
	}
	switch {
	case len(toVersion.Pre) > 0:
		return &Objection{Message: fmt.Sprintf("%.64s is not a final version", to)}, nil
	case toVersion.LT(fromVersion):
		return &Objection{
			Message: fmt.Sprintf("%.64s is older than the running %.64s: a hub does not read what a newer one has written", to, from),
			Help:    "restore the management cluster from a backup of before",
		}, nil
	case !follows(fromVersion, toVersion):
		next := minorOf(fromVersion).next()
		return &Objection{
			Message: fmt.Sprintf("%.64s to %.64s skips %s: go by way of it, one minor version at a time", from, to, next),
			Help:    fmt.Sprintf("upgrade to the latest %s first", next),
		}, nil
	}
	return nil, nil
}

// follows says whether a version is of the same minor version as another, of the next one, or of the first one of the next major version.
func follows(from, to semver.Version) bool {
	if to.Major == from.Major {
		return to.Minor <= from.Minor+1
	}
	return to.Major == from.Major+1 && to.Minor == 0
}
