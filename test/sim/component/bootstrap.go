// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
)

// flannelImage is the one that comes with Talos: no config names it.
const flannelImage = "ghcr.io/siderolabs/flannel:" + constants.FlannelVersion

func (s *Set) readBootstrap(c config.Provider) {
	network, cluster := c.K8sNetworkConfig(), c.K8sClusterConfig()
	if network == nil || cluster == nil {
		return
	}
	s.Bootstrap = &k8s.BootstrapManifestsConfigSpec{
		Server: cluster.ClusterEndpoint().String(), ClusterDomain: network.DNSDomain(), PodCIDRs: texts(network.PodCIDRs()),
		TalosAPIServiceEnabled: c.K8sTalosAPIAccessConfig() != nil, CNIName: constants.NoneCNI,
	}
	if prism := c.K8sKubePrismConfig(); prism != nil {
		s.Bootstrap.Server = fmt.Sprintf("https://127.0.0.1:%d", prism.Port())
	}
	for _, ip := range k8s.DNSServiceAddrs(network.ServiceCIDRs()) {
		switch {
		case ip.Is4() && s.Bootstrap.DNSServiceIP == "":
			s.Bootstrap.DNSServiceIP = ip.String()
		case ip.Is6() && s.Bootstrap.DNSServiceIPv6 == "":
			s.Bootstrap.DNSServiceIPv6 = ip.String()
		}
	}
	s.readAddons(c)
}

func (s *Set) readAddons(c config.Provider) {
	if dns := c.K8sCoreDNSConfig(); dns != nil && dns.Enabled() {
		s.Bootstrap.CoreDNSEnabled, s.Bootstrap.CoreDNSImage = true, dns.Image()
	}
	if proxy := c.K8sProxyConfig(); proxy != nil && proxy.Enabled() {
		args := arguments{
			"cluster-cidr": {joined(c.K8sNetworkConfig().PodCIDRs())}, "hostname-override": {"$(NODE_NAME)"},
			"kubeconfig": {"/etc/kubernetes/kubeconfig"},
		}
		if mode := proxy.Mode(); mode != "" {
			args["proxy-mode"] = []string{mode}
		}
		args.override(proxy.ExtraArgs())
		s.Bootstrap.ProxyEnabled, s.Bootstrap.ProxyImage, s.Bootstrap.ProxyArgs = true, proxy.Image(), args.lines()
		s.Bootstrap.ProxyResources = resources(proxy.Resources())
	}
	if flannel := c.K8sFlannelCNIConfig(); flannel != nil {
		s.Bootstrap.FlannelEnabled, s.Bootstrap.FlannelImage = true, flannelImage
		s.Bootstrap.FlannelBackendType, s.Bootstrap.FlannelExtraArgs = flannel.BackendType(), flannel.ExtraArgs()
		s.Bootstrap.FlannelBackendPort = flannel.BackendPort().ValueOrZero()
		s.Bootstrap.FlannelResources = resources(flannel.Resources())
		s.Bootstrap.CNIName = constants.FlannelCNI
	}
}
