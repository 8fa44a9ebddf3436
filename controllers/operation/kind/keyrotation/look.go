// SPDX-License-Identifier: Apache-2.0

package keyrotation

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	keyplan "ichor.maesh.dev/hub/controllers/operation/kind/keyrotation/plan"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// apiServer is the component that has the keys.
const apiServer = "kube-apiserver"

// Where Talos puts what the API server of a control plane reads when it starts.
const (
	secretsDirectory  = "/system/secrets/kubernetes/kube-apiserver"
	encryptionFile    = "encryptionconfig.yaml"
	publicKeysFile    = "service-account.pub"
	signingKeyFile    = "service-account.key"
	largestDifference = 3
)

// look is what the kind looks at on a control plane. There is no key in it.
type look struct {
	// stage is the stage for which somebody has looked: what one pass asks for is not what the next one does, and a look may be older than that.
	stage string

	// trouble says why nothing is known.
	trouble string

	// refused says what of its machine config has to be changed by people.
	refused string

	// pending says that another config is staged or tried.
	pending bool

	// active and desired are the hashes of the config in force and of the one that the pass asks for, marked that of the one that makes Talos
	// restart the API server beyond that.
	active, desired, marked string

	// isMarked says that the config in force makes Talos restart the API server.
	isMarked bool

	// looked says that somebody has looked at its API server, and missing what that lacks to have the keys of its config; nothing means that it
	// has them.
	looked  bool
	missing string

	// proof says what was found of an API server that lacks nothing, for people.
	proof string

	// restart says that Talos has had the time to restart the API server, and that a restart is all that is missing.
	restart bool

	// others says which other control plane keeps an old key from being dropped.
	others string
}

// lookOf is the look at a machine that answers, for the stage that it is in.
func lookOf(unit kind.Unit, seen kind.Observation) look {
	found, ok := seen.Own.(look)
	if !ok || found.stage != unit.Status.Stage {
		return look{trouble: "nobody has looked at its keys for this stage yet"}
	}
	return found
}

// lookAtMachine looks at the keys of a control plane.
func (e *Executor) lookAtMachine(ctx context.Context, scope kind.Scope, unit kind.Unit) look {
	found := e.lookAtKeys(ctx, scope, unit)
	found.stage = unit.Status.Stage
	return found
}

func (e *Executor) lookAtKeys(ctx context.Context, scope kind.Scope, unit kind.Unit) look {
	reader, err := e.options.Talos.Reader(ctx, scope.Cluster)
	if err != nil {
		return look{trouble: talos.Trouble(err)}
	}
	own, err := reader.Config(ctx, unit.Machine.Spec.Address)
	if err != nil {
		return look{trouble: "its machine config cannot be read: " + talos.Trouble(err)}
	}
	kept, _, err := e.keeper.load(ctx, scope)
	if err != nil {
		return look{trouble: kube.Trouble(err)}
	}
	found := look{active: machineconfig.Hash(own.Active), isMarked: machineconfig.RestartMark(own.Active) != ""}
	found.pending = len(own.Persistent) > 0 && machineconfig.Hash(own.Persistent) != found.active
	if why := obstacle(scope, own.Active); why != "" {
		found.refused = why
		return found
	}
	if found.desired, found.marked, err = hashes(scope, unit, own.Active, kept); err != nil {
		found.refused = err.Error()
		return found
	}
	if found.looked = keyplan.Passes(unit.Status.Stage) && (found.active == found.desired || found.isMarked); found.looked {
		e.lookAtServer(ctx, scope, unit, reader, own.Active, &found)
	}
	if keyplan.TakesAway(unit.Status.Stage) {
		found.others = e.behind(ctx, scope, reader, kept, unit.Status.Stage)
	}
	return found
}

// hashes are those of the config that a pass asks for, without and with the mark that makes Talos restart the API server.
func hashes(scope kind.Scope, unit kind.Unit, active []byte, kept keys) (desired, marked string, err error) {
	config, err := wanted(scope.Spec, unit.Status.Stage, active, kept, "")
	switch {
	case errors.Is(err, errNoKeys):
		return "", "", gone(scope)
	case err != nil:
		return "", "", err
	}
	with, err := machineconfig.WithRestartMark(config, markOf(scope, unit))
	if err != nil {
		return "", "", err
	}
	return machineconfig.Hash(config), machineconfig.Hash(with), nil
}

