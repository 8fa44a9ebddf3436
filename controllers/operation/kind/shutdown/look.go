// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"context"
	"slices"
	"sync"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	shutdownplan "ichor.maesh.dev/hub/controllers/operation/kind/shutdown/plan"
	"ichor.maesh.dev/hub/providers/talos"
)

// View is one look at a whole cluster, as far as a stage needs it. Two of the same state are equal.
type View struct {
	// Target is what the gates look at as well: Nodes, and what each etcd member tells.
	Target gate.View

	// Machines are the machines that the stage is about, by name.
	Machines map[string]Machine
}

// Machine is what one machine tells, or why it does not.
type Machine struct {
	talos.Machine

	// Trouble says why the Talos API tells nothing; Silent is set where nobody answered at all.
	Trouble string
	Silent  bool
}

// looks bounds how many machines are looked at together.
const looks = 32

// look looks at what a stage is about.
func (e *Executor) look(ctx context.Context, scope kind.Scope, stage string) View {
	var seen View
	var group sync.WaitGroup
	if stage != shutdownplan.WorkersOffStage && stage != shutdownplan.OffStage && stage != shutdownplan.PowerOnStage {
		group.Go(func() { seen.Target = e.viewer.View(ctx, scope.Cluster, scope.Approved) })
	}
	if concerned := concerned(scope, stage); len(concerned) > 0 {
		group.Go(func() { seen.Machines = e.lookAt(ctx, scope, concerned) })
	}
	group.Wait()
	return seen
}

// concerned are the machines that a stage is about.
func concerned(scope kind.Scope, stage string) []*v1alpha1.TalosMachine {
	switch stage {
	case shutdownplan.WorkersOffStage:
		return ofRole(scope, v1alpha1.WorkerRole)
	case shutdownplan.OffStage:
		return ofRole(scope, v1alpha1.ControlPlaneRole)
	case shutdownplan.PowerOnStage, shutdownplan.VerifyStage:
		return scope.Approved
	}
	return nil
}

func ofRole(scope kind.Scope, role v1alpha1.MachineRole) []*v1alpha1.TalosMachine {
	return slices.DeleteFunc(slices.Clone(scope.Approved), func(m *v1alpha1.TalosMachine) bool { return m.Spec.Role != role })
}

func (e *Executor) lookAt(ctx context.Context, scope kind.Scope, machines []*v1alpha1.TalosMachine) map[string]Machine {
	reader, err := e.sequence.Talos.Reader(ctx, scope.Cluster)
	seen := make(map[string]Machine, len(machines))
	if err != nil {
		for _, machine := range machines {
			seen[machine.Name] = Machine{Trouble: talos.Trouble(err)}
		}
		return seen
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	places := make(chan struct{}, looks)
	for _, machine := range machines {
		group.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			found := ask(ctx, reader, machine.Spec.Address)
			mu.Lock()
			defer mu.Unlock()
			seen[machine.Name] = found
		})
	}
	group.Wait()
	return seen
}

func ask(ctx context.Context, reader talos.Reader, address string) Machine {
	facts, err := reader.Machine(ctx, address)
	if err != nil {
		return Machine{Trouble: talos.Trouble(err), Silent: talos.Silent(err)}
	}
	return Machine{Machine: facts}
}
