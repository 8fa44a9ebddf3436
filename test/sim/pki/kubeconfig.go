// SPDX-License-Identifier: Apache-2.0

package pki

import (
	stdx509 "crypto/x509"
	"fmt"

	"github.com/siderolabs/crypto/x509"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig makes an admin kubeconfig with one context, named like the cluster's own.
func (p *PKI) Kubeconfig(cluster, server string) ([]byte, error) {
	pair, err := keyPair(p.kubernetes, stdx509.ExtKeyUsageClientAuth,
		x509.CommonName("admin"), x509.Organization("system:masters"))
	if err != nil {
		return nil, err
	}
	user := "admin@" + cluster
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			cluster: {Server: server, CertificateAuthorityData: p.Bundle.Certs.K8s.Crt},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			user: {ClientCertificateData: pair.CrtPEM, ClientKeyData: pair.KeyPEM},
		},
		Contexts:       map[string]*clientcmdapi.Context{user: {Cluster: cluster, AuthInfo: user, Namespace: "default"}},
		CurrentContext: user,
	}
	data, err := clientcmd.Write(config)
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig: %w", err)
	}
	return data, nil
}
