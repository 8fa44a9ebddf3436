// SPDX-License-Identifier: Apache-2.0

package component

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
)

// Set is what one machine config says about Kubernetes. Machines with one config share it; nobody changes it.
type Set struct {
	// APIServer, ControllerManager and Scheduler are the specs of the resources that Talos derives from the config, of control
	// planes only.
	APIServer         *k8s.APIServerConfigSpec
	ControllerManager *k8s.ControllerManagerConfigSpec
	Scheduler         *k8s.SchedulerConfigSpec
	// Bootstrap is what the bootstrap manifests are rendered from, of control planes only.
	Bootstrap *k8s.BootstrapManifestsConfigSpec
	// Kubelet is the spec of the kubelet without the node's name.
	Kubelet k8s.KubeletSpecSpec

	parts     map[string]Part
	rendering rendering
}

// Of reads a config.
func Of(c config.Provider, controlPlane bool) *Set {
	s := &Set{parts: map[string]Part{}}
	s.readKubelet(c)
	if controlPlane {
		s.readAPIServer(c)
		s.readControllerManager(c)
		s.readScheduler(c)
		s.readBootstrap(c)
	}
	return s
}

// Part returns what the config says about a part, and whether it is to run at all.
func (s *Set) Part(name string) (Part, bool) {
	p, ok := s.parts[name]
	return p, ok
}

func (s *Set) add(name, image string, args []string) {
	s.parts[name] = Part{Name: name, Image: image, Args: args, Version: versionOf(image)}
}

func (s *Set) readKubelet(c config.Provider) {
	kubelet := c.K8sKubeletConfig()
	if kubelet == nil {
		return
	}
	args := arguments{
		"config": {"/etc/kubernetes/kubelet.yaml"}, "cert-dir": {constants.KubeletPKIDir},
		"bootstrap-kubeconfig": {constants.KubeletBootstrapKubeconfig}, "kubeconfig": {constants.KubeletKubeconfig},
	}
	args.override(kubelet.ExtraArgs())
	s.Kubelet = k8s.KubeletSpecSpec{
		Image: kubelet.Image(), Args: args.lines(), ExtraMounts: kubelet.ExtraMounts(), Config: kubelet.ExtraConfig(),
	}
	s.add(Kubelet, kubelet.Image(), s.Kubelet.Args)
}

func (s *Set) readAPIServer(c config.Provider) {
	server, network, cluster := c.K8sAPIServerConfig(), c.K8sNetworkConfig(), c.K8sClusterConfig()
	if server == nil || network == nil || cluster == nil {
		return
	}
	args := arguments{
		"advertise-address": {"$(POD_IP)"}, "allow-privileged": {"true"}, "bind-address": {"0.0.0.0"},
		"client-ca-file":           {constants.KubernetesAPIServerSecretsDir + "/ca.crt"},
		"enable-admission-plugins": {"NodeRestriction"}, "etcd-servers": {"https://127.0.0.1:2379"}, "profiling": {"false"},
		"secure-port": {strconv.Itoa(server.APIPort())}, "service-cluster-ip-range": {joined(network.ServiceCIDRs())},
	}
	args.add(server.ExtraArgs(), "enable-admission-plugins")
	s.APIServer = &k8s.APIServerConfigSpec{
		Image: server.Image(), ControlPlaneEndpoint: cluster.ClusterEndpoint().String(), EtcdServers: args["etcd-servers"],
		LocalPort: server.APIPort(), ServiceCIDRs: texts(network.ServiceCIDRs()), ExtraArgs: values(server.ExtraArgs()),
		ExtraVolumes: volumes(server.ExtraVolumes()), EnvironmentVariables: server.Env(), AdvertisedAddress: "$(POD_IP)",
		Resources: resources(server.Resources()), StartupProbesEnabled: server.StartupProbesEnabled(),
		UseAuthenticationConfig: server.UseAuthenticationConfig(),
	}
	s.add(APIServer, server.Image(), args.lines())
}

