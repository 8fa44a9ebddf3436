// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/grpc-proxy/proxy"
	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/pki"
	"ichor.maesh.dev/hub/test/sim/tlsfault"
)

// Metadata keys. The first four are Talos's; the last two are the simulator's own, between a node's apid and its services.
const (
	mdNode      = "node"
	mdNodes     = "nodes"
	mdProxyFrom = "proxyfrom"
	mdRole      = "talos-role"

	mdSimNode   = "sim-node"
	mdSimCaller = "sim-caller"
)

// manyServices are the services whose methods may be sent to several nodes at once.
var manyServices = []string{
	"/machine.MachineService/", "/cluster.ClusterService/", "/inspect.InspectService/",
	"/storage.StorageService/", "/time.TimeService/",
}

// newApid makes the server that a node's port serves: it checks the client's certificate and routes the call.
func newApid(n *node) *grpc.Server {
	handler := proxy.TransparentHandler(n.route, proxy.WithStreamedDetector(streamed))
	server := &tlsfault.Server{
		Config: n.tlsConfig,
		Faults: n.cluster.Faults, API: "talos",
		Site: func(*tls.ClientHelloInfo) fault.Site { return n.Site() },
		Spoiled: func(_ *tls.ClientHelloInfo, problem string) (tls.Certificate, error) {
			api, _ := n.API()
			if api == nil {
				return tls.Certificate{}, errNoCertificate
			}
			return pki.Spoiled(problem, api.Server.Leaf, api.Issuer)
		},
	}
	choose := func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if n.inMaintenance() {
			return n.maintenanceTLS()
		}
		return server.ConfigForClient(hello)
	}
	return grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: choose})),
		grpc.UnknownServiceHandler(handler),
		grpc.ForceServerCodecV2(proxy.Codec()),
		grpc.SharedWriteBuffer(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
}

// errNoCertificate is what a handshake ends with that began just before the certificate was gone.
var errNoCertificate = errors.New("the machine has no certificate for its API")

// tlsConfig is for a new connection: with the certificate and the CAs that the machine has now. Connections that were made with others
// stay.
func (n *node) tlsConfig(*tls.ClientHelloInfo) (*tls.Config, error) {
	api, _ := n.API()
	if api == nil {
		return nil, errNoCertificate
	}
	return &tls.Config{
		MinVersion:       tls.VersionTLS13,
		Certificates:     []tls.Certificate{api.Server},
		ClientAuth:       tls.RequireAndVerifyClientCert,
		ClientCAs:        api.Accepted,
		VerifyConnection: clientCertificateOnly,
		NextProtos:       []string{"h2"},
	}, nil
}

// clientCertificateOnly refuses certificates that are good for anything else: a node's server certificate is no caller's.
func clientCertificateOnly(cs tls.ConnectionState) error {
	usage := cs.PeerCertificates[0].ExtKeyUsage
	if !slices.Equal(usage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
		return errors.New("client certificate has unexpected key usages")
	}
	return nil
}

// streamed tells the methods that answer with a stream, for which merging works message by message.
func streamed(method string) bool {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	for _, d := range []grpc.ServiceDesc{machineapi.MachineService_ServiceDesc, clusterapi.ClusterService_ServiceDesc} {
		if d.ServiceName == service {
			return slices.ContainsFunc(d.Streams, func(s grpc.StreamDesc) bool { return s.StreamName == name && s.ServerStreams })
		}
	}
	return false
}

// caller is who makes a call: the certificate's, or whom a forwarding node speaks for.
type caller struct {
	name  string
	roles []string
}

func callerOf(ctx context.Context) caller {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return caller{}
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return caller{}
	}
	subject := info.State.PeerCertificates[0].Subject
	c := caller{name: subject.CommonName, roles: subject.Organization}
	if md, _ := metadata.FromIncomingContext(ctx); slices.Contains(c.roles, string(role.Impersonator)) && len(md[mdRole]) > 0 {
		return caller{name: strings.Join(md[mdSimCaller], ""), roles: md[mdRole]}
	}
	return c
}

// route decides where a call goes, as apid does: the metadata "node" passes it on to one node, "nodes" to several with
// merged answers, and neither keeps it here.
func (n *node) route(ctx context.Context, method string) (proxy.Mode, []proxy.Backend, error) {
	if n.inMaintenance() {
		return n.routeInMaintenance(method)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	one, many := md[mdNode], md[mdNodes]
	switch {
	case len(md[mdProxyFrom]) > 0, one == nil && many == nil:
		return proxy.One2One, []proxy.Backend{localBackend{node: n}}, nil
	case one != nil && len(one) != 1:
		return 0, nil, status.Error(codes.InvalidArgument, "node metadata must be single-valued")
	case one != nil:
		return n.routeTo(proxy.One2One, one)
	case !slices.ContainsFunc(manyServices, func(prefix string) bool { return strings.HasPrefix(method, prefix) }):
		return 0, nil, status.Errorf(codes.InvalidArgument, "one-2-many proxying is not supported for method %s", method)
	}
	return n.routeTo(proxy.One2Many, many)
}

func (n *node) routeTo(mode proxy.Mode, targets []string) (proxy.Mode, []proxy.Backend, error) {
	backends := make([]proxy.Backend, 0, len(targets))
	for _, target := range targets {
		if strings.Contains(target, ":") {
			return 0, nil, status.Errorf(codes.Internal, "invalid target %q", target)
		}
		switch {
		case n.cluster.byName[target] == n:
			backends = append(backends, localBackend{node: n, target: target})
		case !n.ControlPlane:
			return 0, nil, status.Error(codes.PermissionDenied, "no request forwarding")
		default:
			backends = append(backends, remoteBackend{node: n, target: target})
		}
	}
	return mode, backends, nil
}
