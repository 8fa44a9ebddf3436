// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"cmp"
	"fmt"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/kubernetes/machineimage"
	kubernetesplan "ichor.maesh.dev/hub/controllers/operation/kind/kubernetes/plan"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/controllers/versions"
)

// applying is the action that puts the image of a stage's component into a machine's config.
var applying = kind.Action{Verdict: kind.Call, Step: v1alpha1.ApplyingStep}

// blocked says what keeps a machine from being begun with, or looked at; nil if nothing does.
func blocked(unit kind.Unit, seen kind.Observation) *kind.Action {
	if seen.TalosTrouble != "" {
		if unit.Status.Step != "" {
			return &kind.Action{Verdict: kind.Wait, Message: "waiting for the Talos API: " + seen.TalosTrouble}
		}
		wait := kind.Unreachable(unit, seen.TalosTrouble)
		return &wait
	}
	if bad := reboot.CheckIdentity(unit, seen); bad != nil {
		return bad
	}
	if trouble := lookOf(seen).configTrouble; trouble != "" {
		return &kind.Action{Verdict: kind.Fail, Message: trouble}
	}
	return nil
}

// unseen waits where something that has to be looked at is not seen; nil if it is.
func unseen(unit kind.Unit, trouble string) *kind.Action {
	if trouble == "" {
		return nil
	}
	wait := &kind.Action{Verdict: kind.Wait, Message: trouble}
	if unit.Status.Step == "" {
		wait.Reason = v1alpha1.TargetReachableGate
	}
	return wait
}

// kubeTrouble says why the Kubernetes API tells nothing.
func kubeTrouble(words string) string {
	if words == "" {
		return ""
	}
	return "the Kubernetes API of the cluster cannot be read: " + words
}

// mayApply says what keeps a machine's config from being changed; nil if nothing does.
func mayApply(scope kind.Scope, unit kind.Unit, seen kind.Observation, component machineimage.Component, running string) *kind.Action {
	found := lookOf(seen)
	if running != "" {
		objection, err := versions.KubernetesUpgrade(running, scope.Target.KubernetesVersion)
		if err != nil {
			objection = &versions.Objection{Message: err.Error()}
		}
		if objection != nil && (component != machineimage.Kubelet || versions.Compare(running, scope.Target.KubernetesVersion) > 0) {
			return &kind.Action{Verdict: kind.Fail, Message: fmt.Sprintf("%s: %s", component, objection.Message)}
		}
	}
	if component != machineimage.APIServer {
		if late := behind(scope, found.pods); late != "" {
			return &kind.Action{Verdict: kind.Wait, Reason: v1alpha1.VersionSkewGate, Message: fmt.Sprintf(
				"%s of %s must not be newer than an API server: %s; upgrade that with an operation of its own", component, unit.Status.Name, late)}
		}
	}
	if found.pending {
		return &kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineConfigPendingGate, Message: pendingWords(unit)}
	}
	return nil
}

// pendingWords say who can help where a config is staged or tried.
func pendingWords(unit kind.Unit) string {
	return fmt.Sprintf("a machine config is staged or tried on %s, which a change would wipe: whoever did that lets the trial end, or reboots it: ichor node reboot %[1]s",
		unit.Status.Name)
}

// pulling pulls images beforehand, unless a machine has all of them in use.
func pulling(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	switch {
	case unit.Status.Step == v1alpha1.PullingStep && unit.Failed():
		return kind.FailStep(unit, "")
	case unit.Status.Step == v1alpha1.PullingStep:
		return kind.Action{Verdict: kind.Done}
	}
	if wait := blocked(unit, seen); wait != nil {
		return *wait
	}
	if len(images(scope, unit.Machine, lookOf(seen))) == 0 {
		return kind.Action{Verdict: kind.Done}
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.PullingStep}
}

