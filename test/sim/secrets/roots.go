// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"reflect"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
)

// Roots are what Talos takes from a machine config before it issues anything. They are the specs of its resources, and read both
// forms of the config.
type Roots struct {
	// OS is for the Talos API.
	OS *secrets.OSRootSpec
	// Kubernetes and Etcd are those of control planes only.
	Kubernetes *secrets.KubernetesRootSpec
	Etcd       *secrets.EtcdRootSpec
	// Kubelet is for the kubelet.
	Kubelet *secrets.KubeletSpec
}

// RootsOf reads a config.
func RootsOf(c config.Provider, controlPlane bool) (*Roots, error) {
	if c.Machine() == nil || c.Cluster() == nil {
		return nil, errors.New("the machine config has no machine or no cluster section")
	}
	roots := &Roots{OS: osRoot(c)}
	var err error
	if roots.Kubelet, err = kubeletRoot(c); err != nil {
		return nil, err
	}
	if !controlPlane {
		return roots, nil
	}
	if roots.Kubernetes, err = kubernetesRoot(c); err != nil {
		return nil, err
	}
	if roots.Kubernetes != nil && c.Cluster().Etcd().CA() != nil {
		roots.Etcd = &secrets.EtcdRootSpec{EtcdCA: c.Cluster().Etcd().CA()}
	}
	return roots, nil
}

// SameFiles says whether no file needs to change for other roots.
func (r *Roots) SameFiles(other *Roots) bool {
	return r.SameKubernetes(other) && r.SameKubelet(other) && reflect.DeepEqual(r.Etcd, other.Etcd)
}

// SameKubernetes says whether the static pods need no restart for other roots.
func (r *Roots) SameKubernetes(other *Roots) bool {
	return r != nil && other != nil && reflect.DeepEqual(r.Kubernetes, other.Kubernetes)
}

// SameKubelet says whether the kubelet needs no restart for other roots.
func (r *Roots) SameKubelet(other *Roots) bool {
	return r != nil && other != nil && reflect.DeepEqual(r.Kubelet, other.Kubelet)
}

// SameOS says whether the Talos API needs no new certificates for other roots.
func (r *Roots) SameOS(other *Roots) bool {
	return r != nil && other != nil && reflect.DeepEqual(r.OS, other.OS)
}

// osRoot has the own CA among the accepted ones. Without its key, as on workers, nothing is issued from it.
func osRoot(c config.Provider) *secrets.OSRootSpec {
	security := c.Machine().Security()
	root := &secrets.OSRootSpec{IssuingCA: security.IssuingCA(), AcceptedCAs: security.AcceptedCAs(), Token: security.Token()}
	if root.IssuingCA != nil {
		root.AcceptedCAs = append(root.AcceptedCAs, &x509.PEMEncodedCertificate{Crt: root.IssuingCA.Crt})
		if len(root.IssuingCA.Key) == 0 {
			root.IssuingCA = nil
		}
	}
	for _, name := range security.CertSANs() {
		if ip, err := netip.ParseAddr(name); err == nil {
			root.CertSANIPs = append(root.CertSANIPs, ip)
		} else {
			root.CertSANDNSNames = append(root.CertSANDNSNames, name)
		}
	}
	if c.K8sTalosAPIAccessConfig() != nil {
		root.CertSANDNSNames = append(root.CertSANDNSNames, constants.KubernetesTalosAPIServiceName,
			constants.KubernetesTalosAPIServiceName+"."+constants.KubernetesTalosAPIServiceNamespace)
	}
	return root
}

// kubernetesRoot is nil while the config lacks something that Talos waits for.
func kubernetesRoot(c config.Provider) (*secrets.KubernetesRootSpec, error) {
	server, cluster := c.K8sAPIServerConfig(), c.K8sClusterConfig()
	ca, aggregator, account := c.K8sAPIServerCAConfig(), c.K8sAggregatorCAConfig(), c.K8sServiceAccountConfig()
	if server == nil || cluster == nil || ca == nil || aggregator == nil || account == nil {
		return nil, nil //nolint:nilnil // Nothing is rendered, which is no error.
	}
	local, err := localEndpoint(c)
	if err != nil {
		return nil, err
	}
	root := &secrets.KubernetesRootSpec{
		Name: cluster.ClusterName(), Endpoint: cluster.ClusterEndpoint(), LocalEndpoint: local, CertSANs: server.CertSANs(),
		IssuingCA: ca.IssuingCA(), AcceptedCAs: ca.AcceptedCAs(),
		AggregatorCA: aggregator.IssuingCA(), AcceptedAggregatorCAs: aggregator.AcceptedCAs(),
		ServiceAccount: account.IssuingKey(), ServiceAccountAcceptedKeys: account.AcceptedKeys(),
		IssuerURL: account.IssuerURL(), AcceptedIssuers: account.AcceptedIssuers(), APIAudiences: account.APIAudiences(),
		AESCBCEncryptionSecret:    c.Cluster().AESCBCEncryptionSecret(),
		SecretboxEncryptionSecret: c.Cluster().SecretboxEncryptionSecret(),
		BootstrapTokenID:          c.Cluster().Token().ID(), BootstrapTokenSecret: c.Cluster().Token().Secret(),
	}
	if network := c.K8sNetworkConfig(); network != nil {
		root.DNSDomain, root.APIServerIPs = network.DNSDomain(), k8s.APIServerServiceAddrs(network.ServiceCIDRs())
	}
	if encryption := c.K8sEtcdEncryptionConfig(); encryption != nil {
		root.EtcdEncryptionConfig = encryption.EtcdEncryptionConfig()
	}
	if root.IssuingCA == nil {
		return nil, errors.New("the Kubernetes CA of a control plane needs its key")
	}
	return root, nil
}

// localEndpoint is where a control plane's own components find an API server.
func localEndpoint(c config.Provider) (*url.URL, error) {
	var address string
	if prism := c.K8sKubePrismConfig(); prism != nil {
		address = fmt.Sprintf("https://127.0.0.1:%d", prism.Port())
	} else {
		address = fmt.Sprintf("https://localhost:%d", c.K8sAPIServerConfig().APIPort())
	}
	endpoint, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("local endpoint %s: %w", address, err)
	}
	return endpoint, nil
}

func kubeletRoot(c config.Provider) (*secrets.KubeletSpec, error) {
	cluster, ca := c.K8sClusterConfig(), c.K8sAPIServerCAConfig()
	if cluster == nil || c.K8sAPIServerConfig() == nil {
		return nil, errors.New("the machine config names no Kubernetes endpoint")
	}
	root := &secrets.KubeletSpec{
		Endpoint:         cluster.ClusterEndpoint(),
		BootstrapTokenID: c.Cluster().Token().ID(), BootstrapTokenSecret: c.Cluster().Token().Secret(),
	}
	if c.K8sKubePrismConfig() != nil || c.Machine().Type().IsControlPlane() {
		local, err := localEndpoint(c)
		if err != nil {
			return nil, err
		}
		root.Endpoint = local
	}
	if ca != nil {
		root.AcceptedCAs = ca.AcceptedCAs()
	}
	if len(root.AcceptedCAs) == 0 {
		return nil, errors.New("the machine config accepts no Kubernetes CA")
	}
	return root, nil
}

// bundle is how Talos writes several certificates to one file.
func bundle(certificates []*x509.PEMEncodedCertificate) []byte {
	var buf bytes.Buffer
	for _, c := range certificates {
		buf.Write(c.Crt)
	}
	return buf.Bytes()
}