func (s *Set) readControllerManager(c config.Provider) {
	manager, network := c.K8sControllerManagerConfig(), c.K8sNetworkConfig()
	if manager == nil || network == nil {
		return
	}
	args := arguments{
		"allocate-node-cidrs": {"true"}, "bind-address": {"127.0.0.1"}, "cluster-cidr": {joined(network.PodCIDRs())},
		"controllers": {"*"}, "leader-elect": {"true"}, "profiling": {"false"},
		"kubeconfig":               {constants.KubernetesControllerManagerSecretsDir + "/kubeconfig"},
		"service-cluster-ip-range": {joined(network.ServiceCIDRs())}, "use-service-account-credentials": {"true"},
	}
	args.add(manager.ExtraArgs(), "controllers", "service-cluster-ip-range")
	s.ControllerManager = &k8s.ControllerManagerConfigSpec{
		Enabled: manager.Enabled(), Image: manager.Image(), PodCIDRs: texts(network.PodCIDRs()),
		ServiceCIDRs: texts(network.ServiceCIDRs()), ExtraArgs: values(manager.ExtraArgs()),
		ExtraVolumes: volumes(manager.ExtraVolumes()), EnvironmentVariables: manager.Env(),
		Resources: resources(manager.Resources()), NodeCIDRMaskSizeIPv4: network.NodeCIDRMaskSizeIPv4(),
		NodeCIDRMaskSizeIPv6: network.NodeCIDRMaskSizeIPv6(),
	}
	if manager.Enabled() {
		s.add(ControllerManager, manager.Image(), args.lines())
	}
}

func (s *Set) readScheduler(c config.Provider) {
	scheduler := c.K8sSchedulerConfig()
	if scheduler == nil {
		return
	}
	args := arguments{
		"bind-address": {"127.0.0.1"}, "config": {constants.KubernetesSchedulerConfigDir + "/scheduler-config.yaml"},
		"leader-elect": {"true"}, "profiling": {"false"},
	}
	args.add(scheduler.ExtraArgs())
	s.Scheduler = &k8s.SchedulerConfigSpec{
		Enabled: scheduler.Enabled(), Image: scheduler.Image(), ExtraArgs: values(scheduler.ExtraArgs()), Config: scheduler.Config(),
		ExtraVolumes: volumes(scheduler.ExtraVolumes()), EnvironmentVariables: scheduler.Env(),
		Resources: resources(scheduler.Resources()),
	}
	if scheduler.Enabled() {
		s.add(Scheduler, scheduler.Image(), args.lines())
	}
}

// arguments are a command line by the names of its flags.
type arguments map[string][]string

func (a arguments) override(extra map[string][]string) { maps.Copy(a, extra) }

// add is override, but for flags whose values add up. Feature gates always do.
func (a arguments) add(extra map[string][]string, additive ...string) {
	for name, more := range extra {
		if (name == "feature-gates" || slices.Contains(additive, name)) && len(a[name]) > 0 {
			more = []string{strings.Join(append(slices.Clone(a[name]), more...), ",")}
		}
		a[name] = more
	}
}

func (a arguments) lines() []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		for _, value := range a[name] {
			lines = append(lines, "--"+name+"="+value)
		}
	}
	return lines
}

func texts(prefixes []netip.Prefix) []string {
	list := make([]string, 0, len(prefixes))
	for _, p := range prefixes {
		list = append(list, p.String())
	}
	return list
}

func joined(prefixes []netip.Prefix) string { return strings.Join(texts(prefixes), ",") }

func values(args map[string][]string) map[string]k8s.ArgValues {
	list := make(map[string]k8s.ArgValues, len(args))
	for name, of := range args {
		list[name] = k8s.ArgValues{Values: of}
	}
	return list
}

func volumes(mounts []talosconfig.VolumeMount) []k8s.ExtraVolume {
	list := make([]k8s.ExtraVolume, 0, len(mounts))
	for _, m := range mounts {
		list = append(list, k8s.ExtraVolume{Name: m.Name(), HostPath: m.HostPath(), MountPath: m.MountPath(), ReadOnly: m.ReadOnly()})
	}
	return list
}

func resources(r talosconfig.Resources) k8s.Resources {
	return k8s.Resources{
		Requests: map[string]string{"cpu": r.CPURequests(), "memory": r.MemoryRequests()},
		Limits:   map[string]string{"cpu": r.CPULimits(), "memory": r.MemoryLimits()},
	}
}

// Spec is what a part is started from, to compare with that of another set. Nil means that nothing is started.
func (s *Set) Spec(name string) any {
	switch {
	case name == APIServer && s.APIServer != nil:
		return *s.APIServer
	case name == ControllerManager && s.ControllerManager != nil:
		return *s.ControllerManager
	case name == Scheduler && s.Scheduler != nil:
		return *s.Scheduler
	case name == Kubelet:
		return s.Kubelet
	}
	return nil
}
