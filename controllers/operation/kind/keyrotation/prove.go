// SPDX-License-Identifier: Apache-2.0

package keyrotation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	keyplan "ichor.maesh.dev/hub/controllers/operation/kind/keyrotation/plan"
	"ichor.maesh.dev/hub/providers/kube"
)

const (
	// probeLifetime is how long a token is good that is thrown away at once. API servers sign none that is good for less.
	probeLifetime = 10 * time.Minute

	// oldLifetime is how long the token of a key is good that is kept to see it refused in the end.
	oldLifetime = 30 * 24 * time.Hour
)

// prove has the API server of a control plane sign a token that every other one takes, and take one of every other. So it shows what it has
// read, and what the others have.
func (e *Executor) prove(ctx context.Context, scope kind.Scope, unit kind.Unit) (kind.Outcome, error) {
	own, err := e.open(ctx, scope, unit.Machine)
	if err != nil {
		return kind.Outcome{}, err
	}
	defer own.close()
	token, err := own.IssueToken(ctx, probeLifetime)
	if err != nil {
		return kind.Outcome{}, err
	}
	if token.KeyID != own.signsWith {
		return kind.Outcome{}, later("the API server of %s signs with key %s, and its machine config has %s", unit.Status.Name, token.KeyID, own.signsWith)
	}
	others := 0
	for _, machine := range controlPlanes(scope) {
		if machine.Name == unit.Status.Name {
			continue
		}
		switch err := e.proveWith(ctx, scope, unit.Machine, own, token, machine); {
		case err != nil && keyplan.Back(unit.Status.Stage) && kube.Silent(err):
			continue // It may be what is taken back that keeps it from answering. It has to prove itself when its turn comes.
		case err != nil:
			return kind.Outcome{}, err
		}
		others++
	}
	return kind.Outcome{Message: fmt.Sprintf("its API server signs with key %s; %s and this one take each other's tokens", token.KeyID, count(int64(others), "other"))},
		e.proveOld(ctx, scope, unit, own)
}

// proveWith proves two API servers to take each other's tokens.
func (e *Executor) proveWith(ctx context.Context, scope kind.Scope, machine *v1alpha1.TalosMachine, own *opened, token kube.Token, other *v1alpha1.TalosMachine) error {
	there, err := e.open(ctx, scope, other)
	if err != nil {
		return err
	}
	defer there.close()
	if err := takes(ctx, there, token, other.Name, machine.Name); err != nil {
		return err
	}
	back, err := there.IssueToken(ctx, probeLifetime)
	if err != nil {
		return err
	}
	return takes(ctx, own, back, machine.Name, other.Name)
}

func takes(ctx context.Context, server *opened, token kube.Token, at, from string) error {
	taken, err := server.TakesToken(ctx, token.Text)
	if err == nil && !taken {
		err = later("the API server of %s does not take a token that the one of %s has signed with key %s", at, from, token.KeyID)
	}
	return err
}

// proveOld keeps a token of each key while it signs. That of the key which stays is taken to the end, and that of the other one is refused once
// this key is taken away.
func (e *Executor) proveOld(ctx context.Context, scope kind.Scope, unit kind.Unit, own *opened) error {
	stage := unit.Status.Stage
	kept, found, err := e.keeper.load(ctx, scope)
	switch {
	case err != nil || !found || stage == keyplan.MigrateStage:
		return err
	case stage == keyplan.AcceptServiceAccountStage && kept.oldToken == "":
		return e.keepTokenOf(ctx, scope, own, oldTokenData)
	case stage == keyplan.SwapServiceAccountStage && kept.newToken == "":
		if err := e.keepTokenOf(ctx, scope, own, newTokenData); err != nil {
			return err
		}
	case stage == keyplan.BackAcceptServiceAccountStage:
		if err := e.proveToken(ctx, unit, own, kept.newToken, "new", false); err != nil {
			return err
		}
	}
	return e.proveToken(ctx, unit, own, kept.oldToken, "old", !keyplan.Drops(stage))
}

