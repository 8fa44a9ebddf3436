// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ichor.maesh.dev/hub/test/sim/machine"
)

type dataStream = grpc.ServerStreamingServer[common.Data]

// Dmesg is the kernel's log, to which Talos adds what it does.
func (machineService) Dmesg(req *machineapi.DmesgRequest, stream dataStream) error {
	n := nodeFrom(stream.Context())
	format := func(at time.Time, text string) string {
		return fmt.Sprintf("user: %7s: [%s]: [talos] %s\n", "warning", at.UTC().Format(time.RFC3339Nano), text)
	}
	boot := []string{
		fmt.Sprintf("kern:  notice: [%s]: Linux version 6.18.5-talos\n", n.Starts().System.UTC().Format(time.RFC3339Nano)),
		format(n.Starts().System, "Talos "+n.State().Running.Version),
	}
	if _, trouble := n.API(); trouble != "" {
		boot = append(boot, format(n.Starts().System,
			fmt.Sprintf("controller failed {\"component\": \"controller-runtime\", \"controller\": \"secrets.APIController\", \"error\": %q}", trouble)))
	}
	if req.GetTail() {
		boot = nil
	}
	return n.stream(stream, boot, tailOf(req.GetTail()), req.GetFollow(), format)
}

func tailOf(only bool) int32 {
	if only {
		return 0
	}
	return -1
}

// Logs is the log of a system service. All that is told is what the machine's events say.
func (machineService) Logs(req *machineapi.LogsRequest, stream dataStream) error {
	n, id := nodeFrom(stream.Context()), req.GetId()
	if req.GetNamespace() != constants.SystemContainerdNamespace && id != kubeletService {
		return status.Error(codes.Unimplemented, "logs of Kubernetes containers are not simulated")
	}
	services := n.systemServices()
	i := slices.IndexFunc(services, func(s service) bool { return s.id == id })
	if i < 0 {
		return status.Errorf(codes.Unknown, "log %q was not registered", id)
	}
	var lines []string
	for _, e := range services[i].events() {
		lines = append(lines, fmt.Sprintf("%s service[%s](%s): %s\n", e.GetTs().AsTime().Format(time.RFC3339), id, e.GetState(), e.GetMsg()))
	}
	if id != "machined" {
		return n.stream(stream, last(lines, req.GetTailLines()), 0, req.GetFollow(), nil)
	}
	return n.stream(stream, last(lines, req.GetTailLines()), req.GetTailLines(), req.GetFollow(), func(at time.Time, text string) string {
		return fmt.Sprintf("[talos] %s %s\n", at.UTC().Format("2006/01/02 15:04:05"), text)
	})
}

// LogsContainers lists what Logs can be asked for.
func (machineService) LogsContainers(ctx context.Context, _ *emptypb.Empty) (*machineapi.LogsContainersResponse, error) {
	list := &machineapi.LogsContainer{}
	for _, s := range nodeFrom(ctx).systemServices() {
		list.Ids = append(list.Ids, s.id)
	}
	return &machineapi.LogsContainersResponse{Messages: []*machineapi.LogsContainer{list}}, nil
}

// last keeps the last n elements, or all when n is negative.
func last[T any](list []T, n int32) []T {
	if n < 0 || int(n) > len(list) {
		return list
	}
	return list[len(list)-int(n):]
}

// stream sends lines, then the past events, and if it is to follow the later ones until the caller or the boot ends. Without a
// format it sends no events.
func (n *node) stream(stream dataStream, lines []string, past int32, follow bool, format func(time.Time, string) string) error {
	events := n.Events()
	before, _, position := events.Past()
	for _, e := range last(before, past) {
		lines = appendEvent(lines, e, format)
	}
	for {
		for _, line := range lines {
			if err := stream.Send(&common.Data{Bytes: []byte(line)}); err != nil {
				return err
			}
		}
		if !follow {
			return nil
		}
		next, after, err := events.Next(stream.Context(), position)
		if err != nil {
			return err
		}
		position, lines = after, nil
		for _, e := range next {
			lines = appendEvent(lines, e, format)
		}
	}
}

func appendEvent(lines []string, e machine.Event, format func(time.Time, string) string) []string {
	if text := eventText(e); format != nil && text != "" {
		lines = append(lines, format(e.At, text))
	}
	return lines
}

// eventText puts an event in the words of Talos's log.
func eventText(e machine.Event) string {
	switch p := e.Payload.(type) {
	case *machineapi.SequenceEvent:
		if p.GetError() != nil {
			return fmt.Sprintf("%s sequence: failed: %s", p.GetSequence(), p.GetError().GetMessage())
		}
		return fmt.Sprintf("%s sequence: %s", p.GetSequence(), strings.ToLower(p.GetAction().String()))
	case *machineapi.PhaseEvent:
		return fmt.Sprintf("phase %s: %s", p.GetPhase(), strings.ToLower(p.GetAction().String()))
	case *machineapi.TaskEvent:
		return fmt.Sprintf("task %s: %s", p.GetTask(), strings.ToLower(p.GetAction().String()))
	case *machineapi.ServiceStateEvent:
		return fmt.Sprintf("service[%s](%s): %s", p.GetService(), p.GetAction(), p.GetMessage())
	case *machineapi.MachineStatusEvent:
		return fmt.Sprintf("machine is %s, ready %t", strings.ToLower(p.GetStage().String()), p.GetStatus().GetReady())
	}
	return ""
}
