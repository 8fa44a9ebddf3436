// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"encoding/pem"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"ichor.maesh.dev/hub/hub/standalone/atomicfile"
)

// restConfig reaches the API with the certificate in credentials. It names files, not their content, so that a
// renewed certificate is picked up.
func restConfig(server, ca, credentials string) *rest.Config {
	return &rest.Config{
		Host: server,
		TLSClientConfig: rest.TLSClientConfig{
			CAFile:   ca,
			CertFile: credentials,
			KeyFile:  credentials,
		},
	}
}

// writeKubeconfig writes a kubeconfig that can be copied elsewhere: it holds the certificates themselves.
func writeKubeconfig(path, server, user, ca, credentials string) error {
	caData, err := os.ReadFile(ca)
	if err != nil {
		return fmt.Errorf("reading CA for %s: %w", path, err)
	}
	cert, key, err := readCredentials(credentials)
	if err != nil {
		return fmt.Errorf("reading credentials for %s: %w", path, err)
	}
	const cluster = "ichor"
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{cluster: {Server: server, CertificateAuthorityData: caData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: cert, ClientKeyData: key}},
		Contexts:       map[string]*clientcmdapi.Context{cluster: {Cluster: cluster, AuthInfo: user}},
		CurrentContext: cluster,
	})
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	return atomicfile.Write(path, content)
}

// readCredentials takes a file of certificate and key apart.
func readCredentials(path string) (cert, key []byte, err error) {
	rest, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return cert, key, nil
		}
		if block.Type == "CERTIFICATE" {
			cert = append(cert, pem.EncodeToMemory(block)...)
		} else {
			key = append(key, pem.EncodeToMemory(block)...)
		}
	}
}
