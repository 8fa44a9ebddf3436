// SPDX-License-Identifier: Apache-2.0

package etcdrestore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	restoreplan "ichor.maesh.dev/hub/controllers/operation/kind/etcdrestore/plan"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// View is what the kind looks at beyond what every kind does, as far as a stage needs it. Two of the same state are deeply equal.
type View struct {
	// Machines are the control planes, by name, for the check and before the first wipe.
	Machines map[string]Machine

	// Target is what gates look at: Nodes, and what each etcd member tells.
	Target gate.View

	// Services and Volumes are those of the unit's machine; Trouble says why they are not known.
	Services []talos.Service
	Volumes  []talos.Volume
	Trouble  string

	// Others are the other control planes that do not wait for an etcd, by name: the state of theirs, or why it is not known. They are looked
	// at where the unit's machine waits for one, before any has begun.
	Others map[string]string

	// Pods are the pods of the control plane's components; PodsTrouble says why they are not known.
	Pods        []kube.ComponentPod
	PodsTrouble string

	// Revision is that of etcd, as the API server tells it; RevisionTrouble says why it is not known.
	Revision        int64
	RevisionTrouble string

	// Wanted is the revision that the snapshot holds; WantedTrouble says why that is not known.
	Wanted        int64
	WantedTrouble string
}

// Machine is what one machine tells of itself, or why it does not.
type Machine struct {
	UUID, Stage string
	Trouble     string

	// Objections are what of it does not fit the snapshot, where that is looked at.
	Objections []string
}

// Observe implements kind.Executor.
func (e *Executor) Observe(ctx context.Context, scope kind.Scope, unit kind.Unit) kind.Observation {
	if unit.Machine == nil {
		return kind.Observation{Own: e.lookAtAll(ctx, scope, unit.Status.Stage)}
	}
	seen := e.sequence.Observe(ctx, scope, unit)
	seen.Own = e.lookAtOne(ctx, scope, unit, seen)
	return seen
}

func (e *Executor) lookAtAll(ctx context.Context, scope kind.Scope, stage string) View {
	var seen View
	var group sync.WaitGroup
	switch stage {
	case restoreplan.CheckStage:
		seen.Machines = e.lookAtControlPlanes(ctx, scope)
	case restoreplan.VerifyStage:
		group.Go(func() { seen.Pods, seen.PodsTrouble = e.pods(ctx, scope) })
		group.Go(func() { e.revisions(ctx, scope, &seen) })
		fallthrough
	default:
		group.Go(func() { seen.Target = e.viewer.View(ctx, scope.Cluster, scope.Approved) })
	}
	group.Wait()
	return seen
}

func (e *Executor) lookAtOne(ctx context.Context, scope kind.Scope, unit kind.Unit, seen kind.Observation) View {
	own := View{Trouble: seen.TalosTrouble}
	if own.Trouble != "" {
		return own
	}
	reader, err := e.sequence.Talos.Reader(ctx, scope.Cluster)
	if err == nil {
		own.Services, err = reader.Services(ctx, unit.Machine.Spec.Address)
	}
	if err == nil && unit.Status.Stage == restoreplan.WipeStage {
		own.Volumes, err = reader.Volumes(ctx, unit.Machine.Spec.Address)
	}
	if err != nil {
		return View{Trouble: talos.Trouble(err)}
	}
	e.lookAround(ctx, reader, scope, unit, &own)
	if unit.Status.Stage == restoreplan.RecoverStage && own.service(talos.EtcdService).State == stateRunning {
		e.revisions(ctx, scope, &own)
	}
	return own
}

// lookAround looks at the other control planes, where those decide what comes next for the unit's machine.
func (e *Executor) lookAround(ctx context.Context, reader talos.Reader, scope kind.Scope, unit kind.Unit, own *View) {
	begins := unit.Status.Step == ""
	switch unit.Status.Stage {
	case restoreplan.WipeStage:
		if begins && !wipeBegun(scope) {
			own.Machines, own.WantedTrouble = e.confirm(ctx, reader, scope)
		}
		if own.prepares() {
			own.Others = lookAtOthers(ctx, reader, scope, unit, talos.StatePreparing)
		}
	case restoreplan.RecoverStage:
		if begins && (own.prepares() || own.gaveUp()) {
			own.Others = lookAtOthers(ctx, reader, scope, unit, talos.StatePreparing, talos.StateFailed) // They were seen to have none in Wipe.
		}
	}
}

