// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/siderolabs/grpc-proxy/proxy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"ichor.maesh.dev/hub/test/sim/secrets"
)

// localBackend passes a call to the services on behalf of the node itself.
type localBackend struct {
	node   *node
	target string // As the caller named it.
}

// String implements proxy.Backend.
func (b localBackend) String() string { return b.node.Name }

// GetConnection implements proxy.Backend.
func (b localBackend) GetConnection(ctx context.Context, _ string) (context.Context, *grpc.ClientConn, error) {
	md := b.node.outgoing(ctx)
	md.Set(mdSimNode, b.node.Name)
	return metadata.NewOutgoingContext(ctx, md), b.node.cluster.local, nil
}

// AppendInfo implements proxy.Backend.
func (b localBackend) AppendInfo(streaming bool, resp []byte) ([]byte, error) {
	return appendHostname(streaming, resp, b.target)
}

// BuildError implements proxy.Backend.
func (b localBackend) BuildError(streaming bool, err error) ([]byte, error) {
	return errorReply(streaming, b.target, err)
}

// remoteBackend passes a call to another node's apid.
type remoteBackend struct {
	node   *node
	target string
}

// String implements proxy.Backend.
func (b remoteBackend) String() string { return b.target }

// GetConnection implements proxy.Backend.
func (b remoteBackend) GetConnection(ctx context.Context, _ string) (context.Context, *grpc.ClientConn, error) {
	conn, err := b.node.remote(b.target)
	if err != nil {
		return nil, nil, err
	}
	md := b.node.outgoing(ctx)
	md.Set(mdProxyFrom, b.node.Address)
	return metadata.NewOutgoingContext(ctx, md), conn, nil
}

// AppendInfo implements proxy.Backend.
func (b remoteBackend) AppendInfo(streaming bool, resp []byte) ([]byte, error) {
	return appendHostname(streaming, resp, b.target)
}

// BuildError implements proxy.Backend.
func (b remoteBackend) BuildError(streaming bool, err error) ([]byte, error) {
	return errorReply(streaming, b.target, err)
}

// outgoing is the metadata of the next hop: the caller's, without what routes, and with who the caller is.
func (n *node) outgoing(ctx context.Context) metadata.MD {
	md, _ := metadata.FromIncomingContext(ctx)
	md = md.Copy()
	for _, key := range []string{mdNode, mdNodes, mdProxyFrom, ":authority", mdSimNode} {
		md.Delete(key)
	}
	c := n.whoCalls(ctx)
	md.Set(mdRole, c.roles...)
	md.Set(mdSimCaller, c.name)
	return md
}

// remote returns the connection to another node. One that has failed is made anew instead of waiting out its back-off, which would
// outlast a fast simulation's reboot. Those that were made with other certificates than the node has now are given up.
func (n *node) remote(target string) (*grpc.ClientConn, error) {
	if other, ok := n.cluster.byName[target]; ok {
		target = other.Address
	}
	api, _ := n.API()
	if api == nil || api.Client == nil {
		return nil, errNoCertificate
	}
	n.dialing.Lock()
	defer n.dialing.Unlock()
	if n.dialed != api {
		n.hangUp()
		n.dialed = api
	}
	if conn, ok := n.remotes[target]; ok {
		if conn.GetState() != connectivity.TransientFailure {
			return conn, nil
		}
		_ = conn.Close()
	}
	conn, err := dial(target, api)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", target, err)
	}
	n.remotes[target] = conn
	return conn, nil
}

// hangUp gives up all connections; calls that are under way fail. The caller holds the lock.
func (n *node) hangUp() {
	for _, conn := range n.remotes {
		_ = conn.Close()
	}
	clear(n.remotes)
}

func dial(target string, api *secrets.API) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+net.JoinHostPort(target, Port),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			MinVersion:   tls.VersionTLS13,
			RootCAs:      api.Accepted,
			Certificates: []tls.Certificate{*api.Client},
		})),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(proxy.Codec())),
	)
}
