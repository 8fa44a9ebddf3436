// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"bytes"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/timing"
)

// snapshotMessage is the size of the messages that carry a snapshot, as Talos sends them.
const snapshotMessage = 4096

// EtcdSnapshot sends a snapshot of etcd. It asks the member itself and needs no leader.
func (machineService) EtcdSnapshot(_ *machineapi.EtcdSnapshotRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	n, err := etcdNode(stream.Context(), "etcd snapshot")
	if err != nil {
		return err
	}
	data, _, err := n.Etcd().Snapshot(stream.Context(), n.Name)
	if err != nil {
		return etcdError(err)
	}
	f, spoiled := n.cluster.Faults.Fire(fault.EtcdSnapshot, n.Site())
	if !spoiled {
		return send(stream, data, func(int) error { return nil })
	}
	return n.spoil(stream, data, f)
}

// send sends data in messages; before each, it asks.
func send(stream grpc.ServerStreamingServer[common.Data], data []byte, before func(sent int) error) error {
	for sent := 0; sent < len(data); sent += snapshotMessage {
		if err := before(sent); err != nil {
			return err
		}
		if err := stream.Send(&common.Data{Bytes: data[sent:min(sent+snapshotMessage, len(data))]}); err != nil {
			return err
		}
	}
	return nil
}

// spoil sends a snapshot as a fault wants it.
func (n *node) spoil(stream grpc.ServerStreamingServer[common.Data], data []byte, f fault.Fault) error {
	ctx, half := stream.Context(), len(data)/2
	delay, err := time.ParseDuration(f.Params[fault.ParamDelay])
	if err != nil {
		return status.Errorf(codes.Internal, "fault %s: %v", f.Name, err)
	}
	switch f.Params[fault.ParamMode] {
	case "short":
		return send(stream, data[:half], func(int) error { return nil })
	case "corrupt":
		data = bytes.Clone(data)
		data[half] ^= 1
		return send(stream, data, func(int) error { return nil })
	case "slow":
		return send(stream, data, func(int) error { return timing.Sleep(ctx, n.cluster.Clock, delay) })
	}
	return send(stream, data, func(sent int) error {
		switch {
		case sent < half:
			return nil
		case f.Params[fault.ParamMode] == "hang":
			<-ctx.Done()
			return ctx.Err()
		}
		return status.Error(codes.Unavailable, "error reading from server: EOF")
	})
}
