// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
)

// moved follows a machine that joins to where it answers with its machine config: that may give it another address than it had in maintenance
// mode. Nobody but the machine itself answers with its UUID and a certificate of the cluster.
func (r *Reconciler) moved(ctx context.Context, facts targets.Facts, seen probe, machine *v1alpha1.TalosMachine, now found) error {
	before := machine.Spec.Address
	if before == now.address || !machine.HalfJoined() || atAddress(facts.Machines, now.address) != nil {
		return nil
	}
	if there, asked := seen.machines[before]; asked && there.trouble == "" {
		return nil // It has several, or another one is at the old one: that is for a person to sort out.
	}
	old := machine.DeepCopy()
	machine.Spec.Address = now.address
	if err := r.Client.Patch(ctx, machine, client.MergeFrom(old)); err != nil {
		return fmt.Errorf("recording that TalosMachine %s answers at %s: %w", client.ObjectKeyFromObject(machine), now.address, err)
	}
	return nil
}
