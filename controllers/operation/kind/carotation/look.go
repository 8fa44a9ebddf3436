// SPDX-License-Identifier: Apache-2.0

package carotation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	rotationplan "ichor.maesh.dev/hub/controllers/operation/kind/carotation/plan"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// Look is what is looked at of one machine. It holds no secret, and two looks at the same state are equal.
type Look struct {
	// Trouble says why nothing is known; Lost why nothing ever will be, until somebody mends it.
	Trouble, Lost string

	// At is where the config in force is on the way.
	At position

	// Desired is the hash of the config that brings the machine to its next position.
	Desired string

	// Pending says that another config is staged or tried on the machine.
	Pending bool

	// Unproven says what the machine does not show yet of what its config says; empty if it has proved it.
	Unproven string

	// Lagging are the other machines that keep this one from dropping the old authority, with why. Late says that some of them joined late, and
	// can be brought to where the others are.
	Lagging []string
	Late    bool
}

// Overview is what is looked at of a whole cluster.
type Overview struct {
	// Trouble says why nothing is known; Lost why nothing ever will be, until somebody mends it.
	Trouble, Lost string

	// Lagging are the machines that are not where a stage needs them, with why.
	Lagging []string

	// Late says that some of them joined late, and can be brought to where the others are.
	Late bool

	// Stale are the credentials that are not what was handed over.
	Stale string
}

// Observe implements kind.Executor.
func (e *Executor) Observe(ctx context.Context, scope kind.Scope, unit kind.Unit) kind.Observation {
	if unit.Machine == nil {
		return kind.Observation{Own: e.overview(ctx, scope, unit.Status.Stage)}
	}
	seen := e.sequence.Observe(ctx, scope, unit)
	if seen.TalosTrouble == "" {
		seen.Own = e.look(ctx, scope, unit)
	}
	return seen
}

// lookOf is what was looked at.
func lookOf(seen kind.Observation) Look {
	look, ok := seen.Own.(Look)
	if !ok {
		return Look{Trouble: "nobody has looked at its machine config yet"}
	}
	return look
}

func (e *Executor) look(ctx context.Context, scope kind.Scope, unit kind.Unit) Look {
	of, pass := rotationplan.Parse(unit.Status.Stage)
	kept, err := e.material(ctx, scope, of)
	switch {
	case errors.Is(err, errLost):
		return Look{Lost: err.Error()}
	case err != nil:
		return Look{Trouble: err.Error()}
	}
	own, trouble := e.configOf(ctx, scope, unit.Machine)
	if trouble != "" {
		return Look{Trouble: trouble}
	}
	found := Look{Pending: machineconfig.Hash(own.Active) != hashOnDisk(own)}
	have, err := machineconfig.ReadAuthorities(own.Active, of)
	if err != nil {
		return Look{Lost: err.Error()}
	}
	found.At = positionOf(have, kept, goals[pass])
	switch {
	case found.At == foreign:
	case reached(pass, found.At):
		found.Unproven = e.unproven(ctx, scope, unit.Machine, own, of, proofOf(pass, kept))
	default:
		made, err := rendered(own.Active, of, kept, nextPosition(pass, found.At))
		if err != nil {
			return Look{Lost: err.Error()}
		}
		found.Desired = machineconfig.Hash(made)
		if pass.Drops() && found.At == swapped { // It has to be sure of the new one before it drops the old.
			found.Unproven = e.unproven(ctx, scope, unit.Machine, own, of, e.proofOfAll(ctx, scope, of, rotationplan.Swap, kept))
			found.Lagging = append(e.strangers(ctx, scope), e.lagging(ctx, scope, others(scope, unit.Machine), of, rotationplan.Swap, kept)...)
			found.Late = e.late(ctx, scope, of, rotationplan.Swap, kept)
			if stale := e.stale(ctx, scope, of, kept); stale != "" {
				found.Lagging = append(found.Lagging, fmt.Sprintf("%s; put the new one there: it is in Secret %s", stale, secretKey(scope).Name))
			}
		}
	}
	return found
}

// others are all machines but one.
func others(scope kind.Scope, but *v1alpha1.TalosMachine) []*v1alpha1.TalosMachine {
	return slices.DeleteFunc(slices.Clone(scope.Approved), func(m *v1alpha1.TalosMachine) bool { return m.Name == but.Name })
}

