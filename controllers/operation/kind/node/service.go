// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/talos"
)

// kubelet is the only service of Talos' own that it restarts on order; those of extensions begin with extensionPrefix.
const (
	kubelet         = "kubelet"
	extensionPrefix = "ext-"
)

var restartSteps = []kind.Step{{Name: v1alpha1.RestartingStep, Repeat: kind.BootIDGuarded, Timeout: 5 * time.Minute}}

func observeServices(ctx context.Context, reader talos.Reader, unit kind.Unit, seen kind.Observation) view {
	if seen.TalosTrouble != "" {
		return view{Trouble: seen.TalosTrouble}
	}
	services, err := reader.Services(ctx, unit.Machine.Spec.Address)
	if err != nil {
		return view{Trouble: talos.Trouble(err)}
	}
	return view{Services: services}
}

// nextRestart restarts a service once: when it starts later than was claimed, it has been restarted, whoever heard what of that.
func nextRestart(_ *Executor, scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	name, own := scope.Spec.Node.Service, viewOf(seen)
	service, there := find(own.Services, name)
	switch begun := unit.Status.Step != ""; {
	case own.Trouble != "" && begun:
		return kind.Action{Verdict: kind.Wait, Message: "waiting for the Talos API: " + own.Trouble}
	case own.Trouble != "":
		return kind.Unreachable(unit, own.Trouble)
	case !there:
		return kind.Action{Verdict: kind.Fail, Message: unknownService(unit, name, own.Services)}
	case !begun:
		return askForRestart(service)
	}
	return restarting(unit, service)
}

func restarting(unit kind.Unit, service talos.Service) kind.Action {
	claimed := unit.Status.ServiceStartTime.Time
	switch later := service.Started.After(claimed); {
	case later && well(service):
		return kind.Action{Verdict: kind.Done}
	case later:
		return kind.Action{Verdict: kind.Wait, Message: fmt.Sprintf("waiting until service %s is healthy", service.ID)}
	case unit.FailedForGood():
		return kind.FailStep(unit, "")
	case unit.Failed() && service.Running:
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.RestartingStep, ServiceStart: claimed}
	}
	return kind.Action{Verdict: kind.Wait, Message: fmt.Sprintf("waiting until service %s has started anew", service.ID)}
}

func askForRestart(service talos.Service) kind.Action {
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.RestartingStep, ServiceStart: service.Started}
}

// well says whether a service runs and is healthy. Services of extensions have no health check.
func well(service talos.Service) bool {
	return service.Running && (service.Healthy || !service.Checked && service.ID != kubelet)
}

// unknownService names the services of a machine that can be restarted.
func unknownService(unit kind.Unit, name string, services []talos.Service) string {
	var known []string
	for _, service := range services {
		if service.ID == kubelet || strings.HasPrefix(service.ID, extensionPrefix) {
			known = append(known, service.ID)
		}
	}
	return fmt.Sprintf("machine %s has no service %q; it has %s", unit.Status.Name, name, strings.Join(known, ", "))
}

// restart asks for the restart, unless the service has started anew since the claim.
func (e *Executor) restart(ctx context.Context, scope kind.Scope, unit kind.Unit) error {
	name, address := scope.Spec.Node.Service, unit.Machine.Spec.Address
	writer, _, err := e.Writer(ctx, scope, unit)
	if err != nil {
		return err
	}
	services, err := writer.Services(ctx, address)
	if err != nil {
		return err
	}
	if service, _ := find(services, name); service.Started.After(unit.Status.ServiceStartTime.Time) {
		return nil
	}
	return writer.RestartService(ctx, address, name)
}

func find(services []talos.Service, id string) (talos.Service, bool) {
	if i := slices.IndexFunc(services, func(s talos.Service) bool { return s.ID == id }); i >= 0 {
		return services[i], true
	}
	return talos.Service{}, false
}
