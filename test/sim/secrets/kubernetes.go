// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Files of the API server, the controller manager and the scheduler.
const (
	apiServerDir = constants.KubernetesAPIServerSecretsDir + "/"
	managerDir   = constants.KubernetesControllerManagerSecretsDir + "/"
	schedulerDir = constants.KubernetesSchedulerSecretsDir + "/"

	// APIServer is the serving certificate of the API server, and ClientCA the CAs that it accepts clients of.
	APIServer = apiServerDir + "apiserver.crt"
	ClientCA  = apiServerDir + "ca.crt"
	// ServiceAccountKeys are the public keys that tokens of service accounts are verified with; ServiceAccountKey signs them.
	ServiceAccountKeys = apiServerDir + "service-account.pub"
	ServiceAccountKey  = apiServerDir + "service-account.key"
	// EncryptionConfig says how Secrets are encrypted in etcd.
	EncryptionConfig = apiServerDir + "encryptionconfig.yaml"
	// KubeletClientOfServer is with what the API server calls kubelets, and FrontProxy with what it calls extension servers.
	KubeletClientOfServer = apiServerDir + "apiserver-kubelet-client.crt"
	FrontProxy            = apiServerDir + "front-proxy-client.crt"
	// AggregatorCA are the CAs of such calls.
	AggregatorCA = apiServerDir + "aggregator-ca.crt"
	// EtcdClient is with what the API server calls etcd, and EtcdClientCA is whom it believes to be that.
	EtcdClient   = apiServerDir + "etcd-client.crt"
	EtcdClientCA = apiServerDir + "etcd-client-ca.crt"
	// ManagerCA is from what the controller manager signs certificates.
	ManagerCA = managerDir + "ca.crt"
	// ManagerKubeconfig and SchedulerKubeconfig are how these find the API server.
	ManagerKubeconfig   = managerDir + "kubeconfig"
	SchedulerKubeconfig = schedulerDir + "kubeconfig"
)

func (r *renderer) apiServer() error {
	root := r.roots.Kubernetes
	if root == nil {
		return nil
	}
	names, err := r.serverNames()
	if err != nil {
		return err
	}
	encryption, err := encryptionConfig(root)
	if err != nil {
		return err
	}
	r.files[ClientCA] = bundle(root.AcceptedCAs)
	r.files[AggregatorCA] = bundle(root.AcceptedAggregatorCAs)
	r.files[ServiceAccountKeys], r.files[ServiceAccountKey] = serviceAccountKeys(root), root.ServiceAccount.Key
	r.files[EncryptionConfig] = encryption
	return errors.Join(
		r.put(APIServer, root.IssuingCA, wanted{
			name: "kube-apiserver", organizations: []string{"kube-master"}, dns: names.DNSNames, ips: names.StdIPs(),
			usages: serverOnly, keyUsage: encipher,
		}, root.IssuingCA.Crt),
		r.put(KubeletClientOfServer, root.IssuingCA, wanted{
			name:          constants.KubernetesAPIServerKubeletClientCommonName,
			organizations: []string{constants.KubernetesAdminCertOrganization}, usages: clientOnly, keyUsage: encipher,
		}),
		r.put(FrontProxy, root.AggregatorCA, wanted{name: "front-proxy-client", usages: clientOnly, keyUsage: encipher}),
	)
}

func serviceAccountKeys(root *secrets.KubernetesRootSpec) []byte {
	var keys []byte
	for _, key := range root.ServiceAccountAcceptedKeys {
		keys = append(keys, key.Key...)
	}
	return keys
}

func (r *renderer) serverNames() (*names, error) {
	root, names := r.roots.Kubernetes, &names{}
	names.Append(root.Endpoint.Hostname())
	names.Append(root.CertSANs...)
	names.AppendDNSNames("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc."+root.DNSDomain, "localhost")
	names.AppendIPs(root.APIServerIPs...)
	err := names.own(r.node)
	return names, err
}

func (r *renderer) controllerManager() error {
	root := r.roots.Kubernetes
	if root == nil {
		return nil
	}
	r.files[ManagerCA], r.files[KeyPath(ManagerCA)] = root.IssuingCA.Crt, root.IssuingCA.Key
	r.files[managerDir+"service-account.key"] = root.ServiceAccount.Key
	return r.kubeconfig(ManagerKubeconfig, constants.KubernetesControllerManagerOrganization)
}

func (r *renderer) scheduler() error {
	if r.roots.Kubernetes == nil {
		return nil
	}
	return r.kubeconfig(SchedulerKubeconfig, constants.KubernetesSchedulerOrganization)
}

// kubeconfig writes the kubeconfig of a component, with the certificate that it has already if that will do.
func (r *renderer) kubeconfig(path, component string) error {
	var have *x509.PEMEncodedCertificateAndKey
	if old, err := clientcmd.Load(r.old.Content[path]); err == nil {
		for _, user := range old.AuthInfos {
			have = &x509.PEMEncodedCertificateAndKey{Crt: user.ClientCertificateData, Key: user.ClientKeyData}
		}
	}
	root := r.roots.Kubernetes
	access := access{root: root, user: component, context: "default", endpoint: root.LocalEndpoint}
	data, err := access.kubeconfig(component, component, have, r.now)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	r.files[path] = data
	return nil
}

// access is a way into a cluster.
type access struct {
	root          *secrets.KubernetesRootSpec
	user, context string
	endpoint      *url.URL
}

func (a access) kubeconfig(name, organization string, have *x509.PEMEncodedCertificateAndKey, now time.Time) ([]byte, error) {
	pair, err := issue(a.root.IssuingCA, wanted{name: name, organizations: []string{organization}, usages: clientOnly, keyUsage: encipher}, have, now)
	if err != nil {
		return nil, err
	}
	user, context := a.user+"@"+a.root.Name, a.context+"@"+a.root.Name
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			a.root.Name: {Server: a.endpoint.String(), CertificateAuthorityData: bundle(a.root.AcceptedCAs)},
		},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: pair.Crt, ClientKeyData: pair.Key}},
		Contexts:       map[string]*clientcmdapi.Context{context: {Cluster: a.root.Name, AuthInfo: user, Namespace: "default"}},
		CurrentContext: context,
	})
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig: %w", err)
	}
	return data, nil
}

// AdminKubeconfig makes a kubeconfig for an administrator, as the Talos API of a control plane hands it out.
func (r *Roots) AdminKubeconfig() ([]byte, error) {
	if r.Kubernetes == nil {
		return nil, errors.New("only a configured control plane can make a kubeconfig")
	}
	access := access{root: r.Kubernetes, user: "admin", context: "admin", endpoint: r.Kubernetes.Endpoint}
	return access.kubeconfig("admin", constants.KubernetesAdminCertOrganization, nil, time.Now())
}
