// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ichor.maesh.dev/hub/test/sim/machine"
)

// machineService is MachineService of the node that a call is for.
type machineService struct {
	machineapi.UnimplementedMachineServiceServer
}

// Version reports the system that runs, not the one that an installer has put aside for the next boot.
func (machineService) Version(ctx context.Context, _ *emptypb.Empty) (*machineapi.VersionResponse, error) {
	n := nodeFrom(ctx)
	return &machineapi.VersionResponse{Messages: []*machineapi.Version{{
		Version:  &machineapi.VersionInfo{Tag: n.State().Running.Version, Sha: "simulated", Os: "linux", Arch: "amd64"},
		Platform: &machineapi.PlatformInfo{Name: n.Platform, Mode: n.Platform},
		Features: &machineapi.FeaturesInfo{Rbac: true},
	}}}, nil
}

// Hostname returns the node's name.
func (machineService) Hostname(ctx context.Context, _ *emptypb.Empty) (*machineapi.HostnameResponse, error) {
	return &machineapi.HostnameResponse{Messages: []*machineapi.Hostname{{Hostname: nodeFrom(ctx).Hostname}}}, nil
}

// Read serves the few files that clients of the API are known to read, and those with secrets.
func (machineService) Read(req *machineapi.ReadRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	n := nodeFrom(stream.Context())
	var content string
	switch req.GetPath() {
	case "/proc/sys/kernel/random/boot_id":
		content = n.State().BootID
	case "/etc/machine-id":
		content = n.MachineID
	case "/etc/os-release":
		content = fmt.Sprintf("NAME=\"Talos\"\nID=talos\nVERSION_ID=%s", n.State().Running.Version)
	default:
		if secret, ok := n.secretFile(req.GetPath()); ok {
			return stream.Send(&common.Data{Bytes: secret})
		}
		return status.Errorf(codes.NotFound, "stat %s: no such file or directory", req.GetPath())
	}
	return stream.Send(&common.Data{Bytes: []byte(content + "\n")})
}

// Kubeconfig makes an admin kubeconfig from the CA in force, and returns it in the archive that clients expect.
func (machineService) Kubeconfig(_ *emptypb.Empty, stream grpc.ServerStreamingServer[common.Data]) error {
	n := nodeFrom(stream.Context())
	if !n.ControlPlane {
		return status.Error(codes.Unimplemented, "kubeconfig is only available on control plane nodes")
	}
	_, roots := n.Roots()
	if roots == nil {
		return status.Error(codes.FailedPrecondition, "the machine has no Kubernetes CA to issue from")
	}
	kubeconfig, err := roots.AdminKubeconfig()
	if err != nil {
		return err
	}
	archive, err := archiveOf("kubeconfig", kubeconfig)
	if err != nil {
		return err
	}
	return stream.Send(&common.Data{Bytes: archive})
}

func archiveOf(name string, content []byte) ([]byte, error) {
	var buf bytes.Buffer
	zip := gzip.NewWriter(&buf)
	archive := tar.NewWriter(zip)
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o600}
	if err := archive.WriteHeader(header); err != nil {
		return nil, fmt.Errorf("archive %s: %w", name, err)
	}
	if _, err := archive.Write(content); err != nil {
		return nil, fmt.Errorf("archive %s: %w", name, err)
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		return nil, fmt.Errorf("archive %s: %w", name, err)
	}
	return buf.Bytes(), nil
}

// Reboot starts the reboot sequence. No mode drains; the modes differ only in how the kernel is started.
func (machineService) Reboot(ctx context.Context, _ *machineapi.RebootRequest) (*machineapi.RebootResponse, error) {
	return &machineapi.RebootResponse{Messages: []*machineapi.Reboot{{ActorId: nodeFrom(ctx).Reboot()}}}, nil
}

// Shutdown starts the shutdown sequence.
func (machineService) Shutdown(ctx context.Context, req *machineapi.ShutdownRequest) (*machineapi.ShutdownResponse, error) {
	actor := nodeFrom(ctx).Shutdown(req.GetForce())
	return &machineapi.ShutdownResponse{Messages: []*machineapi.Shutdown{{ActorId: actor}}}, nil
}

// Upgrade is the older upgrade API, which drains, installs and reboots by itself. Its errors have no code of their own.
func (machineService) Upgrade(ctx context.Context, req *machineapi.UpgradeRequest) (*machineapi.UpgradeResponse, error) {
	actor, err := nodeFrom(ctx).Machine.Upgrade(ctx, machine.Upgrade{
		Image: req.GetImage(), Stage: req.GetStage(), Force: req.GetForce(), Preserve: req.GetPreserve(),
	})
	if err != nil {
		return nil, status.Error(codes.Unknown, err.Error())
	}
	return &machineapi.UpgradeResponse{Messages: []*machineapi.Upgrade{{Ack: "Upgrade request received", ActorId: actor}}}, nil
}

// Rollback reboots into the other slot.
func (machineService) Rollback(ctx context.Context, _ *machineapi.RollbackRequest) (*machineapi.RollbackResponse, error) {
	if err := nodeFrom(ctx).Rollback(); err != nil {
		return nil, status.Error(codes.Unknown, err.Error())
	}
	return &machineapi.RollbackResponse{Messages: []*machineapi.Rollback{{}}}, nil
}

// MetaWrite sets a META value.
func (machineService) MetaWrite(ctx context.Context, req *machineapi.MetaWriteRequest) (*machineapi.MetaWriteResponse, error) {
	key, err := metaKey(req.GetKey())
	if err == nil {
		err = metaError(nodeFrom(ctx).WriteMeta(key, string(req.GetValue())))
	}
	if err != nil {
		return nil, err
	}
	return &machineapi.MetaWriteResponse{Messages: []*machineapi.MetaWrite{{}}}, nil
}

// MetaDelete deletes a META value.
func (machineService) MetaDelete(ctx context.Context, req *machineapi.MetaDeleteRequest) (*machineapi.MetaDeleteResponse, error) {
	key, err := metaKey(req.GetKey())
	if err == nil {
		err = metaError(nodeFrom(ctx).DeleteMeta(key))
	}
	if err != nil {
		return nil, err
	}
	return &machineapi.MetaDeleteResponse{Messages: []*machineapi.MetaDelete{{}}}, nil
}

func metaKey(key uint32) (uint8, error) {
	if key == 0 || key > 255 {
		return 0, status.Errorf(codes.InvalidArgument, "key must be a uint8 other than 0: %d", key)
	}
	return uint8(key), nil
}

func metaError(err error) error {
	if errors.Is(err, machine.ErrReadOnlyKey) {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return err
}
