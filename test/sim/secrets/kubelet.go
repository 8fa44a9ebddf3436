// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// KubeletClient is the client certificate of the kubelet with its key.
	KubeletClient = constants.KubeletPKIDir + "/kubelet-client-current.pem"
	// KubeletCA are the CAs that the kubelet accepts.
	KubeletCA = constants.KubernetesCACert
)

// OfKubelet says whether a file is one that the kubelet has got by itself.
func OfKubelet(path string) bool { return path == KubeletClient || path == constants.KubeletKubeconfig }

// Enrolled says whether the kubelet has a client certificate.
func (f *Files) Enrolled() bool { return f.Content[KubeletClient] != nil }

// kubelet writes what the kubelet starts with. A client certificate that no accepted CA verifies is dropped, and with it the
// kubeconfig: the kubelet asks for another one then.
func (r *renderer) kubelet() error {
	root := r.roots.Kubelet
	config, err := kubeletKubeconfig(root, &clientcmdapi.AuthInfo{Token: root.BootstrapTokenID + "." + root.BootstrapTokenSecret})
	if err != nil {
		return err
	}
	r.files[constants.KubeletBootstrapKubeconfig] = config
	r.files[KubeletCA] = bundle(root.AcceptedCAs)
	client, ok := r.old.Content[KubeletClient]
	if !ok || !r.goodForKubelet(client) {
		return nil
	}
	r.files[KubeletClient] = client
	r.files[constants.KubeletKubeconfig], err = kubeletKubeconfig(root, byCertificate)
	return err
}

var byCertificate = &clientcmdapi.AuthInfo{ClientCertificate: KubeletClient, ClientKey: KubeletClient}

func (r *renderer) goodForKubelet(client []byte) bool {
	leaf, err := firstCertificate(client)
	if err != nil || leaf.Subject.CommonName != kubeletName(r.node) {
		return false
	}
	return verifies(bundle(r.roots.Kubelet.AcceptedCAs), leaf)
}

func kubeletName(node Node) string { return "system:node:" + node.Name }

// verifies says whether one of some CAs has issued a certificate.
func verifies(cas []byte, leaf *stdx509.Certificate) bool {
	pool := stdx509.NewCertPool()
	pool.AppendCertsFromPEM(cas)
	_, err := leaf.Verify(stdx509.VerifyOptions{Roots: pool, KeyUsages: []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageAny}})
	return err == nil
}

func kubeletKubeconfig(root *secrets.KubeletSpec, user *clientcmdapi.AuthInfo) ([]byte, error) {
	const cluster, name = "local", "kubelet@local"
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{cluster: {
			Server: root.Endpoint.String(), TLSServerName: root.EndpointTLSServerName, CertificateAuthorityData: bundle(root.AcceptedCAs),
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: user},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: cluster, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return nil, fmt.Errorf("write the kubelet's kubeconfig: %w", err)
	}
	return data, nil
}

// Reasons why a kubelet gets no client certificate.
var (
	// ErrServerNotTrusted means that the kubelet does not accept the API server's CA.
	ErrServerNotTrusted = errors.New("tls: failed to verify certificate: x509: certificate signed by unknown authority")
	// ErrTokenRefused means that the API server does not know the bootstrap token.
	ErrTokenRefused = errors.New("bootstrap token is not known: Unauthorized")
)

// BootstrapKubelet is what a kubelet does that has no client certificate: it asks the API server of a control plane, whose files are
// the signer's, with its bootstrap token, and the controller manager there signs. It returns the machine's files with the new
// certificate.
func (f *Files) BootstrapKubelet(node Node, signer *Files) (*Files, error) {
	if signer == nil || signer.roots == nil || signer.roots.Kubernetes == nil {
		return nil, fmt.Errorf("bootstrap the kubelet of %s: the signer is no control plane", node.Name)
	}
	server, err := firstCertificate(signer.Content[APIServer])
	if err != nil {
		return nil, fmt.Errorf("bootstrap the kubelet of %s: %s: %w", node.Name, APIServer, err)
	}
	if !verifies(f.Content[KubeletCA], server) {
		return nil, fmt.Errorf("bootstrap the kubelet of %s: %w", node.Name, ErrServerNotTrusted)
	}
	theirs, ours := signer.roots.Kubernetes, f.roots.Kubelet
	if theirs.BootstrapTokenID != ours.BootstrapTokenID || theirs.BootstrapTokenSecret != ours.BootstrapTokenSecret {
		return nil, fmt.Errorf("bootstrap the kubelet of %s: %w", node.Name, ErrTokenRefused)
	}
	ca := &x509.PEMEncodedCertificateAndKey{Crt: signer.Content[ManagerCA], Key: signer.Content[KeyPath(ManagerCA)]}
	pair, err := issue(ca, wanted{
		name: kubeletName(node), organizations: []string{"system:nodes"}, usages: clientOnly, keyUsage: stdx509.KeyUsageDigitalSignature,
	}, nil, time.Now())
	if err != nil {
		return nil, err
	}
	config, err := kubeletKubeconfig(ours, byCertificate)
	if err != nil {
		return nil, err
	}
	return f.with(map[string][]byte{KubeletClient: slices.Concat(pair.Crt, pair.Key), constants.KubeletKubeconfig: config}), nil
}

// KubeletAccepted says whether the API server with those files and a kubelet accept each other's certificates.
func (f *Files) KubeletAccepted(server *Files) bool {
	client, err := firstCertificate(f.Content[KubeletClient])
	if err != nil {
		return false
	}
	serving, err := firstCertificate(server.Content[APIServer])
	return err == nil && verifies(server.Content[ClientCA], client) && verifies(f.Content[KubeletCA], serving)
}