// markOf is the mark of a pass of an operation.
func markOf(scope kind.Scope, unit kind.Unit) string {
	return strings.ToLower(scope.OperationID[:min(len(scope.OperationID), 8)] + "-" + unit.Status.Stage)
}

// obstacle says what of a config keeps its keys from being rotated.
func obstacle(scope kind.Scope, config []byte) string {
	if keyplan.Rotates(scope.Spec, v1alpha1.ServiceAccountKey) {
		account, err := machineconfig.ServiceAccountOf(config)
		if err == nil {
			_, err = account.KeyIDs()
		}
		if err != nil {
			return err.Error()
		}
	}
	if keyplan.Rotates(scope.Spec, v1alpha1.SecretboxKey) {
		encryption, err := machineconfig.EncryptionOf(config)
		if err != nil {
			return err.Error()
		}
		return encryption.Obstacle()
	}
	return ""
}

// lookAtServer finds out whether an API server has the keys of the config in force. What it has read it has read when it started, so it has to
// have started after its files were written.
func (e *Executor) lookAtServer(ctx context.Context, scope kind.Scope, unit kind.Unit, reader talos.Reader, config []byte, found *look) {
	var err error
	if found.missing, err = e.rendered(ctx, scope, unit, reader, config); found.missing != "" || err != nil {
		found.missing = orTrouble(found.missing, err)
		return
	}
	missing, helps, err := e.loaded(ctx, scope, unit, reader, config)
	found.missing = orTrouble(missing, err)
	found.proof = proofOf(scope, config)
	waits := unit.Status.Step == v1alpha1.VerifyingStep
	found.restart = err == nil && helps && waits && e.options.Clock.Since(unit.Status.StepStartTime.Time) >= e.options.RestartAfter
}

// proofOf says which keys an API server has whose files are as its config says, and that has started since.
func proofOf(scope kind.Scope, config []byte) string {
	encryption, err := machineconfig.EncryptionOf(config)
	if err != nil || !keyplan.Rotates(scope.Spec, v1alpha1.SecretboxKey) {
		return ""
	}
	var names []string
	for _, key := range encryption.Keys() {
		names = append(names, key.Name)
	}
	return fmt.Sprintf("its API server has started since its files were written: it writes with %s and reads with %s", names[0], strings.Join(names, ", "))
}

func orTrouble(words string, err error) string {
	switch {
	case err == nil:
		return words
	case talos.IsStatus(err):
		return "waiting for the Talos API: " + talos.Trouble(err)
	}
	return "waiting for the API server: " + kube.Trouble(err)
}

// rendered says which file Talos has not written yet as the config says.
func (e *Executor) rendered(ctx context.Context, scope kind.Scope, unit kind.Unit, reader talos.Reader, config []byte) (string, error) {
	if !keyplan.Rotates(scope.Spec, v1alpha1.SecretboxKey) {
		return "", nil
	}
	data, err := reader.File(ctx, unit.Machine.Spec.Address, path.Join(secretsDirectory, encryptionFile))
	if err != nil {
		return "", err
	}
	return unwritten(config, data), nil
}

// unwritten says that the file of an API server is not as the machine config says.
func unwritten(config, file []byte) string {
	want, err := machineconfig.EncryptionOf(config)
	if err != nil {
		return err.Error()
	}
	if is, err := machineconfig.ParseEncryption(file); err != nil || !is.Equal(want) {
		return "waiting until Talos has written " + encryptionFile + " as its machine config says"
	}
	return ""
}

