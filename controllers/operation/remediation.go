// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/providers/capi"
)

// guardMachines asks Cluster API's health checks to leave alone every machine that a disruptive stage has in hand. It runs before the
// write that claims a machine's first step: a Node that goes away without that may cost the machine. It only asks; package remediation
// gives machines back once the operation is through with them.
func (r *Reconciler) guardMachines(ctx context.Context, s *scope) error {
	if s.Cluster == nil || !s.Adopted() {
		return nil
	}
	units := s.disrupted()
	if len(units) == 0 {
		return nil
	}
	machines := capi.Machines{Client: r.Client, Live: r.APIReader}
	members, err := machines.Of(ctx, s.clusterKey())
	if err != nil {
		return err
	}
	s.Members = members
	for _, unit := range units {
		machine := s.Machine(unit.Name)
		if machine == nil {
			continue
		}
		member := s.Member(machine)
		if member == nil {
			continue // Cluster API does not know it, and so does not remedy it.
		}
		if err := machines.SkipRemediation(ctx, member, lock.Operation(s.op).Identity, isOperation); err != nil {
			return fmt.Errorf("keeping health checks from machine %s: %w", unit.Name, err)
		}
	}
	return nil
}

// disrupted are the units that disruptive stages have in hand, failed ones left out: there the hub has given up.
func (s *scope) disrupted() []v1alpha1.UnitStatus {
	var units []v1alpha1.UnitStatus
	for _, stage := range s.stages {
		if !stage.Disruptive {
			continue
		}
		for _, unit := range s.inHand(stage) {
			if !isFailed(unit) {
				units = append(units, unit)
			}
		}
	}
	return units
}

// isOperation says whether a request to leave a machine alone is an operation's. Under the lock that is a stale one.
func isOperation(owner string) bool {
	_, ok := lock.Holder{Identity: owner}.OperationKey()
	return ok
}
