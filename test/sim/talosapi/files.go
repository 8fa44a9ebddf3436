// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	machinesecrets "github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/test/sim/secrets"
)

// secretFile is a file that Talos has written for a component, if it has.
func (n *node) secretFile(name string) ([]byte, bool) {
	if !strings.HasPrefix(name, "/system/secrets/") && !strings.HasPrefix(name, "/etc/kubernetes/") && !strings.HasPrefix(name, "/var/lib/kubelet/pki/") {
		return nil, false
	}
	files := n.Files()
	if files == nil {
		return nil, false
	}
	content, ok := files.Content[name]
	return content, ok
}

// List lists the files that Talos has written for components, in a directory or below it, or one of them.
func (machineService) List(req *machineapi.ListRequest, stream grpc.ServerStreamingServer[machineapi.FileInfo]) error {
	n := nodeFrom(stream.Context())
	root := path.Clean("/" + req.GetRoot())
	files := n.Files()
	if files == nil {
		files = &secrets.Files{}
	}
	found := false
	for _, name := range files.Paths() {
		relative, ok := below(root, name)
		if !ok {
			continue
		}
		found = true
		if depth := strings.Count(relative, "/"); depth > 0 && (!req.GetRecurse() || req.GetRecursionDepth() > 0 && depth > int(req.GetRecursionDepth())) {
			continue
		}
		info := &machineapi.FileInfo{
			Name: name, RelativeName: relative, Size: int64(len(files.Content[name])), Mode: 0o400, Modified: n.FileChanged(name).Unix(),
		}
		if err := stream.Send(info); err != nil {
			return err
		}
	}
	if !found {
		return status.Errorf(codes.NotFound, "lstat %s: no such file or directory", root)
	}
	return nil
}

// below is the path of a file from a directory, or its name when it is the file itself.
func below(root, name string) (string, bool) {
	if root == name {
		return path.Base(name), true
	}
	return strings.CutPrefix(name, strings.TrimSuffix(root, "/")+"/")
}

// GenerateClientConfiguration issues a client certificate from the CA that the control plane issues from now.
func (machineService) GenerateClientConfiguration(
	ctx context.Context, req *machineapi.GenerateClientConfigurationRequest,
) (*machineapi.GenerateClientConfigurationResponse, error) {
	n := nodeFrom(ctx)
	if !n.ControlPlane {
		return nil, status.Error(codes.Unimplemented, "generate client configuration is only available on control plane nodes")
	}
	ttl := req.GetCrtTtl().AsDuration()
	if ttl <= 0 {
		return nil, status.Error(codes.InvalidArgument, "crt_ttl should be positive")
	}
	roles, _ := role.Parse(req.GetRoles())
	roots, _ := n.Roots()
	if roots == nil || roots.OS.IssuingCA == nil {
		return nil, status.Error(codes.FailedPrecondition, "the machine has no CA to issue from")
	}
	pair, err := clientCertificate(roots.OS.IssuingCA, roles, ttl)
	if err != nil {
		return nil, err
	}
	name := n.cluster.Name
	if list := roles.Strings(); len(list) == 1 {
		name = strings.TrimPrefix(list[0], role.Prefix) + "@" + name
	}
	talosconfig, err := clientconfig.NewConfig(name, nil, roots.OS.IssuingCA.Crt, pair).Bytes()
	if err != nil {
		return nil, err
	}
	return &machineapi.GenerateClientConfigurationResponse{Messages: []*machineapi.GenerateClientConfiguration{{
		Ca: roots.OS.IssuingCA.Crt, Crt: pair.Crt, Key: pair.Key, Talosconfig: talosconfig,
	}}}, nil
}

func clientCertificate(ca *x509.PEMEncodedCertificateAndKey, roles role.Set, ttl time.Duration) (*x509.PEMEncodedCertificateAndKey, error) {
	bundle := &machinesecrets.Bundle{Clock: machinesecrets.NewClock(), Certs: &machinesecrets.Certs{OS: ca}}
	return bundle.GenerateTalosAPIClientCertificateWithTTL(roles, ttl)
}
