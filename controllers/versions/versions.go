// SPDX-License-Identifier: Apache-2.0

// Package versions holds the rules about versions: how people write them, and which may follow which.
package versions

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/blang/semver/v4"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/compatibility/talos113"
	"github.com/siderolabs/talos/pkg/machinery/gendata"
)

var twoParts = regexp.MustCompile(`^v?\d+\.\d+$`)

// Parse reads a version as people write it, with or without its v.
func Parse(text string) (semver.Version, error) {
	trimmed := strings.TrimSpace(text)
	version, err := semver.Parse(strings.TrimPrefix(trimmed, "v"))
	switch {
	case err == nil:
		return version, nil
	case twoParts.MatchString(trimmed):
		return semver.Version{}, fmt.Errorf("version %q has no patch level: did you mean %s.0?", text, trimmed)
	}
	return semver.Version{}, fmt.Errorf("version %q is not of the form v1.2.3", text)
}

// Normalize writes a version as the objects have it: with its v.
func Normalize(text string) (string, error) {
	version, err := Parse(text)
	if err != nil {
		return "", err
	}
	return "v" + version.String(), nil
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

// Objection is why one version may not follow another.
type Objection struct {
	// Message says what is wrong and what is allowed.
	Message string

	// Help says what to do about it, where that is not plain.
	Help string

	// Overridable objections are about what nobody has tested, not about what cannot work.
	Overridable bool
}

// minimumLifecycle is the first Talos whose installer can be run without a reboot.
var minimumLifecycle = semver.MustParse("1.13.0")

// HasLifecycleAPI says whether a Talos version pulls, installs and reboots by calls of their own. Older ones have one call for all.
func HasLifecycleAPI(version semver.Version) bool {
	version.Pre = nil
	return version.GTE(minimumLifecycle)
}

// MinimumTalos is the oldest Talos that this hub upgrades: the oldest from which one step leads to a Talos with the new API. All of them run
// etcd 3.6 or later, and keep their data through an upgrade.
var MinimumTalos = talos113.MinimumHostUpgradeVersion

// Upgradeable says whether this hub upgrades machines that run a Talos version.
func Upgradeable(version semver.Version) bool {
	version.Pre = nil
	return version.GTE(MinimumTalos)
}

// etcdSince are the minors of etcd that come with Talos, by the first Talos that has each.
var etcdSince = []struct {
	talos semver.Version
	etcd  string
}{
	{semver.MustParse("1.14.0"), "3.7"},
	{MinimumTalos, "3.6"},
}

// Etcd is the minor version of etcd that a Talos version comes with, or nothing if that is not known.
func Etcd(talos semver.Version) string {
	talos.Pre = nil
	for _, row := range etcdSince {
		if talos.GTE(row.talos) {
			return row.etcd
		}
	}
	return ""
}

// TalosUpgrade says what speaks against going from one Talos version to another; nil means nothing.
func TalosUpgrade(from, to string) (*Objection, error) {
	fromVersion, err := Parse(from)
	if err != nil {
		return nil, err
	}
	toVersion, err := Parse(to)
	if err != nil {
		return nil, err
	}
	switch newest := newestKnown(); {
	case len(toVersion.Pre) > 0:
		return &Objection{Message: fmt.Sprintf("%s is not a final version", to)}, nil
	case toVersion.Major > newest.Major || (toVersion.Major == newest.Major && toVersion.Minor > newest.Minor):
		return &Objection{Message: fmt.Sprintf("this hub knows Talos up to v%d.%d, and not %s", newest.Major, newest.Minor, to), Help: "upgrade the hub first"}, nil
	case toVersion.LT(fromVersion):
		return &Objection{Message: fmt.Sprintf("%s is older than the running %s: a downgrade is no upgrade", to, from)}, nil
	}
	if err := upgradeable(fromVersion, toVersion); err != nil {
		return &Objection{Message: fmt.Sprintf("%s does not follow %s: %s", to, from, err)}, nil
	}
	if toVersion.Major == fromVersion.Major && toVersion.Minor > fromVersion.Minor+1 {
		return &Objection{Overridable: true, Message: fmt.Sprintf("%s skips a minor version after %s: go by way of the latest v%d.%d first", to, from, fromVersion.Major, fromVersion.Minor+1)}, nil
	}
	return nil, nil
}

// newestKnown is the newest Talos whose rules this build knows.
func newestKnown() semver.Version {
	return semver.MustParse(strings.TrimPrefix(gendata.VersionTag, "v"))
}

func upgradeable(from, to semver.Version) error {
	host, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: "v" + from.String()})
	if err != nil {
		return err
	}
	next, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: "v" + to.String()})
	if err != nil {
		return err
	}
	return next.UpgradeableFrom(host)
}

// KubernetesOn says what speaks against running a Kubernetes version on a Talos version; nil means nothing.
func KubernetesOn(talos, kubernetes string) (*Objection, error) {
	talosVersion, err := Parse(talos)
	if err != nil {
		return nil, err
	}
	if _, err := Parse(kubernetes); err != nil {
		return nil, err
	}
	host, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: "v" + talosVersion.String()})
	if err != nil {
		return nil, err
	}
	running, err := compatibility.ParseKubernetesVersion(strings.TrimPrefix(kubernetes, "v"))
	if err != nil {
		return nil, err
	}
	if err := running.SupportedWith(host); err != nil {
		return &Objection{Overridable: true, Message: fmt.Sprintf("Talos %s does not support the running Kubernetes %s: %s", talos, kubernetes, err)}, nil
	}
	return nil, nil
}
