// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/guard"
)

// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=talosmachines,verbs=get;delete

// Records are the TalosMachines of the hub.
type Records interface {
	// Forget deletes the TalosMachine of a machine that was removed, if it is still the one that asks for that. g is asked before. Repeating it
	// is harmless.
	Forget(ctx context.Context, g guard.Func, machine *v1alpha1.TalosMachine) error
}

// Machines are Records on the management cluster.
type Machines struct {
	Client client.Client

	// Live reads uncached.
	Live client.Reader
}

// Forget implements Records. A TalosMachine of that name that does not ask to be removed is another one: of a machine that was found since.
func (m Machines) Forget(ctx context.Context, g guard.Func, machine *v1alpha1.TalosMachine) error {
	now := &v1alpha1.TalosMachine{}
	switch err := m.Live.Get(ctx, client.ObjectKeyFromObject(machine), now); {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading TalosMachine %s: %w", machine.Name, err)
	case err != nil, now.Spec.Removal == nil, now.Spec.UUID != machine.Spec.UUID, !now.DeletionTimestamp.IsZero():
		return nil
	}
	if err := guard.Check(guard.With(ctx, g), "deleting TalosMachine "+machine.Name); err != nil {
		return err
	}
	err := m.Client.Delete(ctx, now, client.Preconditions{UID: &now.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting TalosMachine %s: %w", machine.Name, err)
	}
	return nil
}
