// SPDX-License-Identifier: Apache-2.0

package keyrotation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	keyplan "ichor.maesh.dev/hub/controllers/operation/kind/keyrotation/plan"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// clusterLook is what is looked at for a stage that is about the whole cluster.
type clusterLook struct {
	// trouble says why nothing is known.
	trouble string

	// others says which control plane does not use the right key yet.
	others string

	// issuer is where tokens are verified if that is not the cluster itself, and keyID the new key.
	issuer, keyID string

	// until is when all tokens of pods are refreshed, and over says that it has come.
	until time.Time
	over  bool

	// legacy are the Secrets whose tokens the key has signed that goes.
	legacy []string
}

func clusterLookOf(seen kind.Observation) clusterLook {
	found, _ := seen.Own.(clusterLook) // Nothing is needed of it where nobody looks.
	return found
}

func (e *Executor) lookAtCluster(ctx context.Context, scope kind.Scope, unit kind.Unit) clusterLook {
	switch unit.Status.Stage {
	case keyplan.PublishKeysStage:
		return e.lookAtIssuer(ctx, scope)
	case keyplan.RefreshTokensStage, keyplan.BackRefreshTokensStage:
		return e.lookAtTokens(ctx, scope, unit)
	case keyplan.RewriteStage, keyplan.BackRewriteStage:
		return e.lookAtWriters(ctx, scope, unit)
	}
	return clusterLook{}
}

// lookAtWriters makes sure that every API server writes with the same key by now: what is written again has to stay so.
func (e *Executor) lookAtWriters(ctx context.Context, scope kind.Scope, unit kind.Unit) clusterLook {
	kept, err := e.keeper.need(ctx, scope)
	if err != nil {
		return clusterLook{trouble: err.Error()}
	}
	reader, err := e.options.Talos.Reader(ctx, scope.Cluster)
	if err != nil {
		return clusterLook{trouble: talos.Trouble(err)}
	}
	return clusterLook{others: e.behind(ctx, scope, reader, kept, unit.Status.Stage)}
}

// lookAtIssuer finds out where tokens are verified.
func (e *Executor) lookAtIssuer(ctx context.Context, scope kind.Scope) clusterLook {
	kept, err := e.keeper.need(ctx, scope)
	if err != nil {
		return clusterLook{trouble: err.Error()}
	}
	config, err := e.anyConfig(ctx, scope)
	if err != nil {
		return clusterLook{trouble: talos.Trouble(err)}
	}
	issuer, err := machineconfig.ForeignIssuer(config)
	if err != nil {
		return clusterLook{trouble: err.Error()}
	}
	public, err := machineconfig.PublicKey(kept.serviceAccount)
	if err != nil {
		return clusterLook{trouble: err.Error()}
	}
	id, err := machineconfig.KeyID(public)
	if err != nil {
		return clusterLook{trouble: err.Error()}
	}
	return clusterLook{issuer: issuer, keyID: id}
}

// publishing waits until who verifies tokens elsewhere has the new key. The API server publishes its own keys itself.
func publishing(scope kind.Scope, unit kind.Unit, found clusterLook) kind.Action {
	asked := unit.Status.Step != ""
	switch {
	case asked && scope.ConfirmedStage == unit.Status.Stage:
		return kind.Action{Verdict: kind.Done, Message: "confirmed by hand"}
	case found.trouble != "" && !asked:
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.TargetReachableGate, Message: found.trouble}
	case found.trouble != "":
		return kind.Action{Verdict: kind.Wait, Message: found.trouble}
	case found.keyID == "":
		return kind.Action{Verdict: kind.Wait, Message: "looking where tokens are verified"}
	case found.issuer == "":
		return kind.Action{Verdict: kind.Done}
	}
	return kind.Action{Verdict: kind.Wait, Step: v1alpha1.AwaitingCredentialsStep, Message: fmt.Sprintf(
		"publish key %s, which /openid/v1/jwks has by now, at %s; then: ichor operation confirm %s", found.keyID, found.issuer, operationName(scope))}
}

// lookAtTokens finds out who may still use a token of the key that goes: the old one, or on the way back the new one.
func (e *Executor) lookAtTokens(ctx context.Context, scope kind.Scope, unit kind.Unit) clusterLook {
	began := beganToWait(unit)
	if began.IsZero() {
		return clusterLook{}
	}
	found := clusterLook{until: began.Add(e.options.Refresh).UTC().Truncate(time.Second)}
	found.over = !e.options.Clock.Now().Before(found.until)
	reader, err := e.options.Kube.Reader(ctx, scope.Cluster)
	if err != nil {
		return clusterLook{trouble: kube.Trouble(err)}
	}
	tokens, err := reader.LegacyTokens(ctx)
	if err != nil {
		return clusterLook{trouble: kube.Trouble(err)}
	}
	from := time.Time{}
	if keyplan.Back(unit.Status.Stage) { // What is older than the new key, the old one has signed, which stays.
		kept, _, err := e.keeper.load(ctx, scope)
		if err != nil {
			return clusterLook{trouble: err.Error()}
		}
		from = kept.made
	}
	for _, token := range tokens {
		if token.Created.Before(began) && !token.Created.Before(from) {
			found.legacy = append(found.legacy, token.Name)
		}
	}
	return found
}