func (e *Executor) configOf(ctx context.Context, scope kind.Scope, machine *v1alpha1.TalosMachine) (own talos.Config, trouble string) {
	reader, err := e.sequence.Talos.Reader(ctx, scope.Cluster)
	if err == nil {
		own, err = reader.Config(ctx, machine.Spec.Address)
	}
	if err != nil {
		return talos.Config{}, talos.Trouble(err)
	}
	return own, ""
}

// hashOnDisk is the hash of the config that the next boot brings in force. A machine that does not tell has no other.
func hashOnDisk(own talos.Config) string {
	if len(own.Persistent) == 0 {
		return machineconfig.Hash(own.Active)
	}
	return machineconfig.Hash(own.Persistent)
}

// overview looks at what a stage without machines is about.
func (e *Executor) overview(ctx context.Context, scope kind.Scope, stage string) Overview {
	switch stage {
	case rotationplan.PrepareStage:
		return e.before(ctx, scope)
	case rotationplan.FinishStage:
		return e.after(ctx, scope)
	}
	of, pass := rotationplan.Parse(stage)
	kept, err := e.material(ctx, scope, of)
	switch {
	case errors.Is(err, errLost):
		return Overview{Lost: err.Error()}
	case err != nil:
		return Overview{Trouble: err.Error()}
	}
	var seen Overview
	if needed, ok := needs[pass]; ok {
		seen.Lagging = append(e.strangers(ctx, scope), e.lagging(ctx, scope, scope.Approved, of, needed, kept)...)
		seen.Late = pass.Forward() && e.late(ctx, scope, of, needed, kept)
	}
	if pass == rotationplan.AwaitCredentials {
		if seen.Stale = e.stale(ctx, scope, of, kept); seen.Stale != "" {
			seen.Stale += "; pause the operation and resume it to have it written once more"
		}
	}
	return seen
}

// needs are the passes that every machine has to be through, and to have proved, before something is done in another one.
var needs = map[rotationplan.Pass]rotationplan.Pass{
	rotationplan.Trust: rotationplan.Accept, rotationplan.AwaitCredentials: rotationplan.Swap, rotationplan.BackCredentials: rotationplan.BackSwap,
	rotationplan.DropWorkers: rotationplan.Swap, rotationplan.Drop: rotationplan.Swap,
}

// looks bounds how many machines are looked at together.
const looks = 16

// each asks something about machines, and returns the answers that are not empty, in order.
func each(machines []*v1alpha1.TalosMachine, ask func(*v1alpha1.TalosMachine) string) []string {
	answers := make([]string, len(machines))
	var group sync.WaitGroup
	places := make(chan struct{}, looks)
	for i, machine := range machines {
		group.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			answers[i] = ask(machine)
		})
	}
	group.Wait()
	return slices.DeleteFunc(answers, func(answer string) bool { return answer == "" })
}

// lagging are the machines that are not through with a pass, or have not proved it.
func (e *Executor) lagging(
	ctx context.Context, scope kind.Scope, machines []*v1alpha1.TalosMachine, of v1alpha1.CAAuthority, pass rotationplan.Pass, kept Material,
) []string {
	wanted := e.proofOfAll(ctx, scope, of, pass, kept)
	return each(machines, func(machine *v1alpha1.TalosMachine) string {
		own, trouble := e.configOf(ctx, scope, machine)
		if trouble != "" {
			return fmt.Sprintf("machine %s does not answer: %s", machine.Name, trouble)
		}
		have, err := machineconfig.ReadAuthorities(own.Active, of)
		if err != nil {
			return fmt.Sprintf("machine %s: %s", machine.Name, err)
		}
		switch at := positionOf(have, kept, goals[pass]); {
		case at == foreign || !reached(pass, at):
			return fmt.Sprintf("machine %s %s", machine.Name, positionWords[at])
		case machine.Held() && pass == rotationplan.Swap:
			return fmt.Sprintf("machine %s is held", machine.Name)
		}
		if missing := e.unproven(ctx, scope, machine, own, of, wanted); missing != "" {
			return fmt.Sprintf("machine %s: %s", machine.Name, missing)
		}
		return ""
	})
}