// loaded says what of its files an API server has not read yet, and whether a restart is what helps.
func (e *Executor) loaded(ctx context.Context, scope kind.Scope, unit kind.Unit, reader talos.Reader, config []byte) (missing string, helps bool, err error) {
	times, err := reader.FileTimes(ctx, unit.Machine.Spec.Address, secretsDirectory)
	if err != nil {
		return "", false, err
	}
	var written time.Time
	for _, file := range []string{encryptionFile, publicKeysFile, signingKeyFile} {
		if at := times[file]; at.After(written) {
			written = at
		}
	}
	pods, err := e.options.Kube.Reader(ctx, scope.Cluster)
	if err != nil {
		return "", false, err
	}
	list, err := pods.ComponentPods(ctx)
	if err != nil {
		return "", false, err
	}
	i := slices.IndexFunc(list, func(p kube.ComponentPod) bool {
		return p.Component == apiServer && p.Node == unit.Machine.Status.NodeName
	})
	switch {
	case i < 0 || list[i].Started.IsZero():
		return "waiting for its API server, which does not run", false, nil
	case !list[i].Started.After(written): // In whole seconds: a restart in the second of the writing may have come before it.
		return fmt.Sprintf("waiting until its API server, which started at %s, has restarted: its keys were written at %s",
			list[i].Started.Format(time.TimeOnly), written.Format(time.TimeOnly)), true, nil
	case !list[i].Ready:
		return strings.TrimSuffix("waiting until its API server is ready: "+list[i].Trouble, ": "), false, nil
	}
	if !keyplan.Rotates(scope.Spec, v1alpha1.ServiceAccountKey) {
		return "", false, nil
	}
	missing, err = e.publishes(ctx, scope, unit, config)
	return missing, missing != "", err
}

// publishes says whether an API server takes the tokens of exactly the keys of its config.
func (e *Executor) publishes(ctx context.Context, scope kind.Scope, unit kind.Unit, config []byte) (string, error) {
	account, err := machineconfig.ServiceAccountOf(config)
	if err != nil {
		return "", err
	}
	want, err := account.KeyIDs()
	if err != nil {
		return "", err
	}
	server, closeIt, err := e.server(ctx, scope, unit.Machine, config)
	if err != nil {
		return "", err
	}
	defer closeIt()
	is, err := server.SigningKeys(ctx)
	if err != nil {
		return "", err
	}
	slices.Sort(want)
	if !slices.Equal(is, want) {
		return fmt.Sprintf("waiting until its API server takes the tokens of the %d keys of its machine config: it publishes %d%s", len(want), len(is), differing(is, want)), nil
	}
	return "", nil
}

// differing names keys that only one of two lists has.
func differing(is, want []string) string {
	var words []string
	for _, id := range want {
		if !slices.Contains(is, id) {
			words = append(words, "without "+id)
		}
	}
	for _, id := range is {
		if !slices.Contains(want, id) {
			words = append(words, "with "+id)
		}
	}
	return ", " + strings.Join(words[:min(len(words), largestDifference)], ", ")
}

// server reaches the API server of a control plane, and no other.
func (e *Executor) server(ctx context.Context, scope kind.Scope, machine *v1alpha1.TalosMachine, config []byte) (kube.Server, func(), error) {
	port, err := machineconfig.APIServerPort(config)
	if err != nil {
		return nil, nil, err
	}
	return e.options.Kube.Server(ctx, scope.Cluster, scope.Guard, machine.Spec.Address, port)
}

// controlPlanes are those that the hub may touch.
func controlPlanes(scope kind.Scope) []*v1alpha1.TalosMachine {
	return slices.DeleteFunc(slices.Clone(scope.Approved), func(m *v1alpha1.TalosMachine) bool { return m.Spec.Role != v1alpha1.ControlPlaneRole })
}

// behind names a control plane that does not use the key yet which is to be left, or of which that is not known; nothing if there is none. It
// may have joined since, or be away.
func (e *Executor) behind(ctx context.Context, scope kind.Scope, reader talos.Reader, kept keys, stage string) string {
	which := "new"
	if keyplan.Back(stage) {
		which = "old"
	}
	for _, machine := range controlPlanes(scope) {
		if machine.Held() {
			return fmt.Sprintf("control plane %s is held, and no key is dropped without it: ichor machine unhold %[1]s --cluster %s", machine.Name, scope.Cluster.Name)
		}
		own, err := reader.Config(ctx, machine.Spec.Address)
		if err != nil {
			return fmt.Sprintf("control plane %s does not tell which key it uses, and no key is dropped without it: %s", machine.Name, talos.Trouble(err))
		}
		uses, err := usesNew(own.Active, kept, stage)
		if err != nil {
			return fmt.Sprintf("control plane %s: %s", machine.Name, err)
		}
		if uses == keyplan.Back(stage) {
			return fmt.Sprintf("control plane %s does not use the %s key, and would be left without any: has it joined since? Remove it, and join it again "+
				"with the machine config of another control plane", machine.Name, which)
		}
	}
	return ""
}