// keepTokenOf keeps a token that an API server signs now.
func (e *Executor) keepTokenOf(ctx context.Context, scope kind.Scope, own *opened, name string) error {
	token, err := own.IssueToken(ctx, oldLifetime)
	if err != nil {
		return err
	}
	return e.keeper.keepToken(ctx, scope, name, token.Text)
}

// proveToken proves that an API server takes a token, or refuses it. None that was kept proves nothing.
func (e *Executor) proveToken(ctx context.Context, unit kind.Unit, own *opened, token, which string, takes bool) error {
	if token == "" {
		return nil
	}
	taken, err := own.TakesToken(ctx, token)
	switch {
	case err != nil:
		return err
	case taken && !takes:
		return later("the API server of %s still takes a token of the %s key", unit.Status.Name, which)
	case !taken && takes && e.lives(token):
		return later("the API server of %s does not take a token of the %s key any more", unit.Status.Name, which)
	}
	return nil
}

// proveReading has the API server of a control plane read all that is encrypted, with the keys that it has left.
func (e *Executor) proveReading(ctx context.Context, scope kind.Scope, unit kind.Unit) (kind.Outcome, error) {
	config, err := e.config(ctx, scope, unit.Machine)
	if err != nil {
		return kind.Outcome{}, err
	}
	encryption, err := machineconfig.EncryptionOf(config)
	if err != nil {
		return kind.Outcome{}, finding("%s", err)
	}
	server, closeIt, err := e.server(ctx, scope, unit.Machine, config)
	if err != nil {
		return kind.Outcome{}, err
	}
	defer closeIt()
	all := 0
	for _, resource := range encryption.Resources() {
		number, err := server.ReadAll(ctx, resource)
		if err != nil {
			return kind.Outcome{}, fmt.Errorf("the API server of %s cannot read all that is encrypted: %w", unit.Status.Name, err)
		}
		all += number
	}
	return kind.Outcome{Message: fmt.Sprintf("its API server reads %s with %s alone", count(int64(all), "encrypted object"), encryption.Keys()[0].Name)}, nil
}

// opened is an API server that can be asked until it is closed.
type opened struct {
	kube.Server

	// signsWith is the ID of the key that its machine config makes it sign with.
	signsWith string

	close func()
}

// open reaches the API server of a control plane.
func (e *Executor) open(ctx context.Context, scope kind.Scope, machine *v1alpha1.TalosMachine) (*opened, error) {
	config, err := e.config(ctx, scope, machine)
	if err != nil {
		return nil, err
	}
	account, err := machineconfig.ServiceAccountOf(config)
	if err != nil {
		return nil, finding("%s: %s", machine.Name, err)
	}
	ids, err := account.KeyIDs()
	if err != nil {
		return nil, finding("%s: %s", machine.Name, err)
	}
	server, closeIt, err := e.server(ctx, scope, machine, config)
	if err != nil {
		return nil, err
	}
	return &opened{Server: server, signsWith: ids[0], close: closeIt}, nil
}

// config is the machine config in force on a machine.
func (e *Executor) config(ctx context.Context, scope kind.Scope, machine *v1alpha1.TalosMachine) ([]byte, error) {
	reader, err := e.options.Talos.Reader(ctx, scope.Cluster)
	if err != nil {
		return nil, err
	}
	own, err := reader.Config(ctx, machine.Spec.Address)
	return own.Active, err
}

// anyConfig is the machine config of the first control plane that tells it.
func (e *Executor) anyConfig(ctx context.Context, scope kind.Scope) ([]byte, error) {
	var failed error
	for _, machine := range controlPlanes(scope) {
		config, err := e.config(ctx, scope, machine)
		if err == nil {
			return config, nil
		}
		failed = errors.Join(failed, err)
	}
	if failed == nil {
		failed = finding("no control plane is known")
	}
	return nil, failed
}