// proofOfAll is the proof of a pass where others may be further than it. Once the first API server has dropped the old authority, kubelets of control
// planes that reach it by a shared address are refused until they drop it, too: that their Nodes are Ready is not asked any more, or each would wait
// for the other.
func (e *Executor) proofOfAll(ctx context.Context, scope kind.Scope, of v1alpha1.CAAuthority, pass rotationplan.Pass, kept Material) proof {
	wanted := proofOf(pass, kept)
	wanted.unready = pass == rotationplan.Swap && of == v1alpha1.KubernetesCA && slices.ContainsFunc(scope.Approved, func(machine *v1alpha1.TalosMachine) bool {
		return machine.Spec.Role == v1alpha1.ControlPlaneRole && e.isDropped(ctx, scope, machine, of, kept)
	})
	return wanted
}

// isDropped says whether a machine knows the new authority alone, as far as it answers.
func (e *Executor) isDropped(ctx context.Context, scope kind.Scope, machine *v1alpha1.TalosMachine, of v1alpha1.CAAuthority, kept Material) bool {
	own, _ := e.configOf(ctx, scope, machine)
	have, err := machineconfig.ReadAuthorities(own.Active, of)
	return err == nil && positionOf(have, kept, dropped) == dropped
}

// late says whether a machine answers that is not where a pass has brought the others.
func (e *Executor) late(ctx context.Context, scope kind.Scope, of v1alpha1.CAAuthority, pass rotationplan.Pass, kept Material) bool {
	return len(each(scope.Approved, func(machine *v1alpha1.TalosMachine) string {
		own, trouble := e.configOf(ctx, scope, machine)
		if trouble != "" || machine.Held() {
			return ""
		}
		have, err := machineconfig.ReadAuthorities(own.Active, of)
		if at := positionOf(have, kept, goals[pass]); err != nil || at == foreign || reached(pass, at) {
			return ""
		}
		return machine.Name
	})) > 0
}

// strangers are what belongs to the cluster and is no machine that the hub may touch: it would be locked out.
func (e *Executor) strangers(ctx context.Context, scope kind.Scope) []string {
	var list []string
	for _, name := range scope.Unapproved() {
		list = append(list, fmt.Sprintf("machine %s is not approved", name))
	}
	for _, name := range scope.HalfJoined() {
		list = append(list, fmt.Sprintf("machine %s has not joined yet", name))
	}
	reader, err := e.sequence.Kube.Reader(ctx, scope.Cluster)
	if err != nil {
		return append(list, "the Kubernetes API of the cluster cannot be read: "+kube.Trouble(err))
	}
	nodes, err := reader.Nodes(ctx)
	if err != nil {
		return append(list, "the Kubernetes API of the cluster cannot be read: "+kube.Trouble(err))
	}
	for _, name := range scope.Strangers(slices.Values(nodes)) {
		list = append(list, fmt.Sprintf("Node %s is no machine that the hub knows", name))
	}
	return list
}

// before is what keeps a rotation from beginning: machines that cannot be asked directly, or that have different authorities already.
func (e *Executor) before(ctx context.Context, scope kind.Scope) Overview {
	seen := Overview{Lagging: e.strangers(ctx, scope)}
	for _, of := range authoritiesOf(scope) {
		old, err := e.issuing(ctx, scope, of)
		var rendering *renderError
		switch {
		case errors.As(err, &rendering):
			return Overview{Lost: err.Error()}
		case err != nil:
			seen.Lagging = append(seen.Lagging, "a control plane does not answer: "+talos.Trouble(err))
			continue
		}
		client, err := e.client(ctx, scope, of)
		if err != nil {
			return Overview{Trouble: err.Error()}
		}
		seen.Lagging = append(seen.Lagging, each(scope.Approved, func(machine *v1alpha1.TalosMachine) string {
			return e.notAsAll(ctx, scope, machine, of, old, client)
		})...)
	}
	return seen
}

