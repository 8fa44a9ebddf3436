// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
	nodeplan "ichor.maesh.dev/hub/controllers/operation/kind/node/plan"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// What the definition of a TalosOperation lets through of the parameters of kind node.
var (
	nodeActions  = nodeplan.Actions
	rebootModes  = []v1alpha1.RebootMode{v1alpha1.RebootModeDefault, v1alpha1.RebootModePowerCycle, v1alpha1.RebootModeForce}
	resetManners = []v1alpha1.ResetManner{v1alpha1.ResetGraceful, v1alpha1.ResetForced}
	wipeTargets  = []v1alpha1.WipeTarget{v1alpha1.WipeSystem, v1alpha1.WipeUserVolumes}
	leaveManners = []v1alpha1.RemoveManner{v1alpha1.RemoveGraceful, v1alpha1.RemoveDead}
	afterResets  = []v1alpha1.AfterReset{v1alpha1.AfterResetReboot, v1alpha1.AfterResetPowerOff}
	etcdAlarms   = []v1alpha1.EtcdAlarms{v1alpha1.EtcdAlarmsKeep, v1alpha1.EtcdAlarmsDisarm}

	serviceName = regexp.MustCompile(`^(kubelet|ext-[a-z0-9.-]{1,124})$`)
)

const nodeField = "order.parameters.node"

// nodeOf are the parameters of an order about machines or the members of etcd.
func nodeOf(order *pb.OperationOrder, kind v1alpha1.OperationKind) (*v1alpha1.NodeParameters, error) {
	node := order.GetParameters().GetNode()
	switch action := v1alpha1.NodeAction(node.GetAction()); {
	case kind != v1alpha1.NodeKind && node == nil:
		return nil, nil
	case kind != v1alpha1.NodeKind:
		return nil, &InvalidError{Field: nodeField, Value: node.GetMachine(), Allowed: fmt.Sprintf("kind %s takes no parameters", kind)}
	case node.GetMachine() == "" && action != v1alpha1.EtcdDefragAction:
		return nil, &InvalidError{Field: nodeField + ".machine", Allowed: "name a TalosMachine, or its Node"}
	case !slices.Contains(nodeActions, action):
		return nil, &InvalidError{Field: nodeField + ".action", Value: node.GetAction(), Allowed: "one of " + commas(nodeActions)}
	}
	return nodeParametersOf(node)
}

// nodeParametersOf reads what goes with the action, and with no other.
func nodeParametersOf(node *pb.NodeParameters) (*v1alpha1.NodeParameters, error) {
	made := &v1alpha1.NodeParameters{Machine: node.GetMachine(), Action: v1alpha1.NodeAction(node.GetAction())}
	for _, read := range []func() error{
		func() (err error) {
			made.RebootMode, err = oneOf(made.Action, v1alpha1.RebootAction, "reboot_mode", node.GetRebootMode(), rebootModes)
			return err
		},
		func() (err error) { made.Service, err = serviceOf(made.Action, node.GetService()); return err },
		func() (err error) {
			made.Alarms, err = oneOf(made.Action, v1alpha1.EtcdDefragAction, "alarms", node.GetAlarms(), etcdAlarms)
			return err
		},
		func() (err error) { made.Reset, err = resetOf(made.Action, node.GetReset_()); return err },
		func() (err error) { made.Remove, err = removeOf(made.Action, node.GetRemove()); return err },
	} {
		if err := read(); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// oneOf is a value that goes with one action, or nothing.
func oneOf[T ~string](action, with v1alpha1.NodeAction, field, text string, allowed []T) (T, error) {
	switch value := T(text); {
	case text != "" && !slices.Contains(allowed, value):
		return "", &InvalidError{Field: nodeField + "." + field, Value: text, Allowed: "one of " + commas(allowed)}
	case text != "" && action != with:
		return "", &InvalidError{Field: nodeField + "." + field, Value: text, Allowed: fmt.Sprintf("goes with action %s only", with)}
	default:
		return value, nil
	}
}

// serviceOf is the service that is restarted.
func serviceOf(action v1alpha1.NodeAction, service string) (string, error) {
	switch restarts := action == v1alpha1.RestartServiceAction; {
	case !restarts && service != "":
		return "", &InvalidError{Field: nodeField + ".service", Value: service, Allowed: "goes with action RestartService only"}
	case restarts && !serviceName.MatchString(service):
		return "", &InvalidError{Field: nodeField + ".service", Value: service, Allowed: "kubelet, or ext- and the name of an extension's service: Talos restarts no others"}
	}
	return service, nil
}

// resetOf says how a machine is reset. What is empty is the default, whether anything is said or not.
func resetOf(action v1alpha1.NodeAction, reset *pb.ResetParameters) (*v1alpha1.ResetParameters, error) {
	if reset.GetManner() == "" && len(reset.GetWipe()) == 0 && reset.GetAfter() == "" {
		return nil, nil
	}
	if action != v1alpha1.ResetAction {
		return nil, &InvalidError{Field: nodeField + ".reset", Value: "given", Allowed: "goes with action Reset only"}
	}
	made := &v1alpha1.ResetParameters{}
	var err error
	if made.Manner, err = oneOf(action, action, "reset.manner", reset.GetManner(), resetManners); err != nil {
		return nil, err
	}
	if made.After, err = oneOf(action, action, "reset.after", reset.GetAfter(), afterResets); err != nil {
		return nil, err
	}
	for i, text := range reset.GetWipe() {
		field, target := fmt.Sprintf("%s.reset.wipe[%d]", nodeField, i), v1alpha1.WipeTarget(text)
		switch {
		case !slices.Contains(wipeTargets, target):
			return nil, &InvalidError{Field: field, Value: text, Allowed: "one of " + commas(wipeTargets)}
		case slices.Contains(made.Wipe, target):
			return nil, &InvalidError{Field: field, Value: text, Allowed: "each once"}
		}
		made.Wipe = append(made.Wipe, target)
	}
	return made, nil
}

// removeOf says how a machine is removed, and why.
func removeOf(action v1alpha1.NodeAction, remove *pb.RemoveParameters) (*v1alpha1.RemoveParameters, error) {
	reason := strings.TrimSpace(remove.GetReason())
	switch {
	case remove.GetManner() == "" && reason == "":
		return nil, nil
	case action != v1alpha1.RemoveAction:
		return nil, &InvalidError{Field: nodeField + ".remove", Value: "given", Allowed: "goes with action Remove only"}
	case len(reason) > mostReason:
		return nil, &InvalidError{Field: nodeField + ".remove.reason", Value: reason, Allowed: fmt.Sprintf("at most %d bytes", mostReason)}
	}
	manner, err := oneOf(action, action, "remove.manner", remove.GetManner(), leaveManners)
	if err != nil {
		return nil, err
	}
	return &v1alpha1.RemoveParameters{Manner: manner, Reason: reason}, nil
}
