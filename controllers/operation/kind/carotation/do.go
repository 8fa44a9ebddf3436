// SPDX-License-Identifier: Apache-2.0

package carotation

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	rotationplan "ichor.maesh.dev/hub/controllers/operation/kind/carotation/plan"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/talos"
)

// errPending means that somebody else has a config staged or tried on the machine.
var errPending = errors.New(machineconfig.PendingWords)

// renderError means that the config of a pass cannot be made.
type renderError struct{ error }

// generate makes the new authorities, and keeps them with the old ones. What an earlier attempt has stored stays: a machine may know it by now.
func (e *Executor) generate(ctx context.Context, scope kind.Scope) error {
	switch _, err := e.vault.Read(ctx, secretKey(scope)); {
	case err == nil:
		return nil
	case !errors.Is(err, credentials.ErrMissing):
		return err
	}
	data := map[string][]byte{}
	for _, of := range authoritiesOf(scope) {
		old, err := e.issuing(ctx, scope, of)
		if err != nil {
			return err
		}
		client, err := e.client(ctx, scope, of)
		if err != nil {
			return err
		}
		made, err := makeMaterial(of, old, client, e.clock.Now())
		if err != nil {
			return err
		}
		made.store(of, data)
	}
	owner, err := e.owner(ctx, scope)
	if err != nil {
		return err
	}
	return e.vault.Create(ctx, secretKey(scope), scope.Cluster.Name, owner, data)
}

// issuing is the authority that a control plane signs by, with its key.
func (e *Executor) issuing(ctx context.Context, scope kind.Scope, of v1alpha1.CAAuthority) (credentials.KeyPair, error) {
	reader, err := e.sequence.Talos.Reader(ctx, scope.Cluster)
	if err != nil {
		return credentials.KeyPair{}, err
	}
	for _, machine := range scope.Approved {
		if machine.Spec.Role != v1alpha1.ControlPlaneRole {
			continue
		}
		own, err := reader.Config(ctx, machine.Spec.Address)
		if err != nil {
			return credentials.KeyPair{}, err
		}
		have, err := machineconfig.ReadAuthorities(own.Active, of)
		switch {
		case err != nil:
			return credentials.KeyPair{}, &renderError{fmt.Errorf("%s: %w", machine.Name, err)}
		case len(have.Issuing) == 0 || len(have.Key) == 0:
			return credentials.KeyPair{}, &renderError{fmt.Errorf("%s: its machine config has no key of authority %s", machine.Name, of)}
		}
		return credentials.KeyPair{Certificate: have.Issuing, Key: have.Key}, nil
	}
	return credentials.KeyPair{}, &renderError{errors.New("the cluster has no control plane")}
}

// client is the client certificate of the cluster's credentials; an empty one where they have a token.
func (e *Executor) client(ctx context.Context, scope kind.Scope, of v1alpha1.CAAuthority) (credentials.KeyPair, error) {
	if of == v1alpha1.TalosCA {
		config, err := e.credentials.Talosconfig(ctx, scope.Cluster)
		if err != nil {
			return credentials.KeyPair{}, err
		}
		return credentials.TalosClient(config.Context)
	}
	config, err := e.credentials.Kubeconfig(ctx, scope.Cluster)
	if err != nil {
		return credentials.KeyPair{}, err
	}
	return credentials.KeyPair{Certificate: config.Config.CertData, Key: config.Config.KeyData}, nil
}

// owner is the operation, as the owner of what is kept for it.
func (e *Executor) owner(ctx context.Context, scope kind.Scope) (metav1.OwnerReference, error) {
	namespace, name, _ := strings.Cut(scope.Owner, "/")
	op := &v1alpha1.TalosOperation{}
	if err := e.operations.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, op); err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("reading TalosOperation %s: %w", scope.Owner, err)
	}
	return metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosOperation", Name: op.Name, UID: op.UID}, nil
}

// apply brings a machine the config that was claimed, unless it has it. A config that has changed since is looked at again: nothing of it is
// written over.
func (e *Executor) apply(ctx context.Context, scope kind.Scope, unit kind.Unit, of v1alpha1.CAAuthority, pass rotationplan.Pass) (kind.Outcome, error) {
	if takenBack(scope, pass) {
		return kind.Outcome{}, nil // Nobody goes further forward any more.
	}
	kept, err := e.material(ctx, scope, of)
	if err != nil {
		return kind.Outcome{}, err
	}
	claimed, changed := unit.Status.ConfigHash, false
	err = e.bring(ctx, scope, unit, of, pass, kept, func(active, made string) bool {
		changed = active != claimed && made != claimed
		return active != claimed && made == claimed
	})
	if changed {
		return kind.Outcome{Message: "its machine config has changed since: it is looked at again"}, err
	}
	return kind.Outcome{}, err
}

