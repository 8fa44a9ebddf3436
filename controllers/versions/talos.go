// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"fmt"

	"github.com/blang/semver/v4"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
)

// minimumLifecycle is the first Talos whose installer can be run without a reboot.
var minimumLifecycle = semver.MustParse("1.13.0")

// HasLifecycleAPI says whether a Talos version pulls, installs and reboots by calls of their own. Older ones have one call for all.
func HasLifecycleAPI(version semver.Version) bool {
	version.Pre = nil
	return version.GTE(minimumLifecycle)
}

// MinimumTalos is the oldest Talos that this hub upgrades: the oldest from which one step leads to a Talos with the new API. All of them run
// etcd 3.6 or later, and keep their data through an upgrade.
var MinimumTalos = semver.Version{Major: Talos.known().From.major, Minor: Talos.known().From.minor}

// Upgradeable says whether this hub upgrades machines that run a Talos version.
func Upgradeable(version semver.Version) bool {
	version.Pre = nil
	return version.GTE(MinimumTalos)
}

// Etcd is the minor version of etcd that a Talos version comes with, or nothing if that is not known.
func Etcd(talos semver.Version) string {
	r, _ := Talos.row(minorOf(talos))
	return r.Etcd
}

// TalosUpgrade says what speaks against going from one Talos version to another; nil means nothing.
func TalosUpgrade(from, to string) (*Objection, error) {
	fromVersion, toVersion, err := both(from, to)
	if err != nil {
		return nil, err
	}
	if objection := Talos.step(fromVersion, toVersion, from, to); objection != nil {
		return objection, nil
	}
	if err := upgradeable(fromVersion, toVersion); err != nil {
		return &Objection{Message: fmt.Sprintf("%s does not follow %s: %s", to, from, err)}, nil
	}
	if next := minorOf(fromVersion).next(); minorOf(toVersion).compare(next) > 0 {
		return &Objection{Overridable: true, Message: fmt.Sprintf("%s skips a minor version after %s: go by way of the latest %s first", to, from, next)}, nil
	}
	return nil, nil
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

// ContractFor is the version contract that a Talos version brings where a config is made by an older one; nothing where it is made by none,
// or by one that is as new.
func ContractFor(talos, contract string) string {
	version, err := Parse(talos)
	if err != nil {
		return ""
	}
	made, err := Parse(contract + ".0")
	if err != nil || minorOf(version).compare(minorOf(made)) <= 0 {
		return ""
	}
	return minorOf(version).String()
}
