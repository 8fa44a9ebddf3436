// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"slices"
	"strconv"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// mostMachines is how many machines an order may name; the definition of a TalosOperation has the same.
const mostMachines = 1000

// configOf are the parameters of an order that rolls machine configs out; nothing where it names no machine.
func configOf(order *pb.OperationOrder, kind v1alpha1.OperationKind) (*v1alpha1.ConfigParameters, error) {
	config := order.GetParameters().GetConfig()
	switch machines := config.GetMachines(); {
	case config != nil && kind != v1alpha1.ConfigKind:
		return nil, &InvalidError{Field: "order.parameters.config", Value: fmt.Sprint(machines), Allowed: "goes with kind config only"}
	case len(machines) == 0:
		return nil, nil
	case len(machines) > mostMachines:
		return nil, &InvalidError{Field: "order.parameters.config.machines", Value: strconv.Itoa(len(machines)), Allowed: fmt.Sprintf("at most %d", mostMachines)}
	case slices.Contains(machines, ""):
		return nil, &InvalidError{Field: "order.parameters.config.machines", Allowed: "name TalosMachines, or their Nodes"}
	default:
		return &v1alpha1.ConfigParameters{Machines: machines}, nil
	}
}

// withoutHash refuses an order that says what the machine config shall be by its hash: that follows from the spec.
func withoutHash(order *pb.OperationOrder) error {
	if hash := order.GetTarget().GetMachineConfigHash(); hash != "" {
		return &InvalidError{
			Field: "order.target.machine_config_hash", Value: hash, Allowed: "it follows from spec.machineConfig of the TalosCluster, which is changed there",
		}
	}
	return nil
}

// withMachines replaces the names of Nodes in a roll-out by those of their machines, and leaves each of them once. What nobody knows stays, and
// the plan says so.
func withMachines(order Order, facts targets.Facts) Order {
	if order.Spec.Config == nil {
		return order
	}
	config := &v1alpha1.ConfigParameters{}
	for _, name := range order.Spec.Config.Machines {
		if found := byNode(facts.Machines, name); facts.Machine(name) == nil && len(found) == 1 {
			name = found[0].Name
		}
		if !slices.Contains(config.Machines, name) {
			config.Machines = append(config.Machines, name)
		}
	}
	order.Spec.Config = config
	return order
}
