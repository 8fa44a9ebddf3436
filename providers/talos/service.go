// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// Service is a service of a machine.
type Service struct {
	// ID is its name, such as kubelet.
	ID string

	// State is where it is in its life, as Talos names it.
	State string

	// Running services have started and not stopped since.
	Running bool

	// Healthy says what the service's health check found last; Checked whether there is one, and it has found anything.
	Healthy, Checked bool

	// Started is when it started last, by the clock of its machine; zero while it does not run.
	Started time.Time
}

// stateRunning is the state of a service that runs.
const stateRunning = "Running"

// EtcdService is the service of the etcd member of a control plane, and StatePreparing its state while it has no data and waits for some: to join
// the etcd of others, or to be told to begin one. StateFailed is where it ends when it has waited for half an hour in vain, or could not begin:
// Talos starts it no more before it is told to begin one, or boots.
const (
	EtcdService    = "etcd"
	StatePreparing = "Preparing"
	StateFailed    = "Failed"
)

func (c *connection) Services(ctx context.Context, address string) ([]Service, error) {
	reply, err := c.client.ServiceList(at(ctx, address))
	if err != nil {
		return nil, fmt.Errorf("services at %s: %w", address, err)
	}
	var services []Service
	for _, message := range reply.GetMessages() {
		for _, info := range message.GetServices() {
			services = append(services, serviceFrom(info))
		}
	}
	slices.SortFunc(services, func(a, b Service) int { return cmp.Compare(a.ID, b.ID) })
	return services, nil
}

func serviceFrom(info *machineapi.ServiceInfo) Service {
	service := Service{
		ID: info.GetId(), State: info.GetState(), Running: info.GetState() == stateRunning,
		Healthy: info.GetHealth().GetHealthy(), Checked: !info.GetHealth().GetUnknown(),
	}
	if service.Running {
		service.Started = startedAt(info.GetEvents().GetEvents())
	}
	return service
}

// startedAt is the first of the last events that say that a service runs. What its health check finds is an event of a running service, too.
func startedAt(events []*machineapi.ServiceEvent) time.Time {
	var started time.Time
	for _, event := range slices.Backward(events) {
		if event.GetState() != stateRunning {
			break
		}
		started = event.GetTs().AsTime().Truncate(time.Microsecond)
	}
	return started
}

func (c *connection) RestartService(ctx context.Context, address, service string) error {
	if _, err := c.client.ServiceRestart(c.guarded(ctx, address), service); err != nil {
		return fmt.Errorf("restarting service %s at %s: %w", service, address, err)
	}
	return nil
}
