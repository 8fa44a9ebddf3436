// SPDX-License-Identifier: Apache-2.0

package reboot

import (
	"fmt"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/talos"
)

// CheckIdentity fails a machine that came back as another one. One that is not far enough to know who it is has time.
func CheckIdentity(unit kind.Unit, seen kind.Observation) *kind.Action {
	switch seen.Talos.UUID {
	case "":
		return &kind.Action{Verdict: kind.Wait, Reason: settles(unit), Message: "waiting until the machine tells its UUID"}
	case unit.Machine.Spec.UUID:
		return nil
	}
	return &kind.Action{Verdict: kind.Fail, Message: (&IdentityError{
		Machine: unit.Status.Name, Address: unit.Machine.Spec.Address, Want: unit.Machine.Spec.UUID, Got: seen.Talos.UUID,
	}).Error()}
}

// settles is the gate at which a machine waits that is not far enough; none for one that is on its way, which has a deadline.
func settles(unit kind.Unit) string {
	if unit.Status.Step == "" {
		return v1alpha1.MachineSettledGate
	}
	return ""
}

// CheckNode keeps a machine from being drained under the name of another one. Discovery brings names up to date.
func CheckNode(unit kind.Unit, seen kind.Observation) *kind.Action {
	recorded, told := unit.Machine.Status.NodeName, seen.Talos.NodeName
	switch {
	case told != "" && !strings.EqualFold(recorded, told):
		return &kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineKnownGate, Message: fmt.Sprintf(
			"machine %s is Node %q by now, and recorded as %q", unit.Status.Name, told, recorded)}
	case seen.Node != nil && seen.Node.UUID != "" && !strings.EqualFold(seen.Node.UUID, unit.Machine.Spec.UUID):
		return &kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineKnownGate, Message: fmt.Sprintf(
			"Node %q is another machine than %s: its UUID is %s", recorded, unit.Status.Name, seen.Node.UUID)}
	}
	return nil
}

// IdentityError means that another machine answers at a recorded address. Nothing is done to it.
type IdentityError struct{ Machine, Address, Want, Got string }

// Error says which machine was expected, and which answered.
func (e *IdentityError) Error() string {
	return fmt.Sprintf("the machine at %s has UUID %q, but %s has UUID %q", e.Address, e.Got, e.Machine, e.Want)
}

// checkName fails a machine that came back under another name: its pods and volumes belong to a Node that nobody reports for any more.
// Names are final once the machine has booted.
func checkName(unit kind.Unit, seen kind.Observation) *kind.Action {
	was, is := unit.Status.NodeName, seen.Talos.NodeName
	if was == "" || is == "" || seen.Talos.Stage != talos.StageRunning || strings.EqualFold(was, is) {
		return nil
	}
	return &kind.Action{Verdict: kind.Fail, Message: fmt.Sprintf(
		"NodeRenamed: it was Node %s and came back as %s; give it its old hostname in its machine config and remove Node %[2]s", was, is)}
}

// nodeName is the Node of a unit: the one that it had before its reboot, if it was asked for one.
func nodeName(unit kind.Unit) string {
	if unit.Status.NodeName != "" {
		return unit.Status.NodeName
	}
	return unit.Machine.Status.NodeName
}

func verifying(scope kind.Scope, unit kind.Unit, seen kind.Observation, proof Proof) kind.Action {
	if seen.TalosTrouble == "" {
		for _, check := range []Proof{CheckIdentity, proof, checkName} {
			if bad := check(unit, seen); bad != nil {
				return *bad
			}
		}
	}
	if missing := NotBack(scope, seen); missing != "" {
		return kind.Action{Verdict: kind.Wait, Message: missing}
	}
	if marked(scope, seen) {
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.UncordoningStep, PreRebootBootID: unit.Status.PreRebootBootID}
	}
	return kind.Action{Verdict: kind.Done}
}

// marked says whether anything on the machine's Node is the operation's.
func marked(scope kind.Scope, seen kind.Observation) bool {
	return seen.Node != nil && (seen.Node.CordonedBy == scope.Owner || seen.Storage.EvacuatedBy == scope.Owner)
}

// NotBack says what a machine lacks to be back in its cluster; nothing means that it is back. Without the Kubernetes API, Talos never calls
// the machine ready, and nobody can tell of its Node.
func NotBack(scope kind.Scope, seen kind.Observation) string {
	switch {
	case seen.TalosTrouble != "":
		return "waiting for the Talos API: " + seen.TalosTrouble
	case seen.Talos.Stage != talos.StageRunning:
		return fmt.Sprintf("waiting for stage running, the machine is in stage %q", seen.Talos.Stage)
	case goesBlind(scope, seen):
		return NotBackInEtcd(seen)
	case !seen.Talos.Ready:
		return fmt.Sprintf("waiting until the machine is ready: %v", seen.Talos.Unmet)
	case seen.NodeTrouble != "":
		return "waiting for the Kubernetes API: " + seen.NodeTrouble
	case seen.Node == nil:
		return "waiting for the Node to register"
	case seen.StorageTrouble != "":
		return "waiting for the storage: " + seen.StorageTrouble
	case !seen.Node.Ready || seen.Node.BootID != seen.Talos.BootID:
		return "waiting until the Node is Ready"
	}
	return NotBackInEtcd(seen)
}

// NotBackInEtcd says what the etcd member of a machine lacks; nothing means that it is well, or that there is none.
func NotBackInEtcd(seen kind.Observation) string {
	switch {
	case seen.EtcdTrouble != "":
		return "waiting for etcd: " + seen.EtcdTrouble
	case seen.Etcd == nil:
		return ""
	}
	switch etcd := *seen.Etcd; {
	case etcd.Leader == 0:
		return "waiting until etcd has a leader"
	case etcd.Learner:
		return "waiting until the etcd member is a voter"
	case len(etcd.Errors) > 0:
		return fmt.Sprintf("waiting until the etcd member is healthy: %v", etcd.Errors)
	}
	for _, member := range seen.Etcd.Members {
		if member.ID == seen.Etcd.MemberID && member.Started {
			return ""
		}
	}
	return "waiting until the etcd member is back among the members"
}
