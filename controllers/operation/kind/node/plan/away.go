// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

const moreControlPlanes = "add a third control plane, or remove one"

// quorum refuses to take one of two control planes away, however it goes.
func quorum(o order, when string) *plan.Refusal {
	if !o.isControlPlane() || o.controlPlanes != 2 {
		return nil
	}
	return &plan.Refusal{
		Gate: v1alpha1.QuorumGate, Message: "two control planes: etcd loses its quorum " + when, Help: moreControlPlanes,
	}
}

// last refuses to take the last control plane away for good: nothing would be left to go on with.
func last(o order, why, help string) *plan.Refusal {
	if !o.isControlPlane() || o.controlPlanes != 1 {
		return nil
	}
	return &plan.Refusal{
		Gate: v1alpha1.QuorumGate, Message: fmt.Sprintf("%s is the only control plane of cluster %s: %s", o.machine.Name, o.Spec.ClusterName, why), Help: help,
	}
}

func refuseReboot(o order) *plan.Refusal { return quorum(o, "while either of them reboots") }

func warnReboot(o order) []plan.Warning {
	var warnings []plan.Warning
	if o.isControlPlane() && o.controlPlanes == 1 {
		warnings = append(warnings, plan.Outage)
	}
	if o.node.RebootMode == v1alpha1.RebootModeForce {
		warnings = append(warnings, plan.Warning{
			Code: plan.NotGracefulWarning, Message: "mode Force: no pod is evicted, no replica moved, and no service stopped in good order",
		})
	}
	return warnings
}

func refuseStop(o order) *plan.Refusal {
	if refusal := last(o, "without it the cluster stops", "stop the whole cluster with: ichor cluster shutdown "+o.Spec.ClusterName); refusal != nil {
		return refusal
	}
	return quorum(o, "once either of them is off")
}

func warnShutdown(o order) []plan.Warning { return append(staysOff(o), lessRoom(o)...) }

// staysOff says what becomes of a machine that is off.
func staysOff(o order) []plan.Warning {
	return []plan.Warning{{
		Code: plan.StaysOffWarning,
		Message: fmt.Sprintf("%s stays off until somebody powers it on, and its Node stays cordoned; then give it back with: kubectl uncordon %s",
			o.machine.Name, o.machine.Status.NodeName),
	}}
}

// lessRoom says what etcd goes on with while one of its members is off.
func lessRoom(o order) []plan.Warning {
	if !o.isControlPlane() {
		return nil
	}
	return []plan.Warning{{
		Code: plan.EtcdRoomWarning,
		Message: fmt.Sprintf("etcd goes on with %d of %d members: until %s is back, operations on other control planes wait",
			o.controlPlanes-1, o.controlPlanes, o.machine.Name),
	}}
}
