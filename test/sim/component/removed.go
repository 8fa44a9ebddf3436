// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
)

// removal is something that parts of Kubernetes stopped to understand: a flag, or a feature gate. A part that is started with it ends
// at once.
type removal struct {
	since string // The first version without it.
	parts []string
	flag  string // Empty for a feature gate.
	gate  string
}

var everywhere = []string{APIServer, ControllerManager, Scheduler, Kubelet}

// removals are some of what the change logs of Kubernetes list, enough for each part to have one at each step.
var removals = []removal{
	{since: "1.34.0", parts: []string{Kubelet}, flag: "cloud-config"},
	{since: "1.34.0", parts: everywhere, gate: "PodDisruptionConditions"},
	{since: "1.35.0", parts: []string{Kubelet}, flag: "pod-infra-container-image"},
	{since: "1.35.0", parts: everywhere, gate: "SizeMemoryBackedVolumes"},
	{since: "1.36.0", parts: everywhere, gate: "HonorPVReclaimPolicy"},
	{since: "1.36.0", parts: everywhere, gate: "WatchFromStorageWithoutResourceVersion"},
	{since: "1.36.0", parts: everywhere, gate: "CSIMigrationPortworx"},
	{since: "1.37.0", parts: everywhere, gate: "AnyVolumeDataSource"},
	{since: "1.37.0", parts: []string{Kubelet}, flag: "event-storage-age-limit"},
	{since: "1.37.0", parts: []string{Kubelet}, flag: "global-housekeeping-interval"},
}

// Trouble says why the part ends as soon as it is started; nothing means that it runs.
func (p Part) Trouble() string {
	version, err := semver.ParseTolerant(p.Version)
	if err != nil {
		return ""
	}
	version.Pre = nil
	for _, r := range removals {
		if version.LT(semver.MustParse(r.since)) || !slices.Contains(r.parts, p.Name) {
			continue
		}
		if r.flag != "" && p.has(r.flag) {
			return "unknown flag: --" + r.flag
		}
		if r.gate != "" && p.gated(r.gate) {
			return fmt.Sprintf("invalid argument for \"--feature-gates\" flag: unrecognized feature gate: %s", r.gate)
		}
	}
	return ""
}

func (p Part) has(flag string) bool {
	return slices.ContainsFunc(p.Args, func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return name == "--"+flag
	})
}

func (p Part) gated(gate string) bool {
	for _, arg := range p.Args {
		gates, ok := strings.CutPrefix(arg, "--feature-gates=")
		if !ok {
			continue
		}
		for setting := range strings.SplitSeq(gates, ",") {
			if name, _, _ := strings.Cut(setting, "="); name == gate {
				return true
			}
		}
	}
	return false
}
