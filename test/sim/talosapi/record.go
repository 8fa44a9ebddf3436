// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"
	"strconv"
	"strings"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/test/sim/journal"
)

// begin writes the arrival of a call to the journal.
func (c *call) begin(req any) *journal.Call {
	return c.node.cluster.Journal.Begin(journal.Entry{
		Cluster:   c.node.Cluster,
		Node:      c.node.Name,
		Method:    shortMethod(c.method),
		Arguments: arguments(req),
		Caller:    c.caller.name,
		Roles:     c.caller.roles,
	}, !ruleOf(c.method).mutates || dryRun(req))
}

// dryRun says whether a call that could change something only asks what it would change.
func dryRun(req any) bool {
	r, ok := req.(*machineapi.ApplyConfigurationRequest)
	return ok && r.GetDryRun()
}

func end(entry *journal.Call, err error) {
	s := status.Convert(err)
	entry.End(s.Code().String(), s.Message())
}

func recordUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	entry := callFrom(ctx).begin(req)
	resp, err := next(ctx, req)
	if applied, ok := resp.(*machineapi.ApplyConfigurationResponse); ok && err == nil {
		entry.Describe("applied", applied.GetMessages()[0].GetMode().String())
	}
	end(entry, err)
	return resp, err
}

func recordStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	recorded := &recordedStream{ServerStream: stream}
	err := next(srv, recorded)
	end(recorded.begin(nil), err)
	return err
}

// recordedStream writes the arrival of a streaming call when its request is there, since only then the arguments are known.
type recordedStream struct {
	grpc.ServerStream
	entry *journal.Call
}

func (s *recordedStream) begin(req any) *journal.Call {
	if s.entry == nil {
		s.entry = callFrom(s.Context()).begin(req)
	}
	return s.entry
}

// RecvMsg implements grpc.ServerStream.
func (s *recordedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	s.begin(m)
	return nil
}

// SendMsg implements grpc.ServerStream; it notes the installer's exit code on its way out.
func (s *recordedStream) SendMsg(m any) error {
	if resp, ok := m.(*machineapi.LifecycleServiceUpgradeResponse); ok {
		if exit, ok := resp.GetProgress().GetResponse().(*machineapi.LifecycleServiceInstallProgress_ExitCode); ok {
			s.begin(nil).Exit(exit.ExitCode)
		}
	}
	return s.ServerStream.SendMsg(m)
}

// shortMethod turns "/machine.MachineService/Reboot" into "MachineService/Reboot".
func shortMethod(method string) string {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return service[strings.LastIndex(service, ".")+1:] + "/" + name
}

// arguments picks what tells one call from another.
func arguments(req any) map[string]string {
	switch r := req.(type) {
	case *machineapi.ImageServicePullRequest:
		return map[string]string{
			"image": r.GetImageRef(), "store": r.GetContainerd().GetDriver().String() + "/" + r.GetContainerd().GetNamespace().String(),
		}
	case *machineapi.LifecycleServiceUpgradeRequest:
		return map[string]string{"image": r.GetSource().GetImageName()}
	case *machineapi.ApplyConfigurationRequest:
		return map[string]string{"mode": r.GetMode().String(), "dryRun": strconv.FormatBool(r.GetDryRun())}
	case *machineapi.UpgradeRequest:
		return map[string]string{
			"image": r.GetImage(), "stage": strconv.FormatBool(r.GetStage()), "force": strconv.FormatBool(r.GetForce()),
			"preserve": strconv.FormatBool(r.GetPreserve()), "mode": r.GetRebootMode().String(),
		}
	case *machineapi.RebootRequest:
		return map[string]string{"mode": r.GetMode().String()}
	case *machineapi.ShutdownRequest:
		return map[string]string{"force": strconv.FormatBool(r.GetForce())}
	case *machineapi.MetaWriteRequest:
		return map[string]string{"key": strconv.FormatUint(uint64(r.GetKey()), 10), "value": string(r.GetValue())}
	case *machineapi.MetaDeleteRequest:
		return map[string]string{"key": strconv.FormatUint(uint64(r.GetKey()), 10)}
	}
	return otherArguments(req)
}

func otherArguments(req any) map[string]string {
	switch r := req.(type) {
	case *machineapi.ServiceStartRequest:
		return map[string]string{"service": r.GetId()}
	case *machineapi.ServiceStopRequest:
		return map[string]string{"service": r.GetId()}
	case *machineapi.ServiceRestartRequest:
		return map[string]string{"service": r.GetId()}
	case *machineapi.ResetRequest:
		return map[string]string{
			"mode": r.GetMode().String(), "graceful": strconv.FormatBool(r.GetGraceful()), "reboot": strconv.FormatBool(r.GetReboot()),
			"partitions": labels(r.GetSystemPartitionsToWipe()), "disks": strings.Join(r.GetUserDisksToWipe(), ","),
		}
	case *machineapi.EtcdRemoveMemberByIDRequest:
		return map[string]string{"member": strconv.FormatUint(r.GetMemberId(), 16)}
	case *machineapi.BootstrapRequest:
		return map[string]string{"recover": strconv.FormatBool(r.GetRecoverEtcd()), "skipHashCheck": strconv.FormatBool(r.GetRecoverSkipHashCheck())}
	case *machineapi.ReadRequest:
		return map[string]string{"path": r.GetPath()}
	case *cosiv1alpha1.GetRequest:
		return map[string]string{"type": r.GetType(), "id": r.GetId()}
	case *cosiv1alpha1.ListRequest:
		return map[string]string{"type": r.GetType()}
	case *cosiv1alpha1.WatchRequest:
		return map[string]string{"type": r.GetType(), "id": r.GetId()}
	case *machineapi.ImagePullRequest:
		return map[string]string{"image": r.GetReference(), "store": "CRI/" + r.GetNamespace().String()}
	}
	return nil
}

// labels are the labels of partitions that are to be wiped.
func labels(partitions []*machineapi.ResetPartitionSpec) string {
	var list []string
	for _, partition := range partitions {
		list = append(list, partition.GetLabel())
	}
	return strings.Join(list, ",")
}
