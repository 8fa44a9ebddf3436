// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"cmp"
	"strings"

	"github.com/blang/semver/v4"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// rule says what it takes to bring changes of a field in force.
type rule struct {
	// pattern is the kind of the document and the beginning of the path, in which * stands for any key.
	pattern string

	effect v1alpha1.ConfigEffect

	// from and before are minors of Talos 1 between which the rule holds; zero is no bound.
	from, before uint64

	// only limits the rule to one operation.
	only operation
}

const (
	live    = v1alpha1.ConfigEffectLive
	reboot  = v1alpha1.ConfigEffectReboot
	upgrade = v1alpha1.ConfigEffectUpgrade
)

// table is what is known of fields. The first rule that matches a change wins; what no rule matches needs a reboot. The fields of the main
// document that are live are those which Talos 1.13 itself applies without a reboot, but for what a service that nobody can restart, or the
// kernel, reads at its start only.
var table = []rule{
	// Read when Talos is installed or upgraded.
	{pattern: "v1alpha1.machine.install", effect: upgrade},
	{pattern: "UnattendedInstallConfig", effect: upgrade},

	// etcd reads its arguments when it starts, and only a reboot starts it again.
	{pattern: "v1alpha1.cluster.etcd", effect: reboot},
	// A module that is loaded stays as it is.
	{pattern: "v1alpha1.machine.kernel", effect: live, only: added},
	{pattern: "v1alpha1.machine.kernel", effect: reboot},
	{pattern: "KernelModuleConfig", effect: live, only: added},
	{pattern: "KernelModuleConfig", effect: reboot},
	// Before 1.14 the container runtime reads how it signs in when it starts.
	{pattern: "v1alpha1.machine.registries.config.*.auth", effect: reboot, before: 14},
	{pattern: "RegistryAuthConfig", effect: reboot, before: 14},
	{pattern: "RegistryAuthConfig", effect: live, from: 14},

	{pattern: "v1alpha1.version", effect: reboot},
	{pattern: "v1alpha1.debug", effect: live},
	{pattern: "v1alpha1.cluster", effect: live},
	{pattern: "v1alpha1.machine.ca", effect: live},
	{pattern: "v1alpha1.machine.acceptedCAs", effect: live},
	{pattern: "v1alpha1.machine.time", effect: live},
	{pattern: "v1alpha1.machine.certSANs", effect: live},
	{pattern: "v1alpha1.machine.network", effect: live},
	{pattern: "v1alpha1.machine.sysfs", effect: live},
	{pattern: "v1alpha1.machine.sysctls", effect: live},
	{pattern: "v1alpha1.machine.logging", effect: live},
	{pattern: "v1alpha1.machine.controlPlane", effect: live},
	{pattern: "v1alpha1.machine.kubelet", effect: live},
	{pattern: "v1alpha1.machine.registries", effect: live},
	{pattern: "v1alpha1.machine.pods", effect: live},
	{pattern: "v1alpha1.machine.seccompProfiles", effect: live},
	{pattern: "v1alpha1.machine.nodeAnnotations", effect: live},
	{pattern: "v1alpha1.machine.nodeLabels", effect: live},
	{pattern: "v1alpha1.machine.nodeTaints", effect: live},
	{pattern: "v1alpha1.machine.features.kubernetesTalosAPIAccess", effect: live},
	{pattern: "v1alpha1.machine.features.kubePrism", effect: live},
	{pattern: "v1alpha1.machine.features.hostDNS", effect: live},
	{pattern: "v1alpha1.machine.features.imageCache", effect: live},
	{pattern: "v1alpha1.machine.features.nodeAddressSortAlgorithm", effect: live},

	// Keys of encrypted volumes are used when they are opened.
	{pattern: "UserVolumeConfig.encryption", effect: reboot},
	{pattern: "RawVolumeConfig.encryption", effect: reboot},
	{pattern: "SwapVolumeConfig.encryption", effect: reboot},
	{pattern: "UserVolumeConfig", effect: live, only: added},
	{pattern: "RawVolumeConfig", effect: live, only: added},
	{pattern: "SwapVolumeConfig", effect: live, only: added},
	{pattern: "ExistingVolumeConfig", effect: live, only: added},
	{pattern: "ExternalVolumeConfig", effect: live, only: added},
}

// liveDocuments are the kinds of documents that Talos' controllers bring in force as they change.
var liveDocuments = []string{
	"BlackholeRouteConfig", "BondConfig", "BridgeConfig", "DHCPv4Config", "DHCPv6Config", "DummyLinkConfig", "EthernetConfig", "EventSinkConfig",
	"ExtensionServiceConfig", "HCloudVIPConfig", "HTTPProbeConfig", "HostnameConfig", "KmsgLogConfig", "KubeAPIServerCAConfig", "KubeAPIServerConfig",
	"KubeAdmissionControlConfig", "KubeAggregatorCAConfig", "KubeAuditPolicyConfig", "KubeAuthenticationConfig", "KubeAuthorizerConfig",
	"KubeClusterConfig", "KubeControllerManagerConfig", "KubeCoreDNSConfig", "KubeCredentialProviderConfig", "KubeEtcdEncryptionConfig",
	"KubeExternalManifestConfig", "KubeFlannelCNIConfig", "KubeInlineManifestConfig", "KubeNetworkConfig", "KubeNodeConfig", "KubePrismConfig",
	"KubeProxyConfig", "KubeSchedulerConfig", "KubeServiceAccountConfig", "KubeSpanConfig", "KubeSpanEndpoints", "KubeStaticPodConfig",
	"KubeTalosAPIAccessConfig", "KubeletConfig", "Layer2VIPConfig", "LinkAliasConfig", "LinkConfig", "NetworkDefaultActionConfig",
	"NetworkRuleConfig", "OOMConfig", "RegistryMirrorConfig", "RegistryTLSConfig", "ResolverConfig", "RoutingRuleConfig", "StaticHostConfig",
	"SysctlConfig", "SysfsConfig", "TCPProbeConfig", "TimeSyncConfig", "TrustedRootsConfig", "VLANConfig", "VRFConfig", "VethConfig",
	"WatchdogTimerConfig", "WireguardConfig", "ZswapConfig",
}

