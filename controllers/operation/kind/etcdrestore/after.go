// SPDX-License-Identifier: Apache-2.0

package etcdrestore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/kubernetes/machineimage"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/providers/kube"
)

const kubelet = "kubelet"

// restarting restarts the kubelet of a worker once: it remembers objects in versions that etcd has not come to yet, and would see nothing of
// what changes until then. A worker that is off starts a new one when it is switched on.
func (e *Executor) restarting(unit kind.Unit, seen kind.Observation, own View) kind.Action {
	service, step := own.service(kubelet), unit.Status.Step
	switch {
	case own.Trouble != "" && step == v1alpha1.RestartingStep:
		return kind.Action{Verdict: kind.Wait, Message: "waiting for the Talos API: " + own.Trouble}
	case own.Trouble != "" && step == v1alpha1.AwaitingStep:
		return kind.Action{Verdict: kind.Done, After: e.Absent, Message: "left out, since it does not answer: its kubelet has to be restarted when it does, as a boot does"}
	case own.Trouble != "":
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.AwaitingStep, Message: "waiting a while for the Talos API: " + own.Trouble}
	}
	if bad := reboot.CheckIdentity(unit, seen); bad != nil {
		return *bad
	}
	claimed := unit.Status.ServiceStartTime.Time
	switch later := service.Started.After(claimed); {
	case step != v1alpha1.RestartingStep:
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.RestartingStep, ServiceStart: service.Started}
	case later && service.Running && service.Healthy:
		return kind.Action{Verdict: kind.Done}
	case later:
		return kind.Action{Verdict: kind.Wait, Message: "waiting until the kubelet is healthy"}
	case unit.FailedForGood():
		return kind.FailStep(unit, "")
	case unit.Failed() && service.Running:
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.RestartingStep, ServiceStart: claimed}
	}
	return kind.Action{Verdict: kind.Wait, Message: "waiting until the kubelet has started anew"}
}

// restartKubelet asks for the restart, unless the kubelet has started anew since the claim.
func (e *Executor) restartKubelet(ctx context.Context, scope kind.Scope, unit kind.Unit) error {
	writer, _, err := e.sequence.Writer(ctx, scope, unit)
	if err != nil {
		return err
	}
	services, err := writer.Services(ctx, unit.Machine.Spec.Address)
	if err != nil {
		return err
	}
	if (View{Services: services}).service(kubelet).Started.After(unit.Status.ServiceStartTime.Time) {
		return nil
	}
	return writer.RestartService(ctx, unit.Machine.Spec.Address, kubelet)
}

// cleaning deletes what came back and stands for nothing. The snapshot remembers every Node as it was: which ones are gone shows when nobody
// has called for them for a while.
func cleaning(scope kind.Scope, unit kind.Unit, own View) kind.Action {
	switch {
	case unit.Failed():
		return kind.FailStep(unit, "")
	case unit.Status.Step != "":
		return kind.Action{Verdict: kind.Done, Message: unit.Status.Outcome.Message}
	case own.Target.NodesTrouble != "":
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.TargetReachableGate, Message: "the Kubernetes API of the cluster cannot be read: " + own.Target.NodesTrouble}
	}
	for _, name := range scope.Strangers(maps.Values(own.Target.Nodes)) {
		if own.Target.Nodes[name].Ready {
			return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.NodesReadyGate, Message: fmt.Sprintf(
				"Node %s came back with the snapshot, and no machine of the cluster is it: waiting until Kubernetes finds that it is not Ready; if it is not to be deleted, bring its machine to the hub", name)}
		}
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.CleaningStep}
}

// skew is by how much clocks may differ that Leases are renewed by.
const skew = time.Minute

// clean deletes them. Whoever lives has renewed its Lease since the API server is back.
func (e *Executor) clean(ctx context.Context, scope kind.Scope) (kind.Outcome, error) {
	snapshot, err := e.stored.Find(ctx, scope.Cluster, scope.Spec.EtcdRestore.SnapshotName)
	if err != nil {
		return kind.Outcome{}, err
	}
	writer, err := e.sequence.Kube.Writer(ctx, scope.Cluster, scope.Guard)
	if err != nil {
		return kind.Outcome{}, err
	}
	list, err := writer.Nodes(ctx)
	if err != nil {
		return kind.Outcome{}, err
	}
	nodes := map[string]kube.Node{}
	for _, node := range list {
		nodes[node.Name] = node
	}
	removed, err := writer.RemoveStale(ctx, kube.Stale{
		Nodes: scope.Strangers(maps.Values(nodes)), RenewedBefore: snapshot.Spec.Contents.TakenTime.Add(skew),
	})
	return kind.Outcome{Message: removed.String()}, err
}

// verifying waits until the cluster is well.
func verifying(scope kind.Scope, unit kind.Unit, own View) kind.Action {
	switch missing := notWell(scope, own); {
	case unit.FailedForGood():
		return kind.FailStep(unit, "")
	case missing != "":
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.VerifyingStep, Message: missing}
	case own.Revision < own.Wanted:
		return kind.Action{Verdict: kind.Fail, Message: wrongRevision(own)}
	}
	return kind.Action{Verdict: kind.Done, Message: notReady(scope, own)}
}

// notWell says what the cluster lacks; nothing means that it is well. Workers may be away: they were before, or are not yet back.
func notWell(scope kind.Scope, own View) string {
	if trouble := gate.EtcdTrouble(scope.Approved, own.Target.Etcd); trouble != "" {
		return trouble
	}
	for _, trouble := range []string{own.Target.NodesTrouble, own.PodsTrouble, own.RevisionTrouble} {
		if trouble != "" {
			return "the Kubernetes API of the cluster cannot be read: " + trouble
		}
	}
	if own.WantedTrouble != "" {
		return own.WantedTrouble
	}
	for _, controlPlane := range controlPlanes(scope) {
		name := controlPlane.Status.NodeName
		if node, there := own.Target.Nodes[name]; !there || !node.Ready {
			return fmt.Sprintf("Node %s of control plane %s is not Ready", name, controlPlane.Name)
		}
		serves := func(p kube.ComponentPod) bool {
			return p.Component == string(machineimage.APIServer) && p.Node == name && p.Ready
		}
		if !slices.ContainsFunc(own.Pods, serves) {
			return fmt.Sprintf("%s on %s is not ready", machineimage.APIServer, name)
		}
	}
	return ""
}

// notReady names the workers that are not there, for people.
func notReady(scope kind.Scope, own View) string {
	var names []string
	for _, machine := range scope.Approved {
		if node, there := own.Target.Nodes[machine.Status.NodeName]; machine.Spec.Role == v1alpha1.WorkerRole && (!there || !node.Ready) {
			names = append(names, machine.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return "not Ready: " + strings.Join(names[:min(len(names), shown)], ", ")
}

// shown bounds how many names a message has.
const shown = 6