// usesNew says whether a config uses the new key that a stage is about.
func usesNew(config []byte, kept keys, stage string) (bool, error) {
	switch stage {
	case keyplan.DropServiceAccountStage, keyplan.BackAcceptServiceAccountStage:
		account, err := machineconfig.ServiceAccountOf(config)
		return strings.TrimSpace(account.Issuer) == strings.TrimSpace(kept.serviceAccount), err
	}
	encryption, err := machineconfig.EncryptionOf(config)
	return err == nil && encryption.WritesWith(kept.secretbox), err
}

// wanted is the config that a pass asks for, made from the one that a machine has. Made from itself it is itself.
func wanted(spec v1alpha1.TalosOperationSpec, stage string, active []byte, kept keys, mark string) ([]byte, error) {
	config, err := machineconfig.WithRestartMark(active, "")
	if err != nil {
		return nil, err
	}
	if keyplan.Rotates(spec, v1alpha1.ServiceAccountKey) {
		if config, err = withServiceAccount(config, stage, kept); err != nil {
			return nil, err
		}
	}
	if keyplan.Rotates(spec, v1alpha1.SecretboxKey) {
		if config, err = withEncryption(config, stage, kept); err != nil {
			return nil, err
		}
	}
	return machineconfig.WithRestartMark(config, mark)
}

// errNoKeys means that a pass asks for a key that is not kept.
var errNoKeys = errors.New("the Secret with the new keys is gone")

func withServiceAccount(config []byte, stage string, kept keys) ([]byte, error) {
	account, err := machineconfig.ServiceAccountOf(config)
	if err != nil {
		return nil, err
	}
	if change := accountChanges[stage]; change != nil {
		if kept.serviceAccount == "" {
			return nil, errNoKeys
		}
		if account, err = change(account, kept); err != nil {
			return nil, err
		}
	}
	return machineconfig.WithServiceAccount(config, account)
}

// accountChanges are what passes do about the key of service accounts.
var accountChanges = map[string]func(machineconfig.ServiceAccount, keys) (machineconfig.ServiceAccount, error){
	keyplan.AcceptServiceAccountStage: func(account machineconfig.ServiceAccount, kept keys) (machineconfig.ServiceAccount, error) {
		public, err := machineconfig.PublicKey(kept.serviceAccount)
		if err != nil {
			return account, err
		}
		return account.Accepting(public)
	},
	keyplan.SwapServiceAccountStage: func(account machineconfig.ServiceAccount, kept keys) (machineconfig.ServiceAccount, error) {
		return account.Issuing(kept.serviceAccount)
	},
	keyplan.DropServiceAccountStage: func(account machineconfig.ServiceAccount, kept keys) (machineconfig.ServiceAccount, error) {
		account, err := account.Issuing(kept.serviceAccount)
		if err != nil {
			return account, err
		}
		return account.Dropping(kept.oldIssuers...)
	},
	keyplan.BackSwapServiceAccountStage: func(account machineconfig.ServiceAccount, kept keys) (machineconfig.ServiceAccount, error) {
		return account.Issuing(kept.oldIssuer)
	},
	keyplan.BackAcceptServiceAccountStage: func(account machineconfig.ServiceAccount, kept keys) (machineconfig.ServiceAccount, error) {
		public, err := machineconfig.PublicKey(kept.serviceAccount)
		if err != nil {
			return account, err
		}
		return account.Dropping(public)
	},
}

func withEncryption(config []byte, stage string, kept keys) ([]byte, error) {
	encryption, err := machineconfig.EncryptionOf(config)
	if err != nil {
		return nil, err
	}
	if change := encryptionChanges[stage]; change != nil {
		if kept.secretbox.Name == "" {
			return nil, errNoKeys
		}
		encryption = change(encryption, kept.secretbox)
	}
	return machineconfig.WithEncryption(config, encryption)
}

// encryptionChanges are what passes do about the key that encrypts Secrets.
var encryptionChanges = map[string]func(machineconfig.Encryption, machineconfig.EncryptionKey) machineconfig.Encryption{
	keyplan.AcceptSecretboxStage:     machineconfig.Encryption.Accepting,
	keyplan.SwapSecretboxStage:       machineconfig.Encryption.Writing,
	keyplan.DropSecretboxStage:       machineconfig.Encryption.Only,
	keyplan.BackSwapSecretboxStage:   machineconfig.Encryption.Accepting,
	keyplan.BackAcceptSecretboxStage: machineconfig.Encryption.Without,
}
