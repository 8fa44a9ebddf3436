// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"
	"fmt"
	"strings"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ichor.maesh.dev/hub/test/sim/machine"
)

const (
	kubeletService  = "kubelet"
	extensionPrefix = "ext-"
)

// service is one of a machine's system services.
type service struct {
	id      string
	started time.Time // Zero while it does not run.
	stopped time.Time // When somebody has stopped it to start it again; zero when it has started since.
	checked bool      // It has a health check.
	waits   bool      // It is preparing for longer than others do.
	failed  bool      // It has waited for too long.
}

// systemServices lists them in order of their names. etcd and the kubelet follow the machine's state, the others just run.
func (n *node) systemServices() []service {
	state, starts := n.State(), n.Starts()
	list := []service{
		{id: "apid", started: starts.System, checked: true},
		{id: "auditd", started: starts.System},
		{id: "containerd", started: starts.System, checked: true},
		{id: "cri", started: starts.System, checked: true},
		{id: "dashboard", started: starts.System},
	}
	if n.ControlPlane {
		list = append(list, service{id: "etcd", started: starts.Etcd, checked: true, waits: n.Etcd().Preparing(n.Name), failed: state.EtcdFailed})
	}
	kubelet := service{id: kubeletService, started: starts.Kubelet, checked: true}
	if state.KubeletRestarting {
		kubelet.stopped = starts.KubeletStop
	}
	list = append(list, n.extensionServices(starts)...)
	list = append(list, kubelet,
		service{id: "machined", started: starts.System, checked: true},
		service{id: "syslogd", started: starts.System, checked: true},
	)
	if n.ControlPlane {
		list = append(list, service{id: "trustd", started: starts.System, checked: true})
	}
	return append(list, service{id: "udevd", started: starts.System, checked: true})
}

// extensionServices are the services of system extensions. They have no health check.
func (n *node) extensionServices(starts machine.Starts) []service {
	var list []service
	for _, name := range n.Extensions {
		list = append(list, service{id: extensionPrefix + name, started: starts.Extensions[name]})
	}
	return list
}

func (s service) running() bool { return !s.started.IsZero() && s.stopped.IsZero() }

func (s service) info() *machineapi.ServiceInfo {
	events := s.events()
	return &machineapi.ServiceInfo{
		Id: s.id, State: events[len(events)-1].GetState(),
		Health: s.health(), Events: &machineapi.ServiceEvents{Events: events},
	}
}

func (s service) health() *machineapi.ServiceHealth {
	if !s.running() || !s.checked {
		return &machineapi.ServiceHealth{Unknown: true}
	}
	return &machineapi.ServiceHealth{Healthy: true, LastChange: timestamppb.New(s.started)}
}

func (s service) events() []*machineapi.ServiceEvent {
	if s.started.IsZero() && s.failed {
		return []*machineapi.ServiceEvent{{State: "Preparing", Msg: "Running pre state"}, {State: "Failed", Msg: "Failed to run pre stage: failed to join etcd"}}
	}
	if s.started.IsZero() && s.waits {
		return []*machineapi.ServiceEvent{{State: "Preparing", Msg: "Running pre state"}}
	}
	if s.started.IsZero() {
		return []*machineapi.ServiceEvent{{State: "Waiting", Msg: "Waiting for service \"cri\" to be \"up\""}}
	}
	at := timestamppb.New(s.started)
	events := []*machineapi.ServiceEvent{
		{State: "Preparing", Msg: "Running pre state", Ts: at},
		{State: "Running", Msg: fmt.Sprintf("Started task %s", s.id), Ts: at},
	}
	switch {
	case !s.stopped.IsZero():
		events = append(events, &machineapi.ServiceEvent{
			State: "Stopping", Msg: "Sending SIGTERM to task " + s.id, Ts: timestamppb.New(s.stopped),
		})
	case s.checked:
		events = append(events, &machineapi.ServiceEvent{State: "Running", Msg: "Health check successful", Ts: at})
	}
	return events
}

// ServiceList lists the system services.
func (machineService) ServiceList(ctx context.Context, _ *emptypb.Empty) (*machineapi.ServiceListResponse, error) {
	list := &machineapi.ServiceList{}
	for _, s := range nodeFrom(ctx).systemServices() {
		list.Services = append(list.Services, s.info())
	}
	return &machineapi.ServiceListResponse{Messages: []*machineapi.ServiceList{list}}, nil
}

// ServiceStart starts a service; one that runs already is none of its business.
func (machineService) ServiceStart(ctx context.Context, req *machineapi.ServiceStartRequest) (*machineapi.ServiceStartResponse, error) {
	if err := nodeFrom(ctx).operate(req.GetId(), "start"); err != nil {
		return nil, err
	}
	return &machineapi.ServiceStartResponse{Messages: []*machineapi.ServiceStart{{
		Resp: fmt.Sprintf("Service %q started", req.GetId()),
	}}}, nil
}

// ServiceStop stops a service. There is none here that may be.
func (machineService) ServiceStop(ctx context.Context, req *machineapi.ServiceStopRequest) (*machineapi.ServiceStopResponse, error) {
	if err := nodeFrom(ctx).operate(req.GetId(), "stop"); err != nil {
		return nil, err
	}
	return &machineapi.ServiceStopResponse{Messages: []*machineapi.ServiceStop{{
		Resp: fmt.Sprintf("Service %q stopped", req.GetId()),
	}}}, nil
}

// ServiceRestart restarts a service, which of Talos's own only the kubelet allows.
func (machineService) ServiceRestart(ctx context.Context, req *machineapi.ServiceRestartRequest) (*machineapi.ServiceRestartResponse, error) {
	if err := nodeFrom(ctx).operate(req.GetId(), "restart"); err != nil {
		return nil, err
	}
	return &machineapi.ServiceRestartResponse{Messages: []*machineapi.ServiceRestart{{
		Resp: fmt.Sprintf("Service %q restarted", req.GetId()),
	}}}, nil
}

// operate carries out an operation that is not void already. Its errors have no code of their own.
func (n *node) operate(id, operation string) error {
	for _, s := range n.systemServices() {
		switch {
		case s.id != id:
		case s.running() && operation == "start", !s.running() && operation == "stop":
			return nil
		case id == kubeletService && operation != "stop":
			n.RestartKubelet()
			return nil
		case strings.HasPrefix(id, extensionPrefix) && operation == "restart":
			n.RestartExtension(strings.TrimPrefix(id, extensionPrefix))
			return nil
		default:
			return status.Errorf(codes.Unknown, "service %q doesn't support %s operation via API", id, operation)
		}
	}
	return status.Errorf(codes.Unknown, "service %q not defined", id)
}
