// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/siderolabs/crypto/x509"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
	"ichor.maesh.dev/hub/test/sim/machine"
	"ichor.maesh.dev/hub/test/sim/secrets"
)

// serving keeps what the API servers of a cluster have read from their files.
type serving struct {
	mu    sync.Mutex
	known map[string]*read // By node.
}

// read is what one API server has read, and from what.
type read struct {
	now, atStart *secrets.Files
	server       *kubeapi.Server
}

// of is the API server of a control plane. It reads certificates again when the files change, and keys when it starts.
func (s *serving) of(m *machine.Machine) (*kubeapi.Server, error) {
	now, atStart := m.Serving()
	if now == nil || atStart == nil {
		return nil, fmt.Errorf("the API server of %s has no certificate", m.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.known[m.Name]; r != nil && r.now == now && r.atStart == atStart {
		return r.server, nil
	}
	server, err := serverFrom(m.Name, now, atStart)
	if err != nil {
		return nil, fmt.Errorf("the API server of %s: %w", m.Name, err)
	}
	if s.known == nil {
		s.known = map[string]*read{}
	}
	s.known[m.Name] = &read{now: now, atStart: atStart, server: server}
	return server, nil
}

func serverFrom(node string, now, atStart *secrets.Files) (*kubeapi.Server, error) {
	server := &kubeapi.Server{
		Node: node, Issuer: &x509.PEMEncodedCertificateAndKey{Crt: now.Content[secrets.ManagerCA], Key: now.Content[secrets.KeyPath(secrets.ManagerCA)]},
	}
	var err error
	if server.Certificate, err = now.KeyPair(secrets.APIServer); err != nil {
		return nil, err
	}
	if server.Clients, err = now.Pool(secrets.ClientCA); err != nil {
		return nil, err
	}
	if server.Encryption, err = atStart.EncryptionKeys(); err != nil {
		return nil, err
	}
	root := atStart.Roots().Kubernetes
	server.Tokens, err = kubeapi.NewTokens(atStart.Content[secrets.ServiceAccountKey], atStart.Content[secrets.ServiceAccountKeys],
		slices.Concat([]string{root.IssuerURL}, root.AcceptedIssuers), root.APIAudiences)
	return server, err
}

// apiServer is the one at an address, or behind the load balancer. While none is there it is the first.
func (c *Cluster) apiServer(local net.Addr, backend string) (*kubeapi.Server, error) {
	return c.serving.of(c.controlPlaneAt(local, backend))
}

func (c *Cluster) controlPlaneAt(local net.Addr, backend string) *machine.Machine {
	host, _, _ := net.SplitHostPort(local.String())
	for _, n := range c.nodes {
		if n.Name() == backend || n.Address() == host {
			return n.machine
		}
	}
	return c.nodes[0].machine
}

// controlPlanes are the control planes that there are so far.
func (c *Cluster) controlPlanes() []*machine.Machine {
	var list []*machine.Machine
	for _, n := range c.nodes {
		if n.ControlPlane() {
			list = append(list, n.machine)
		}
	}
	return list
}

// certify lets machines try again that could not have certificates before.
func (c *Cluster) certify() {
	for _, n := range c.nodes {
		if _, trouble := n.machine.API(); trouble != "" {
			n.machine.Certify()
		}
	}
}

// Secrets says with which key each Secret was encrypted when it was last written to etcd, by namespace/name.
func (c *Cluster) Secrets() map[string]secrets.EncryptionKey {
	if c.deep == nil {
		return c.memory.Sealed()
	}
	sealed, err := c.deep.Sealed(context.Background())
	if err != nil {
		c.sim.options.Logger.Error(err, "The Secrets of a cluster were not read", "cluster", c.spec.Name)
	}
	return sealed
}