// beganToWait is when an operation began to wait for tokens, for the first time: a pause does not make them younger.
func beganToWait(unit kind.Unit) time.Time {
	for _, record := range unit.Status.Steps {
		if record.Step == v1alpha1.RefreshingStep {
			return record.StartTime.Time
		}
	}
	return time.Time{}
}

// refreshing waits until nobody uses a token of the key that goes any more, or somebody says so.
func refreshing(scope kind.Scope, unit kind.Unit, found clusterLook) kind.Action {
	which := "old"
	if keyplan.Back(unit.Status.Stage) {
		which = "new"
	}
	waiting := fmt.Sprintf("waiting until tokens of the %s key are refreshed", which)
	secrets := legacyWords(len(found.legacy), which)
	confirm := fmt.Sprintf("end it earlier with: ichor operation confirm %s", operationName(scope))
	switch {
	case unit.Status.Step == "":
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.RefreshingStep, Message: waiting}
	case scope.ConfirmedStage == unit.Status.Stage:
		return kind.Action{Verdict: kind.Done, Message: confirmedWords(found, which)}
	case found.trouble != "":
		return kind.Action{Verdict: kind.Wait, Message: "waiting for the Kubernetes API, to see who uses such tokens: " + found.trouble}
	case found.until.IsZero():
		return kind.Action{Verdict: kind.Wait, Message: waiting}
	case !found.over && len(found.legacy) > 0:
		return kind.Action{Verdict: kind.Wait, Message: fmt.Sprintf("until %s, when pods have new tokens; %s: make anew %s; %s",
			found.until.Format(time.RFC3339), secrets, some(found.legacy), confirm)}
	case !found.over:
		return kind.Action{Verdict: kind.Wait, Message: fmt.Sprintf("until %s, when pods have new tokens; %s", found.until.Format(time.RFC3339), confirm)}
	case len(found.legacy) > 0:
		return kind.Action{Verdict: kind.Wait, Message: fmt.Sprintf("%s, which nobody renews: delete and make anew %s; %s",
			secrets, some(found.legacy), confirm)}
	}
	return kind.Action{Verdict: kind.Done}
}

// legacyWords count Secrets whose tokens nobody renews.
func legacyWords(number int, which string) string {
	return fmt.Sprintf("%s with a token of the %s key", count(int64(number), "Secret"), which)
}

func confirmedWords(found clusterLook, which string) string {
	if len(found.legacy) == 0 {
		return "confirmed by hand"
	}
	return fmt.Sprintf("confirmed by hand, although tokens of the %s key are in %s", which, some(found.legacy))
}

func operationName(scope kind.Scope) string {
	_, name, _ := strings.Cut(scope.Owner, "/")
	return name
}

// named bounds how many names a message has.
const named = 3

// some are names in order, as many as a message has room for.
func some(names []string) string {
	if extra := len(names) - named; extra > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:named], ", "), extra)
	}
	return strings.Join(names, ", ")
}

// rewriting has everything written again, call by call.
func rewriting(unit kind.Unit, found clusterLook) kind.Action {
	begun := unit.Status.Step != ""
	switch {
	case unit.Failed():
		return kind.FailStep(unit, "")
	case begun && !moreToWrite(unit):
		return kind.Action{Verdict: kind.Done, Message: unit.Status.Outcome.Message}
	case found.trouble != "":
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.TargetReachableGate, Message: found.trouble}
	case found.others != "":
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.KeysInUseGate, Message: found.others}
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.RewritingStep, GoOn: begun}
}

// moreToWrite says whether there are objects behind those that were written again.
func moreToWrite(unit kind.Unit) bool {
	return unit.Status.Progress != nil && unit.Status.Progress.Cursor != ""
}

// writer has objects written again.
type writer interface {
	Rewrite(ctx context.Context, kind, after string, limit int) (kube.Rewritten, error)
}

