// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"
)

// eventsKept is the length of the event log. A boot makes about five.
const eventsKept = 128

// Event is one event of a machine.
type Event struct {
	// ID is unique within a boot, and later events have greater ones.
	ID string
	// At is when it happened.
	At time.Time
	// Actor is the ID of the call that caused it.
	Actor string
	// Payload is a message of Talos's machine API.
	Payload proto.Message
}

// EventLog is the machine's event ring. It is lost at reboot, as Talos's is.
type EventLog struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	events  []Event
	dropped int // Events before the first kept one.
	wake    chan struct{}
}

func newEventLog(clk clock.PassiveClock) *EventLog {
	return &EventLog{clock: clk, wake: make(chan struct{})}
}

func (l *EventLog) add(actor string, payload proto.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := fmt.Sprintf("%020d", l.dropped+len(l.events)+1)
	l.events = append(l.events, Event{ID: id, At: l.clock.Now(), Actor: actor, Payload: payload})
	if len(l.events) > eventsKept {
		l.events = l.events[1:]
		l.dropped++
	}
	close(l.wake)
	l.wake = make(chan struct{})
}

func (l *EventLog) started(sequence, actor string) {
	l.add(actor, &machineapi.SequenceEvent{Sequence: sequence, Action: machineapi.SequenceEvent_START})
}

func (l *EventLog) stopped(sequence, actor string) {
	l.add(actor, &machineapi.SequenceEvent{Sequence: sequence, Action: machineapi.SequenceEvent_STOP})
}

func (l *EventLog) locked(sequence, actor string) {
	l.add(actor, &machineapi.SequenceEvent{
		Sequence: sequence,
		Action:   machineapi.SequenceEvent_NOOP,
		Error:    &common.Error{Code: common.Code_LOCKED, Message: "sequence not started: locked"},
	})
}

func (l *EventLog) failed(sequence, actor string, cause error) {
	l.stopped(sequence, actor)
	l.add(actor, &machineapi.SequenceEvent{
		Sequence: sequence,
		Action:   machineapi.SequenceEvent_NOOP,
		Error:    &common.Error{Code: common.Code_FATAL, Message: "sequence failed: " + cause.Error()},
	})
}

func (l *EventLog) phase(name string, action machineapi.PhaseEvent_Action, actor string) {
	l.add(actor, &machineapi.PhaseEvent{Phase: name, Action: action})
}

func (l *EventLog) task(name string, action machineapi.TaskEvent_Action, actor string) {
	l.add(actor, &machineapi.TaskEvent{Task: name, Action: action})
}

func (l *EventLog) service(name string, action machineapi.ServiceStateEvent_Action, message string) { //nolint:unparam // Any service could have events.
	l.add("", &machineapi.ServiceStateEvent{
		Service: name, Action: action, Message: message,
		Health: &machineapi.ServiceHealth{Healthy: action == machineapi.ServiceStateEvent_RUNNING, Unknown: action != machineapi.ServiceStateEvent_RUNNING},
	})
}

func (l *EventLog) status(s State) {
	l.add("", &machineapi.MachineStatusEvent{
		Stage:  machineapi.MachineStatusEvent_MachineStage(s.Stage),
		Status: &machineapi.MachineStatusEvent_MachineStatus{Ready: s.StatusReady()},
	})
}

// Past returns the position after the latest event, and the kept events with their first one's position.
func (l *EventLog) Past() (events []Event, first, end int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Event(nil), l.events...), l.dropped, l.dropped + len(l.events)
}

// Next waits for events from a position on, and returns them with the position after them.
func (l *EventLog) Next(ctx context.Context, position int) ([]Event, int, error) {
	for {
		events, next, wake := l.from(position)
		if len(events) > 0 {
			return events, next, nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, position, ctx.Err()
		}
	}
}

func (l *EventLog) from(position int) (events []Event, next int, wake chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next = l.dropped + len(l.events)
	if start := max(position-l.dropped, 0); start < len(l.events) {
		events = append(events, l.events[start:]...)
	}
	return events, next, l.wake
}
