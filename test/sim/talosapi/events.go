// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"fmt"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"ichor.maesh.dev/hub/test/sim/machine"
)

// Events streams the events of the current boot. The first message is empty and comes at once: clients wait for it to know
// that they will miss nothing.
func (machineService) Events(req *machineapi.EventsRequest, stream grpc.ServerStreamingServer[machineapi.Event]) error {
	events := nodeFrom(stream.Context()).Events()
	past, _, position := events.Past()
	if err := stream.Send(&machineapi.Event{}); err != nil {
		return err
	}
	if err := sendEvents(stream, tail(req, past), req.GetWithActorId()); err != nil {
		return err
	}
	for {
		next, after, err := events.Next(stream.Context(), position)
		if err != nil {
			return err
		}
		if err := sendEvents(stream, next, req.GetWithActorId()); err != nil {
			return err
		}
		position = after
	}
}

// tail picks the past events that the client wants: those after an ID, the last few, or all when the number is negative.
func tail(req *machineapi.EventsRequest, past []machine.Event) []machine.Event {
	if id := req.GetTailId(); id != "" {
		for i, e := range past {
			if e.ID > id {
				return past[i:]
			}
		}
		return nil
	}
	n := int(req.GetTailEvents())
	if n < 0 || n > len(past) || req.GetTailSeconds() > 0 {
		return past
	}
	return past[len(past)-n:]
}

func sendEvents(stream grpc.ServerStreamingServer[machineapi.Event], events []machine.Event, actor string) error {
	for _, e := range events {
		if actor != "" && e.Actor != actor {
			continue
		}
		value, err := proto.Marshal(e.Payload)
		if err != nil {
			return fmt.Errorf("marshal event: %w", err)
		}
		data := &anypb.Any{TypeUrl: "talos/runtime/" + string(proto.MessageName(e.Payload)), Value: value}
		if err := stream.Send(&machineapi.Event{Id: e.ID, ActorId: e.Actor, Data: data}); err != nil {
			return err
		}
	}
	return nil
}
