// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/kubernetes/machineimage"
	kubernetesplan "ichor.maesh.dev/hub/controllers/operation/kind/kubernetes/plan"
	"ichor.maesh.dev/hub/controllers/versions"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// clusterLook is what is looked at of a whole cluster.
type clusterLook struct {
	// trouble says why nothing is known.
	trouble string

	// unready says what is not ready, one after the other; or, once manifests were applied, what has not rolled out.
	unready []string
}

// observeCluster looks at a cluster for a stage that is about all of it.
func (e *Executor) observeCluster(ctx context.Context, scope kind.Scope, unit kind.Unit) kind.Observation {
	look := e.unready
	if unit.Status.Stage == kubernetesplan.ManifestsStage {
		look = e.unfinished
	}
	unready, trouble := look(ctx, scope)
	return kind.Observation{Own: clusterLook{trouble: trouble, unready: unready}}
}

// unready are the Nodes and the pods of the control plane that are not ready, of machines that are taken.
func (e *Executor) unready(ctx context.Context, scope kind.Scope) (unready []string, trouble string) {
	reader, err := e.Kube.Reader(ctx, scope.Cluster)
	if err != nil {
		return nil, kubeTrouble(kube.Trouble(err))
	}
	nodes, err := reader.Nodes(ctx)
	if err != nil {
		return nil, kubeTrouble(kube.Trouble(err))
	}
	pods, err := reader.ComponentPods(ctx)
	if err != nil {
		return nil, kubeTrouble(kube.Trouble(err))
	}
	for _, machine := range taken(scope) {
		name := machine.Status.NodeName
		i := slices.IndexFunc(nodes, func(n kube.Node) bool { return n.Name == name })
		if i < 0 || !nodes[i].Ready {
			unready = append(unready, fmt.Sprintf("Node %s of machine %s", name, machine.Name))
		}
		if machine.Spec.Role == v1alpha1.ControlPlaneRole && podOf(pods, machineimage.APIServer, name) == nil {
			unready = append(unready, fmt.Sprintf("%s on %s", machineimage.APIServer, name))
		}
		for _, pod := range pods {
			if pod.Node == name && !pod.Ready {
				unready = append(unready, strings.TrimSuffix(fmt.Sprintf("%s on %s: %s", pod.Component, name, pod.Trouble), ": "))
			}
		}
	}
	return unready, ""
}

// taken are the machines that the operation takes: those that are held are left out.
func taken(scope kind.Scope) []*v1alpha1.TalosMachine {
	return slices.DeleteFunc(slices.Clone(scope.Approved), (*v1alpha1.TalosMachine).Held)
}

// checking looks at everything before anything is changed.
func checking(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	switch {
	case unit.Status.Step == v1alpha1.CheckingStep && unit.Failed():
		return kind.FailStep(unit, "")
	case unit.Status.Step == v1alpha1.CheckingStep:
		return kind.Action{Verdict: kind.Done, Message: unit.Status.Outcome.Message}
	}
	found, _ := seen.Own.(clusterLook)
	if wait := unseen(unit, found.trouble); wait != nil {
		return *wait
	}
	if len(found.unready) > 0 && !overridden(scope, v1alpha1.NodesReadyGate) {
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.NodesReadyGate, Message: fmt.Sprintf(
			"%d not ready: %s. A worker that is to be left out is held with: ichor machine hold", len(found.unready), found.unready[0])}
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.CheckingStep}
}

// check finds what the new version would not take, and says what becomes of the manifests.
func (e *Executor) check(ctx context.Context, scope kind.Scope) (kind.Outcome, error) {
	reader, err := e.Kube.Reader(ctx, scope.Cluster)
	if err != nil {
		return kind.Outcome{}, err
	}
	pods, err := reader.ComponentPods(ctx)
	if err != nil {
		return kind.Outcome{}, err
	}
	from, err := lowest(scope, pods)
	if err != nil {
		return kind.Outcome{}, err
	}
	if err := e.checkArguments(ctx, scope, from); err != nil {
		return kind.Outcome{}, err
	}
	if kubernetesplan.IsMinor(from, scope.Target.KubernetesVersion) {
		if err := checkAPIs(ctx, scope, reader, from); err != nil {
			return kind.Outcome{}, err
		}
	}
	changes, err := e.preview(ctx, scope, reader)
	if err != nil {
		return kind.Outcome{}, err
	}
	return kind.Outcome{Message: summary(changes)}, nil
}