// catchUp brings every machine that joined late to where the others are. All of them accept both authorities, so it goes there at once.
func (e *Executor) catchUp(ctx context.Context, scope kind.Scope, of v1alpha1.CAAuthority, pass rotationplan.Pass) error {
	kept, err := e.material(ctx, scope, of)
	if err != nil {
		return err
	}
	for _, machine := range scope.Approved {
		if machine.Held() {
			continue
		}
		unit := kind.Unit{Status: v1alpha1.UnitStatus{Name: machine.Name}, Machine: machine}
		if err := e.bring(ctx, scope, unit, of, needs[pass], kept, func(active, made string) bool { return active != made }); err != nil {
			return fmt.Errorf("machine %s: %w", machine.Name, err)
		}
	}
	return nil
}

// bring gives a machine the config of its next position, if it is not through with a pass and ask says so. It is asked with the hashes of the
// config in force and of the other one.
func (e *Executor) bring(
	ctx context.Context, scope kind.Scope, unit kind.Unit, of v1alpha1.CAAuthority, pass rotationplan.Pass, kept Material, ask func(active, made string) bool,
) error {
	writer, _, err := e.sequence.Writer(ctx, scope, unit)
	if err != nil {
		return err
	}
	own, err := writer.Config(ctx, unit.Machine.Spec.Address)
	if err != nil {
		return err
	}
	have, err := machineconfig.ReadAuthorities(own.Active, of)
	if err != nil {
		return &renderError{err}
	}
	active, at := machineconfig.Hash(own.Active), positionOf(have, kept, goals[pass])
	if at != foreign && reached(pass, at) {
		return nil // An earlier call has arrived.
	}
	made, err := rendered(own.Active, of, kept, nextPosition(pass, at))
	if err != nil {
		return &renderError{err}
	}
	switch {
	case !ask(active, machineconfig.Hash(made)):
		return nil
	case hashOnDisk(own) != active:
		return errPending
	}
	return kind.Told(writer.ApplyConfig(ctx, unit.Machine.Spec.Address, made, talos.ApplyLive), own.Active, made)
}

// trust has the credentials of the cluster trust what a pass says.
func (e *Executor) trust(ctx context.Context, scope kind.Scope, of v1alpha1.CAAuthority, pass rotationplan.Pass) error {
	kept, err := e.material(ctx, scope, of)
	if err != nil {
		return err
	}
	if pass != rotationplan.BackCredentials {
		return e.vault.HandOver(ctx, scope.Cluster, of, kept.handover(trustBoth, e.clock.Now()))
	}
	if err := e.vault.HandOverAuthority(ctx, scope.Cluster, of, kept.Old, nil); err != nil { // Where nobody keeps a bundle, nobody did before.
		return err
	}
	return e.vault.HandOver(ctx, scope.Cluster, of, kept.handover(trustOld, e.clock.Now()))
}

// handOver puts the new credentials where people and the hub find them: first what others make credentials and machines from, so that
// whoever makes some meanwhile makes none of the old authority.
func (e *Executor) handOver(ctx context.Context, scope kind.Scope, of v1alpha1.CAAuthority) error {
	kept, err := e.material(ctx, scope, of)
	if err != nil {
		return err
	}
	if err := e.handAuthority(ctx, scope, of, kept.New); err != nil {
		return err
	}
	return e.vault.HandOver(ctx, scope.Cluster, of, kept.handover(trustNew, e.clock.Now()))
}

// handAuthority hands an authority to what machines and credentials are made from. Where nobody keeps a bundle, one is made of what a control
// plane has.
func (e *Executor) handAuthority(ctx context.Context, scope kind.Scope, of v1alpha1.CAAuthority, authority credentials.KeyPair) error {
	reader, err := e.sequence.Talos.Reader(ctx, scope.Cluster)
	if err != nil {
		return err
	}
	for _, machine := range scope.Approved {
		if machine.Spec.Role != v1alpha1.ControlPlaneRole {
			continue
		}
		own, err := reader.Config(ctx, machine.Spec.Address)
		if err != nil {
			return err
		}
		return e.vault.HandOverAuthority(ctx, scope.Cluster, of, authority, own.Active)
	}
	return &renderError{errors.New("the cluster has no control plane")}
}
