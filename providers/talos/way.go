// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"net"
	"net/url"
	"strings"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"

	"ichor.maesh.dev/hub/providers/dial"
)

// wayTo is how a connection finds the endpoints of a context: names are resolved by our dialer, which remembers them, and not by gRPC,
// which forgets them when the name service is away; a proxy is gone through by the same dialer.
func wayTo(from *clientconfig.Context) (*clientconfig.Context, []grpc.DialOption, error) {
	chosen := *from
	var proxy *url.URL
	if chosen.ProxyURL != "" {
		var err error
		if proxy, err = url.Parse(chosen.ProxyURL); err != nil {
			return nil, nil, err
		}
		chosen.ProxyURL = ""
	}
	chosen.Endpoints = unbracketed(chosen.Endpoints)
	dialer := dial.New(dialTimeout, proxy)
	return &chosen, []grpc.DialOption{
		grpc.WithResolvers(asWritten{}),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}),
	}, nil
}

// unbracketed takes the brackets from addresses of IPv6 without port: machinery adds the port, and brackets of its own.
func unbracketed(endpoints []string) []string {
	plain := make([]string, 0, len(endpoints))
	for _, endpoint := range endpoints {
		if strings.HasPrefix(endpoint, "[") && strings.HasSuffix(endpoint, "]") {
			endpoint = endpoint[1 : len(endpoint)-1]
		}
		plain = append(plain, endpoint)
	}
	return plain
}

// asWritten takes the place of gRPC's resolver of names, which machinery uses for a single endpoint.
type asWritten struct{}

// Scheme implements resolver.Builder.
func (asWritten) Scheme() string { return "dns" }

// Build implements resolver.Builder.
func (asWritten) Build(target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	return asWritten{}, cc.UpdateState(resolver.State{Addresses: []resolver.Address{{Addr: target.Endpoint()}}})
}

// ResolveNow implements resolver.Resolver.
func (asWritten) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver.
func (asWritten) Close() {}