// writerOf is who writes again, and the kinds that are: for a control plane its own API server, which reads with the key that it is to lose.
func (e *Executor) writerOf(ctx context.Context, scope kind.Scope, unit kind.Unit) (who writer, resources []string, closeIt func(), err error) {
	read := func() ([]byte, error) { return e.anyConfig(ctx, scope) }
	if unit.Machine != nil {
		read = func() ([]byte, error) { return e.config(ctx, scope, unit.Machine) }
	}
	config, err := read()
	if err != nil {
		return nil, nil, nil, err
	}
	encryption, err := machineconfig.EncryptionOf(config)
	if err != nil {
		return nil, nil, nil, finding("%s", err)
	}
	if unit.Machine != nil {
		who, closeIt, err = e.server(ctx, scope, unit.Machine, config)
	} else {
		who, err = e.options.Kube.Writer(ctx, scope.Cluster, scope.Guard)
		closeIt = func() {}
	}
	return who, encryption.Resources(), closeIt, err
}

// rewrite has some objects written again, behind the last one that was.
func (e *Executor) rewrite(ctx context.Context, scope kind.Scope, unit kind.Unit) (kind.Outcome, error) {
	who, resources, closeIt, err := e.writerOf(ctx, scope, unit)
	if err != nil {
		return kind.Outcome{}, err
	}
	defer closeIt()
	progress := v1alpha1.UnitProgress{}
	if unit.Status.Progress != nil {
		progress = *unit.Status.Progress
	}
	resource, after := cursorOf(progress.Cursor, resources)
	done, err := who.Rewrite(ctx, resource, after, e.options.Chunk)
	progress.Done += int64(done.Count)
	switch next := slices.Index(resources, resource) + 1; {
	case err != nil && unit.Machine != nil:
		progress.Cursor = "" // Who knows what is written until somebody goes on.
	case err != nil || done.More:
		progress.Cursor = resource + " " + done.Last
	case next < len(resources):
		progress.Cursor = resources[next] + " "
	default:
		progress.Cursor = ""
	}
	return kind.Outcome{Progress: &progress, Message: fmt.Sprintf("%s written again", count(progress.Done, "object"))}, err
}

// cursorOf reads a cursor: the kind, and the last object of it that is done. None is the beginning.
func cursorOf(cursor string, resources []string) (resource, after string) {
	resource, after, _ = strings.Cut(cursor, " ")
	if !slices.Contains(resources, resource) { // Somebody has changed what is encrypted: nothing is lost by writing it twice.
		return resources[0], ""
	}
	return resource, after
}

// renew brings the cluster's bundle of secrets up to date, and gives the old keys to the snapshots that need them.
func (e *Executor) renew(ctx context.Context, scope kind.Scope) (kind.Outcome, error) {
	kept, found, err := e.keeper.load(ctx, scope)
	switch {
	case err != nil:
		return kind.Outcome{}, err
	case !found && scope.TurnBack:
		return kind.Outcome{Message: "nothing was changed"}, nil
	case !found:
		return kind.Outcome{}, gone(scope)
	}
	if err := e.keeper.giveOld(ctx, scope); err != nil {
		return kind.Outcome{}, err
	}
	if e.options.Bundles == nil {
		return kind.Outcome{}, nil
	}
	if kept, err = e.used(ctx, scope, kept); err != nil {
		return kind.Outcome{}, err
	}
	err = e.options.Bundles(guard.With(ctx, scope.Guard), scope.Cluster, kept.into)
	if errors.Is(err, credentials.ErrMissing) {
		return kind.Outcome{Message: "no bundle of secrets is kept for the cluster: whoever has one has to replace it"}, nil
	}
	return kind.Outcome{}, err
}

// used are the keys of those that are kept that control planes use: one that was turned back is of no use any more.
func (e *Executor) used(ctx context.Context, scope kind.Scope, kept keys) (keys, error) {
	config, err := e.anyConfig(ctx, scope)
	if err != nil {
		return keys{}, err
	}
	for _, key := range []struct {
		made   bool // One that is not rotated may not be there at all.
		stage  string
		forget func()
	}{
		{kept.serviceAccount != "", keyplan.DropServiceAccountStage, func() { kept.serviceAccount = "" }},
		{kept.secretbox.Secret != "", keyplan.DropSecretboxStage, func() { kept.secretbox = machineconfig.EncryptionKey{} }},
	} {
		if !key.made {
			continue
		}
		uses, err := usesNew(config, kept, key.stage)
		if err != nil {
			return keys{}, finding("%s", err)
		}
		if !uses {
			key.forget()
		}
	}
	return kept, nil
}

// into puts the new keys into a bundle.
func (k keys) into(bundle *secrets.Bundle) error {
	if k.serviceAccount != "" {
		if bundle.Certs == nil {
			return errors.New("the bundle of secrets has no certificates")
		}
		bundle.Certs.K8sServiceAccount = &x509.PEMEncodedKey{Key: []byte(k.serviceAccount)}
	}
	if k.secretbox.Secret != "" {
		if bundle.Secrets == nil {
			return errors.New("the bundle of secrets has no secrets")
		}
		bundle.Secrets.SecretboxEncryptionSecret, bundle.Secrets.AESCBCEncryptionSecret = k.secretbox.Secret, ""
	}
	return nil
}