// staticPod brings one static pod of a control plane to the target.
func staticPod(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	component, found := components[unit.Status.Stage], lookOf(seen)
	if unit.Status.Step == v1alpha1.ApplyingStep {
		return applied(unit)
	}
	for _, wait := range []*kind.Action{blocked(unit, seen), unseen(unit, found.podsTrouble)} {
		if wait != nil {
			return *wait
		}
	}
	told, runs := found.runs.Components[string(component)]
	if !runs {
		return missing(unit, component, found.settings[component])
	}
	pod := found.pod(component, unit.Machine.Status.NodeName)
	running := ""
	if pod != nil {
		running = pod.Running
	}
	version := versionOf(told.Image, running)
	if version != scope.Target.KubernetesVersion {
		return behindTarget(scope, unit, seen, component, told.Image, version)
	}
	switch {
	case pod == nil:
		return waitFor(unit, fmt.Sprintf("the pod of %s on %s", component, unit.Machine.Status.NodeName))
	case pod.Image != told.Image || pod.ConfigVersion != told.ConfigVersion:
		return waitFor(unit, fmt.Sprintf("the pod of %s that Talos has rendered last", component))
	case !pod.Ready:
		return waitFor(unit, ready(unit, component, pod.Trouble))
	}
	return kind.Action{Verdict: kind.Done}
}

// ready says what is waited for, and what helps where that does not come.
func ready(unit kind.Unit, component machineimage.Component, trouble string) string {
	return fmt.Sprintf("%s to be Ready: %s; why is in: talosctl -n %s logs -k kube-system/%s-%s", component, cmp.Or(trouble, "it starts"),
		unit.Machine.Spec.Address, component, unit.Machine.Status.NodeName)
}

// missing is about a component that Talos runs no pod for.
func missing(unit kind.Unit, component machineimage.Component, setting machineimage.Setting) kind.Action {
	if setting.Off {
		return kind.Action{Verdict: kind.Done}
	}
	if unit.Status.Step != "" {
		return kind.Action{Verdict: kind.Wait, Message: fmt.Sprintf("waiting for Talos to render %s", component)}
	}
	return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineSettledGate, Message: fmt.Sprintf("%s does not render %s", unit.Status.Name, component)}
}

// behindTarget is about a component that is told to run another version than the target's.
func behindTarget(scope kind.Scope, unit kind.Unit, seen kind.Observation, component machineimage.Component, image, version string) kind.Action {
	setting := lookOf(seen).settings[component]
	switch {
	case unit.Status.Step != "" && versionOf(setting.Image, "") == scope.Target.KubernetesVersion:
		return kind.Action{Verdict: kind.Wait, Message: fmt.Sprintf("waiting for Talos to render %s", component)}
	case unit.Status.Step != "":
		return kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.ApplyingStep, Message: fmt.Sprintf(
			"somebody has set the image of %s to %s meanwhile", component, cmp.Or(setting.Image, image))}
	}
	if versionOf(setting.Image, "") == scope.Target.KubernetesVersion {
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineSettledGate, Message: fmt.Sprintf("%s has not rendered %s anew yet", unit.Status.Name, component)}
	}
	if wait := mayApply(scope, unit, seen, component, version); wait != nil {
		return *wait
	}
	return applying
}

// waitFor waits for what was applied to run. What somebody else has applied has no deadline.
func waitFor(unit kind.Unit, what string) kind.Action {
	if unit.Status.Step == "" {
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineSettledGate, Message: fmt.Sprintf("waiting on %s for %s", unit.Status.Name, what)}
	}
	return kind.Action{Verdict: kind.Wait, Step: v1alpha1.VerifyingStep, Message: "waiting for " + what}
}

// applied goes on after a config was applied.
func applied(unit kind.Unit) kind.Action {
	if unit.Failed() {
		return kind.FailStep(unit, "")
	}
	return kind.Action{Verdict: kind.Wait, Step: v1alpha1.VerifyingStep, Message: "waiting until what was applied runs"}
}