// notAsAll says what a machine has other than the first control plane; nothing if it is as all.
func (e *Executor) notAsAll(ctx context.Context, scope kind.Scope, machine *v1alpha1.TalosMachine, of v1alpha1.CAAuthority, old, client credentials.KeyPair) string {
	own, trouble := e.configOf(ctx, scope, machine)
	if trouble != "" {
		return fmt.Sprintf("machine %s does not answer: %s", machine.Name, trouble)
	}
	have, err := machineconfig.ReadAuthorities(own.Active, of)
	switch {
	case err != nil:
		return fmt.Sprintf("machine %s: %s", machine.Name, err)
	case len(have.Issuing) > 0 && !have.Issues(old.Certificate), !have.Accepts(old.Certificate):
		return fmt.Sprintf("machine %s has another %s authority than the other machines: a rotation by somebody else is half-way", machine.Name, of)
	}
	for _, certificate := range have.Accepted {
		if !machineconfig.SameCertificate(certificate, old.Certificate) { // The rotation would leave it, and say that what is old is refused.
			return fmt.Sprintf("machine %s accepts one more %s authority, of SHA-256 %s: take it out of acceptedCAs in its machine config first",
				machine.Name, of, machineconfig.Fingerprint(certificate))
		}
	}
	if !credentials.SignedBy(client.Certificate, old.Certificate) {
		return ""
	}
	missing, as := "", credentials.Direct{Trust: [][]byte{old.Certificate}, Client: client}
	switch {
	case of == v1alpha1.TalosCA:
		missing = e.answers(ctx, scope, machine, as)
	case machine.Spec.Role == v1alpha1.ControlPlaneRole:
		missing = e.serves(ctx, scope, machine, own, proof{as: as})
	}
	if missing != "" {
		return fmt.Sprintf("machine %s at its own address %s: %s", machine.Name, machine.Spec.Address, missing)
	}
	return ""
}

// after is what keeps a rotation from being over.
func (e *Executor) after(ctx context.Context, scope kind.Scope) Overview {
	var seen Overview
	for _, of := range authoritiesOf(scope) {
		kept, err := e.material(ctx, scope, of)
		switch {
		case errors.Is(err, errLost):
			return Overview{} // Its deletion was what was left to do.
		case err != nil:
			return Overview{Trouble: err.Error()}
		}
		seen.Lagging = append(seen.Lagging, e.lagging(ctx, scope, scope.Approved, of, e.lastPass(ctx, scope, of, kept), kept)...)
	}
	return seen
}

// lastPass is the pass that an authority ended with: forward, or back where the first control plane knows nothing of the new one.
func (e *Executor) lastPass(ctx context.Context, scope kind.Scope, of v1alpha1.CAAuthority, kept Material) rotationplan.Pass {
	if !scope.TurnBack {
		return rotationplan.Drop
	}
	for _, machine := range scope.Approved {
		if machine.Spec.Role == v1alpha1.ControlPlaneRole && e.isDropped(ctx, scope, machine, of, kept) {
			return rotationplan.Drop
		}
	}
	return rotationplan.BackAccept
}

// stale says which of the Secrets that were handed over is not what it was made; nothing if all are.
func (e *Executor) stale(ctx context.Context, scope kind.Scope, of v1alpha1.CAAuthority, kept Material) string {
	const again = "Secret %s has credentials of the old authority again: somebody else has written it"
	client, err := e.client(ctx, scope, of)
	name := scope.Cluster.KubeconfigSecret
	if of == v1alpha1.TalosCA {
		name = scope.Cluster.TalosconfigSecret
	}
	switch {
	case err != nil:
		return fmt.Sprintf("Secret %s: %s", name, err)
	case credentials.SignedBy(client.Certificate, kept.Old.Certificate):
		return fmt.Sprintf(again, name)
	}
	for _, source := range sources(of, scope.Cluster.Name) {
		data, err := e.vault.Read(ctx, types.NamespacedName{Namespace: scope.Cluster.Namespace, Name: source.secret})
		if errors.Is(err, credentials.ErrMissing) {
			continue // Nobody keeps one.
		}
		var certificate []byte
		if err == nil {
			certificate, err = source.authority(data)
		}
		switch {
		case err != nil:
			return fmt.Sprintf("Secret %s: %s", source.secret, err)
		case !machineconfig.SameCertificate(certificate, kept.New.Certificate):
			return fmt.Sprintf(again, source.secret)
		}
	}
	return ""
}

// source is a Secret that others make machines or credentials of, and where its authority is.
type source struct {
	secret    string
	authority func(data map[string][]byte) ([]byte, error)
}

// sources are those of an authority.
func sources(of v1alpha1.CAAuthority, cluster string) []source {
	bundle := source{credentials.BundleSecretName(cluster), func(data map[string][]byte) ([]byte, error) {
		bundle, err := credentials.ParseBundle(data)
		if err != nil {
			return nil, err
		}
		return authorityOf(bundle, of), nil
	}}
	if of != v1alpha1.KubernetesCA {
		return []source{bundle}
	}
	return []source{bundle, {credentials.KubernetesAuthoritySecretName(cluster), func(data map[string][]byte) ([]byte, error) {
		return data[corev1.TLSCertKey], nil
	}}}
}
