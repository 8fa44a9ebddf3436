// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/emptypb"

	"ichor.maesh.dev/hub/test/sim/machine"
)

// ServiceList lists the system services. etcd and the kubelet follow the machine's state, the others just run.
func (machineService) ServiceList(ctx context.Context, _ *emptypb.Empty) (*machineapi.ServiceListResponse, error) {
	n := nodeFrom(ctx)
	return &machineapi.ServiceListResponse{Messages: []*machineapi.ServiceList{{
		Services: systemServices(n.ControlPlane, n.State()),
	}}}, nil
}

func systemServices(controlPlane bool, state machine.State) []*machineapi.ServiceInfo {
	list := []*machineapi.ServiceInfo{service("apid", true), service("containerd", true), service("cri", true)}
	if controlPlane {
		list = append(list, service("etcd", state.EtcdUp))
	}
	list = append(list, service("kubelet", state.KubeletReady), service("machined", true))
	if controlPlane {
		list = append(list, service("trustd", true))
	}
	return append(list, service("udevd", true))
}

func service(id string, up bool) *machineapi.ServiceInfo {
	info := &machineapi.ServiceInfo{
		Id:     id,
		State:  "Running",
		Health: &machineapi.ServiceHealth{Healthy: true},
		Events: &machineapi.ServiceEvents{Events: []*machineapi.ServiceEvent{{Msg: "Health check successful", State: "Running"}}},
	}
	if !up {
		info.State, info.Health, info.Events = "Waiting", &machineapi.ServiceHealth{Unknown: true}, &machineapi.ServiceEvents{}
	}
	return info
}