var isLiveDocument = func() map[string]bool {
	kinds := map[string]bool{}
	for _, kind := range liveDocuments {
		kinds[kind] = true
	}
	return kinds
}()

// effectOf is the worst that changes need on a version of Talos, and the first of the fields that need it.
func effectOf(list []change, version string) (v1alpha1.ConfigEffect, string) {
	worst, field := v1alpha1.ConfigEffectNone, ""
	minor := minorOf(version)
	for _, c := range list {
		if effect := classify(c, minor); weight[effect] > weight[worst] {
			worst, field = effect, c.String()
		}
	}
	return worst, field
}

// weight orders effects. What waits for an upgrade is brought to the machine without a reboot.
var weight = map[v1alpha1.ConfigEffect]int{v1alpha1.ConfigEffectNone: 0, upgrade: 1, live: 2, reboot: 3}

func classify(c change, minor uint64) v1alpha1.ConfigEffect {
	keys := append([]string{c.kind}, c.path.keys()...)
	for _, r := range table {
		bounded := (r.from == 0 || minor >= r.from) && (r.before == 0 || minor < r.before)
		if bounded && (r.only == "" || r.only == c.what) && matches(keys, r.pattern) {
			return r.effect
		}
	}
	if isLiveDocument[c.kind] {
		return live
	}
	return reboot
}

// minorOf is the minor of a version of Talos 1; zero, for which nothing newer holds, if it is not known.
func minorOf(version string) uint64 {
	parsed, err := semver.Parse(strings.TrimPrefix(version, "v"))
	if err != nil || parsed.Major != 1 {
		return 0
	}
	return parsed.Minor
}

// since are the minors of Talos 1 from which on machines read kinds of documents, where that is later than the oldest that is managed.
var since = map[string]uint64{
	"BlackholeRouteConfig": 13, "EnvironmentConfig": 13, "ExternalVolumeConfig": 13, "ImageVerificationConfig": 13, "KubeSpanConfig": 13,
	"RoutingRuleConfig": 13, "TCPProbeConfig": 13, "VRFConfig": 13,

	"BGPInstanceConfig": 14, "CRIBaseRuntimeSpecConfig": 14, "CRICustomizationConfig": 14, "ContainerConfig": 14, "DiscoveryIdentityConfig": 14,
	"DiscoveryServiceConfig": 14, "EtcFileConfig": 14, "FilesystemScrubConfig": 14, "FilesystemTrimConfig": 14, "HTTPProbeConfig": 14,
	"ImageCacheConfig": 14, "KernelModuleConfig": 14, "KubeAPIServerCAConfig": 14, "KubeAPIServerConfig": 14, "KubeAdmissionControlConfig": 14,
	"KubeAggregatorCAConfig": 14, "KubeAuditPolicyConfig": 14, "KubeAuthenticationConfig": 14, "KubeAuthorizerConfig": 14, "KubeClusterConfig": 14,
	"KubeControllerManagerConfig": 14, "KubeCoreDNSConfig": 14, "KubeCredentialProviderConfig": 14, "KubeEtcdEncryptionConfig": 14,
	"KubeExternalManifestConfig": 14, "KubeFlannelCNIConfig": 14, "KubeInlineManifestConfig": 14, "KubeNetworkConfig": 14, "KubeNodeConfig": 14,
	"KubePrismConfig": 14, "KubeProxyConfig": 14, "KubeSchedulerConfig": 14, "KubeServiceAccountConfig": 14, "KubeStaticPodConfig": 14,
	"KubeTalosAPIAccessConfig": 14, "KubeletConfig": 14, "LVMLogicalVolumeConfig": 14, "LVMVolumeGroupConfig": 14, "RAIDArrayConfig": 14,
	"SecurityProfileConfig": 14, "SysctlConfig": 14, "SysfsConfig": 14, "UdevRulesConfig": 14, "UnattendedInstallConfig": 14, "VethConfig": 14,
}

// tooNew is a kind of document that the machine does not read, among those that are not there yet; nothing means that there is none.
func tooNew(documents, own []document, version string) (kind string, minor uint64) {
	running := minorOf(version)
	for _, d := range documents {
		if _, there := withID(own, d.id()); !there && running != 0 && since[d.kind] > running {
			kind, minor = cmp.Or(kind, d.kind), cmp.Or(minor, since[d.kind])
		}
	}
	return kind, minor
}