// proxy brings what a control plane's config says of kube-proxy to the target. It runs when the manifests are synced.
func proxy(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if unit.Status.Step == v1alpha1.ApplyingStep {
		return applied(unit)
	}
	if wait := blocked(unit, seen); wait != nil {
		return *wait
	}
	setting := lookOf(seen).settings[machineimage.Proxy]
	switch {
	case setting.Off && setting.Image == "", versionOf(setting.Image, "") == scope.Target.KubernetesVersion:
		return kind.Action{Verdict: kind.Done}
	case unit.Status.Step != "":
		return kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.ApplyingStep, Message: fmt.Sprintf(
			"somebody has set the image of %s to %s meanwhile", machineimage.Proxy, cmp.Or(setting.Image, "none"))}
	}
	found := lookOf(seen)
	if wait := unseen(unit, found.podsTrouble); wait != nil {
		return *wait
	}
	if wait := mayApply(scope, unit, seen, machineimage.Proxy, ""); wait != nil {
		return *wait
	}
	return applying
}

// kubelet brings a kubelet to the target. Kubernetes supports another minor version on an empty Node only.
func kubelet(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	switch step := unit.Status.Step; {
	case step == v1alpha1.ApplyingStep:
		return applied(unit)
	case step != v1alpha1.VerifyingStep && unit.Failed():
		return kind.FailStep(unit, "")
	}
	if wait := blocked(unit, seen); wait != nil {
		return *wait
	}
	if wait := unseen(unit, kubeTrouble(seen.NodeTrouble)); wait != nil {
		return *wait
	}
	found := lookOf(seen)
	switch {
	case seen.Node == nil && unit.Status.Step == "":
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineSettledGate, Message: unit.Status.Name + " has no Node"}
	case seen.Node == nil:
		return kind.Action{Verdict: kind.Wait, Message: "waiting for the Node to register"}
	}
	version := versionOf(found.runs.Kubelet.Image, "")
	if version == "" { // Pinned by a digest: what runs tells.
		version = seen.Node.KubeletVersion
	}
	if version == scope.Target.KubernetesVersion {
		return kubeletTold(scope, unit, seen)
	}
	return kubeletBehind(scope, unit, seen, version)
}

// kubeletTold is about a kubelet that Talos was told to run in the target's version.
func kubeletTold(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	switch {
	case seen.Node.KubeletVersion != scope.Target.KubernetesVersion:
		return waitFor(unit, fmt.Sprintf("the Node to tell of kubelet %s; it tells of %s. Why is in: talosctl -n %s logs kubelet",
			scope.Target.KubernetesVersion, seen.Node.KubeletVersion, unit.Machine.Spec.Address))
	case !seen.Node.Ready:
		return waitFor(unit, "the Node to be Ready; why it is not is in: talosctl -n "+unit.Machine.Spec.Address+" logs kubelet")
	}
	return reboot.TakeBack(scope, seen)
}

// kubeletBehind is about a kubelet that is told to run another version than the target's.
func kubeletBehind(scope kind.Scope, unit kind.Unit, seen kind.Observation, version string) kind.Action {
	switch step := unit.Status.Step; {
	case step == v1alpha1.UncordoningStep:
		return kind.Action{Verdict: kind.Park} // It was taken back.
	case step == v1alpha1.VerifyingStep:
		return behindTarget(scope, unit, seen, machineimage.Kubelet, lookOf(seen).runs.Kubelet.Image, version)
	case versionOf(lookOf(seen).settings[machineimage.Kubelet].Image, "") == scope.Target.KubernetesVersion:
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineSettledGate, Message: unit.Status.Name + " has not told its kubelet to run the new version yet"}
	}
	if wait := unseen(unit, lookOf(seen).podsTrouble); wait != nil {
		return *wait
	}
	if wait := mayApply(scope, unit, seen, machineimage.Kubelet, version); wait != nil {
		return *wait
	}
	if !kubernetesplan.IsMinor(seen.Node.KubeletVersion, scope.Target.KubernetesVersion) {
		return applying
	}
	if bad := reboot.CheckNode(unit, seen); bad != nil {
		return *bad
	}
	switch unit.Status.Step { //nolint:exhaustive // It has been begun with, or not.
	case v1alpha1.EvacuatingStep:
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.DrainingStep}
	case v1alpha1.DrainingStep:
		return reboot.Emptied(scope, seen, applying)
	}
	return reboot.Empty(scope, seen, applying)
}
