// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"net/url"

	"k8s.io/client-go/rest"

	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/target"
)

// Direct asks one API server for its version over a connection of its own: to HOST:PORT, by no load balancer, and with a client certificate and
// authorities that are in no Secret. It has to prove to be the server that the kubeconfig names.
func (p *Pool) Direct(ctx context.Context, t target.Target, address string, as credentials.Direct) (string, error) {
	config, err := p.credentials.Kubeconfig(ctx, t)
	if err != nil {
		return "", err
	}
	direct, err := directConfig(config.Config, address, as)
	if err != nil {
		return "", fmt.Errorf("connecting to the API server at %s: %w", address, err)
	}
	reader, end, err := Open(&credentials.Kubeconfig{Config: direct, Context: config.Context})
	if err != nil {
		return "", fmt.Errorf("connecting to the API server at %s: %w", address, err)
	}
	defer end()
	return reader.Version(ctx)
}

// directConfig keeps of a configuration the proxy on the way and the name of the server.
func directConfig(from *rest.Config, address string, as credentials.Direct) (*rest.Config, error) {
	server, err := url.Parse(from.Host)
	if err != nil {
		return nil, err
	}
	config := &rest.Config{Host: "https://" + address, Proxy: from.Proxy}
	config.TLSClientConfig = rest.TLSClientConfig{
		CAData: as.Authorities(), CertData: as.Client.Certificate, KeyData: as.Client.Key, ServerName: from.ServerName,
	}
	if config.ServerName == "" {
		config.ServerName = server.Hostname()
	}
	return config, nil
}