// generate makes the new keys and keeps them, and the old ones, before anything is changed.
func (e *Executor) generate(ctx context.Context, scope kind.Scope) (kind.Outcome, error) {
	kept, found, err := e.keeper.load(ctx, scope)
	if err != nil {
		return kind.Outcome{}, err
	}
	made, old, err := e.make(ctx, scope)
	if err != nil {
		return kind.Outcome{}, err
	}
	for _, key := range old {
		if err := e.keeper.keepOld(ctx, scope, key); err != nil {
			return kind.Outcome{}, err
		}
	}
	if !found {
		if err := e.keeper.keep(ctx, scope, made); err != nil {
			return kind.Outcome{}, err
		}
		if kept, err = e.keeper.need(ctx, scope); err != nil { // Whoever was first, these are the ones.
			return kind.Outcome{}, err
		}
	}
	return kind.Outcome{Message: words(kept)}, nil
}

// words name the new keys.
func words(kept keys) string {
	text := "the new keys are kept"
	if kept.serviceAccount != "" {
		if public, err := machineconfig.PublicKey(kept.serviceAccount); err == nil {
			if id, err := machineconfig.KeyID(public); err == nil {
				text += "; service accounts: " + id
			}
		}
	}
	if kept.secretbox.Name != "" {
		text += "; secretbox: " + kept.secretbox.Name
	}
	return text
}

// make makes new keys of the kinds that the cluster has, and finds the old ones.
func (e *Executor) make(ctx context.Context, scope kind.Scope) (made keys, old []oldKey, err error) {
	var accepted []string
	for _, machine := range controlPlanes(scope) {
		config, err := e.config(ctx, scope, machine)
		if err != nil {
			return keys{}, nil, err
		}
		if keyplan.Rotates(scope.Spec, v1alpha1.ServiceAccountKey) {
			if old, err = made.withIssuer(config, old); err != nil {
				return keys{}, nil, finding("%s: %s", machine.Name, err)
			}
			account, err := machineconfig.ServiceAccountOf(config)
			if err != nil {
				return keys{}, nil, finding("%s: %s", machine.Name, err)
			}
			accepted = append(accepted, account.Accepted...)
		}
		if keyplan.Rotates(scope.Spec, v1alpha1.SecretboxKey) {
			encryption, err := machineconfig.EncryptionOf(config)
			if err != nil {
				return keys{}, nil, finding("%s: %s", machine.Name, err)
			}
			for _, key := range encryption.Keys() {
				old = append(old, oldKey{provider: key.Provider, fingerprint: key.Fingerprint(), data: map[string]string{
					providerData: key.Provider, nameData: key.Name, secretData: key.Secret,
				}})
			}
		}
	}
	if made.oldIssuers, err = e.keeper.withRetired(ctx, scope, made.oldIssuers, accepted); err != nil {
		return keys{}, nil, err
	}
	if keyplan.Rotates(scope.Spec, v1alpha1.SecretboxKey) {
		made.secretbox, err = machineconfig.NewSecretboxKey()
	}
	return made, old, err
}

// withIssuer takes note of the key that an API server signs with.
func (k *keys) withIssuer(config []byte, old []oldKey) ([]oldKey, error) {
	account, err := machineconfig.ServiceAccountOf(config)
	if err != nil {
		return old, err
	}
	public, err := machineconfig.PublicKey(account.Issuer)
	if err != nil || slices.Contains(k.oldIssuers, public) {
		return old, err
	}
	fingerprint, err := machineconfig.KeyFingerprint(public)
	if err != nil {
		return old, err
	}
	k.oldIssuers = append(k.oldIssuers, public)
	if k.serviceAccount == "" {
		k.oldIssuer = account.Issuer
		if k.serviceAccount, err = machineconfig.NewServiceAccountKey(account.Issuer); err != nil {
			return old, err
		}
	}
	return append(old, oldKey{provider: string(v1alpha1.ServiceAccountKey), fingerprint: fingerprint, data: map[string]string{
		providerData: string(v1alpha1.ServiceAccountKey), keyData: account.Issuer,
	}}), nil
}

// lives says whether a token is good for a while yet. One that has ended is refused whoever signed it.
func (e *Executor) lives(token string) bool {
	ends, err := kube.TokenEnds(token)
	return err == nil && e.options.Clock.Now().Before(ends)
}

// count is a number of things in words.
func count(number int64, what string) string {
	if number == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", number, what)
}