// lowest is the lowest version of any API server. From each of them there has to be a way.
func lowest(scope kind.Scope, pods []kube.ComponentPod) (string, error) {
	from := ""
	for _, pod := range pods {
		version := podVersion(pod)
		if pod.Component != string(machineimage.APIServer) || version == "" {
			continue
		}
		objection, err := versions.KubernetesUpgrade(version, scope.Target.KubernetesVersion)
		switch {
		case err != nil:
			return "", finding("%s on %s: %s", pod.Component, pod.Node, err)
		case objection != nil:
			return "", finding("%s on %s: %s", pod.Component, pod.Node, objection.Message)
		}
		if from == "" || versions.Compare(version, from) < 0 {
			from = version
		}
	}
	if from == "" {
		return scope.Target.KubernetesVersion, nil // Pinned by digests that nobody can read.
	}
	return from, nil
}

// checkArguments holds what every component is told against what the new version knows.
func (e *Executor) checkArguments(ctx context.Context, scope kind.Scope, from string) error {
	reader, err := e.Talos.Reader(ctx, scope.Cluster)
	if err != nil {
		return err
	}
	for _, machine := range taken(scope) {
		runs, err := reader.Kubernetes(ctx, machine.Spec.Address)
		if err != nil {
			return err
		}
		told := map[machineimage.Component]talos.Component{machineimage.Kubelet: runs.Kubelet}
		for name, component := range runs.Components {
			told[machineimage.Component(name)] = component
		}
		for _, component := range []machineimage.Component{machineimage.APIServer, machineimage.ControllerManager, machineimage.Scheduler, machineimage.Kubelet} {
			since := from
			if running := versionOf(told[component].Image, ""); running != "" && versions.Compare(running, from) < 0 {
				since = running // It has not kept up.
			}
			if why := objects(component, told[component].Args, since, scope.Target.KubernetesVersion); why != "" {
				return finding("%s: %s: take it out of its machine config, then go on", machine.Name, why)
			}
		}
	}
	return nil
}

// checkAPIs finds who uses APIs that the new version does not serve. What is stored cannot be read any more; what was asked for may have been
// asked by somebody who is gone.
func checkAPIs(ctx context.Context, scope kind.Scope, reader kube.Reader, from string) error {
	for _, r := range removedBetween(from, scope.Target.KubernetesVersion) {
		for _, api := range r.apis {
			parts := strings.SplitN(api, ".", 3)
			stored, err := reader.Stored(ctx, parts[2], parts[1], parts[0])
			switch {
			case err != nil:
				return err
			case stored:
				return finding("there are objects of %s, which v1.%d does not serve any more: delete them, then go on", api, r.minor)
			}
		}
	}
	if overridden(scope, v1alpha1.RemovedAPIsGate) {
		return nil
	}
	asked, err := reader.DeprecatedAPIs(ctx)
	if err != nil {
		return err
	}
	asked = slices.DeleteFunc(asked, func(d kube.DeprecatedAPI) bool { return !removedBy(d.RemovedIn, scope.Target.KubernetesVersion) })
	if len(asked) == 0 {
		return nil
	}
	return finding("%s: %s%s is asked for, and gone from v%s on; if who asked is gone as well: a new operation with --override %[1]s=REASON",
		v1alpha1.RemovedAPIsGate, asked[0], andMore(len(asked)-1), asked[0].RemovedIn)
}

func andMore(count int) string {
	if count == 0 {
		return ""
	}
	return fmt.Sprintf(" (and %d more)", count)
}