// confirm looks at every control plane as the check has done. What is stored was read to its end then.
func (e *Executor) confirm(ctx context.Context, reader talos.Reader, scope kind.Scope) (seen map[string]Machine, trouble string) {
	snapshot, err := e.stored.Find(ctx, scope.Cluster, scope.Spec.EtcdRestore.SnapshotName)
	if err != nil {
		return nil, err.Error()
	}
	seen = e.lookAtControlPlanes(ctx, scope)
	for _, machine := range controlPlanes(scope) {
		told := seen[machine.Name]
		if told.Trouble != "" || told.UUID != machine.Spec.UUID {
			continue
		}
		var finding *FindingError
		switch has, err := ask(ctx, reader, machine.Spec.Address); {
		case errors.As(err, &finding):
			told.Objections = []string{machine.Name + ": " + finding.Found}
		case err != nil:
			told.Trouble = talos.Trouble(err)
		default:
			told.Objections = compare(snapshot.Spec.Contents, map[string]found{machine.Name: has})
		}
		seen[machine.Name] = told
	}
	return seen, ""
}

// lookAtControlPlanes asks every control plane who it is.
func (e *Executor) lookAtControlPlanes(ctx context.Context, scope kind.Scope) map[string]Machine {
	reader, err := e.sequence.Talos.Reader(ctx, scope.Cluster)
	seen := map[string]Machine{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, machine := range controlPlanes(scope) {
		if err != nil {
			seen[machine.Name] = Machine{Trouble: talos.Trouble(err)}
			continue
		}
		group.Go(func() {
			found := Machine{}
			if facts, err := reader.Machine(ctx, machine.Spec.Address); err != nil {
				found.Trouble = talos.Trouble(err)
			} else {
				found.UUID, found.Stage = facts.UUID, facts.Stage
			}
			mu.Lock()
			defer mu.Unlock()
			seen[machine.Name] = found
		})
	}
	group.Wait()
	return seen
}

// lookAtOthers asks every other control plane for the state of its etcd, and returns those that are in none of the states of one without data.
func lookAtOthers(ctx context.Context, reader talos.Reader, scope kind.Scope, unit kind.Unit, without ...string) map[string]string {
	others := slices.DeleteFunc(controlPlanes(scope), func(m *v1alpha1.TalosMachine) bool { return m.Name == unit.Status.Name })
	states := make([]string, len(others))
	var group sync.WaitGroup
	for i, machine := range others {
		group.Go(func() {
			state, err := etcdState(ctx, reader, machine.Spec.Address)
			if err != nil {
				state = talos.Trouble(err)
			}
			states[i] = state
		})
	}
	group.Wait()
	found := map[string]string{}
	for i, machine := range others {
		if !slices.Contains(without, states[i]) {
			found[machine.Name] = states[i]
		}
	}
	return found
}

// others says of the other control planes what they have instead of waiting for an etcd.
func (v View) others() string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(v.Others)) {
		list = append(list, fmt.Sprintf("service etcd of %s is %q", name, v.Others[name]))
	}
	return strings.Join(list, ", ")
}

func (e *Executor) pods(ctx context.Context, scope kind.Scope) ([]kube.ComponentPod, string) {
	reader, err := e.sequence.Kube.Reader(ctx, scope.Cluster)
	if err != nil {
		return nil, kube.Trouble(err)
	}
	pods, err := reader.ComponentPods(ctx)
	if err != nil {
		return nil, kube.Trouble(err)
	}
	return pods, ""
}

// revisions looks at the revision that etcd is at and at that which it was to begin with. Later ones than that say no more: the revision
// counts every write, and looks that differ wake the operation.
func (e *Executor) revisions(ctx context.Context, scope kind.Scope, seen *View) {
	snapshot, err := e.stored.Find(ctx, scope.Cluster, scope.Spec.EtcdRestore.SnapshotName)
	if err != nil {
		seen.WantedTrouble = err.Error()
		return
	}
	seen.Wanted = snapshot.Spec.Contents.Revision
	reader, err := e.sequence.Kube.Reader(ctx, scope.Cluster)
	if err == nil {
		seen.Revision, err = reader.Revision(ctx)
	}
	if err != nil {
		seen.Revision, seen.RevisionTrouble = 0, kube.Trouble(err)
	}
	seen.Revision = min(seen.Revision, seen.Wanted)
}

func controlPlanes(scope kind.Scope) []*v1alpha1.TalosMachine {
	return slices.DeleteFunc(slices.Clone(scope.Approved), func(m *v1alpha1.TalosMachine) bool { return m.Spec.Role != v1alpha1.ControlPlaneRole })
}

// service is one of the services of a machine; the zero value is none.
func (v View) service(id string) talos.Service {
	for _, service := range v.Services {
		if service.ID == id {
			return service
		}
	}
	return talos.Service{}
}

// prepares says whether the machine has no etcd and waits for one.
func (v View) prepares() bool { return v.service(talos.EtcdService).State == talos.StatePreparing }

// gaveUp says whether the machine's etcd has waited for too long, or could not begin. Nothing but a boot, or to be told to begin, starts it again.
func (v View) gaveUp() bool { return v.service(talos.EtcdService).State == talos.StateFailed }
