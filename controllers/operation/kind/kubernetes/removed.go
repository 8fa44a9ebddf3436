// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"

	"ichor.maesh.dev/hub/controllers/operation/kind/kubernetes/machineimage"
	"ichor.maesh.dev/hub/controllers/versions"
)

// removal is what a minor version of Kubernetes does not know any more, by its changelog: a component that is told it ends at once.
type removal struct {
	// minor is the version without it, such as 36 of 1.36.
	minor uint64

	// gates are feature gates, of every component; plugins are admission plugins of the API server.
	gates, plugins []string

	// flags are command line flags, by component.
	flags map[machineimage.Component][]string

	// apis are what was stored as alpha or beta and is not served any more, as resource.version.group.
	apis []string
}

// removals are the rows of every minor version that a supported Talos can go to.
var removals = []removal{
	{
		minor: 32,
		gates: []string{
			"AllowServiceLBStatusOnNonLB", "CloudDualStackNodeIPs", "DRAControlPlaneController", "HPAContainerMetrics", "KMSv2", "KMSv2KDF",
			"LegacyServiceAccountTokenCleanUp", "MinDomainsInPodTopologySpread", "NewVolumeManagerReconstruction", "NodeOutOfServiceVolumeDetach",
			"ServerSideApply", "ServerSideFieldValidation", "StableLoadBalancerNodeSet", "ValidatingAdmissionPolicy", "ZeroLimitedNominalConcurrencyShares",
		},
		apis: []string{"podschedulingcontexts.v1alpha3.resource.k8s.io"},
	},
	{
		minor: 33,
		gates: []string{
			"AppArmor", "AppArmorFields", "CPUManager", "DisableCloudProviders", "DisableKubeletCloudCredentialProviders", "JobPodFailurePolicy",
			"KubeProxyDrainingTerminatingNodes", "PDBUnhealthyPodEvictionPolicy", "PersistentVolumeLastPhaseTransitionTime", "VolumeCapacityPriority",
		},
		flags: map[machineimage.Component][]string{machineimage.APIServer: {"cloud-config"}},
	},
	{
		minor: 34,
		gates: []string{"DevicePluginCDIDevices", "LegacySidecarContainers", "PodDisruptionConditions"},
		flags: map[machineimage.Component][]string{machineimage.Kubelet: {"cloud-config"}},
	},
	{
		minor: 35,
		gates: []string{"SizeMemoryBackedVolumes", "UserNamespacesHostNetworkSupport"},
		flags: map[machineimage.Component][]string{machineimage.Kubelet: {"pod-infra-container-image"}},
	},
	{
		minor: 36,
		gates: []string{"CSIMigrationPortworx", "HonorPVReclaimPolicy", "InTreePluginPortworxUnregister", "WatchFromStorageWithoutResourceVersion"},
	},
	{
		minor: 37,
		gates: []string{"AnyVolumeDataSource", "DeclarativeValidationTakeover", "GangScheduling", "PreventStaticPodAPIReferences", "WorkloadAwarePreemption"},
		flags: map[machineimage.Component][]string{machineimage.Kubelet: {
			"application-metrics-count-limit", "boot-id-file", "container-hints", "containerd", "containerd-namespace", "enable-load-reader",
			"event-storage-age-limit", "event-storage-event-limit", "global-housekeeping-interval", "log-cadvisor-usage", "machine-id-file",
			"storage-driver-buffer-duration", "storage-driver-db", "storage-driver-host", "storage-driver-password", "storage-driver-secure",
			"storage-driver-table", "storage-driver-user",
		}},
		apis: []string{"workloads.v1alpha2.scheduling.k8s.io", "podgroups.v1alpha2.scheduling.k8s.io"},
	},
}

// removedBetween are the rows of the versions after one up to another.
func removedBetween(from, to string) []removal {
	was, errWas := versions.Parse(from)
	is, errIs := versions.Parse(to)
	if errWas != nil || errIs != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(removals), func(r removal) bool { return r.minor <= was.Minor || r.minor > is.Minor })
}

// objects says which of a component's arguments the versions after one do not know any more; nothing if they know all.
func objects(component machineimage.Component, args []string, from, to string) string {
	for _, r := range removedBetween(from, to) {
		for _, known := range []struct {
			what  string
			used  []string
			known []string
		}{
			{"flag", flagNames(args), r.flags[component]},
			{"feature gate", listed(args, featureGates, "="), r.gates},
			{"admission plugin", listed(args, admissionPlugins, ""), r.plugins},
		} {
			for _, name := range known.known {
				if slices.Contains(known.used, name) {
					return fmt.Sprintf("%s has %s %s, which v1.%d does not know any more", component, known.what, name, r.minor)
				}
			}
		}
	}
	return ""
}

const (
	featureGates     = "feature-gates"
	admissionPlugins = "enable-admission-plugins"
)

// flagNames are the flags of a command line.
func flagNames(args []string) []string {
	var names []string
	for _, arg := range args {
		if name, ok := strings.CutPrefix(arg, "--"); ok {
			name, _, _ = strings.Cut(name, "=")
			names = append(names, name)
		}
	}
	return names
}

// listed are the elements of the lists that a flag is given, up to a separator in each.
func listed(args []string, flag, until string) []string {
	var elements []string
	for _, arg := range args {
		list, ok := strings.CutPrefix(arg, "--"+flag+"=")
		if !ok {
			continue
		}
		for _, element := range strings.Split(list, ",") {
			if until != "" {
				element, _, _ = strings.Cut(element, until)
			}
			elements = append(elements, element)
		}
	}
	return elements
}

// removedBy says whether something that is removed in a minor version such as 1.36 is gone in a version.
func removedBy(removedIn, version string) bool {
	at, err := semver.ParseTolerant(removedIn)
	is, errIs := versions.Parse(version)
	return removedIn != "" && err == nil && errIs == nil && (at.Major < is.Major || (at.Major == is.Major && at.Minor <= is.Minor))
}
