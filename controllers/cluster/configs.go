// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/machineconfig/bases"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/talos"
)

// configLook is how the machine config of a machine stands to the one that is asked for.
type configLook struct {
	compared machineconfig.Comparison

	// specHash is the hash of the patches that it was compared with.
	specHash string

	// base is what the base shall be of a machine that has none yet.
	base []byte

	// trouble says why nothing was compared; silent that nothing answered, which says nothing.
	trouble string
	silent  bool
}

// askConfig compares the config of a machine that is recorded, approved and part of the cluster. It is part of a probe, so that nothing else has to look at
// machines again and again.
func (p prober) askConfig(ctx context.Context, reader talos.Reader, facts targets.Facts, machine found) *configLook {
	recorded := atAddress(facts.Machines, machine.address)
	if p.configs == nil || machine.trouble != "" || recorded == nil || !recorded.Works() || recorded.Spec.UUID != machine.facts.UUID {
		return nil
	}
	seen := &configLook{specHash: facts.Cluster.MachineConfigHash()}
	own, err := reader.Config(ctx, machine.address)
	switch {
	case talos.Silent(err), err != nil && ctx.Err() != nil:
		seen.silent = true // It answered a moment ago, and will again.
		return seen
	case err != nil:
		seen.trouble = "its machine config cannot be read, which takes the role os:admin: " + talos.Trouble(err)
		return seen
	case len(own.Active) == 0 || len(own.Persistent) == 0:
		seen.trouble = "it does not tell the machine config that it has"
		return seen
	}
	seen.compared, err = p.configs.Compare(ctx, facts.Cluster, recorded, own, machine.facts.Version)
	switch {
	case errors.Is(err, bases.ErrNone):
		seen.base = own.Persistent
	case err != nil && ctx.Err() != nil:
		seen.silent = true
	case err != nil:
		seen.trouble = err.Error()
	}
	return seen
}

// keepBases stores the bases of machines that have none.
func (r *Reconciler) keepBases(ctx context.Context, facts targets.Facts, seen probe) error {
	var failed error
	for i := range facts.Machines {
		machine := &facts.Machines[i]
		look := seen.machines[machine.Spec.Address].config
		if look == nil || look.base == nil || !machine.Works() || machine.Spec.UUID != seen.machines[machine.Spec.Address].facts.UUID {
			continue
		}
		failed = errors.Join(failed, r.Configs.Store.Keep(ctx, machine, look.base))
	}
	return failed
}

// followConfigs looks again where the patches are others than the last probe knew of, or where that did not know a machine yet.
func (r *Reconciler) followConfigs(facts targets.Facts, seen probe) {
	if r.Configs != nil && (seen.configHash != facts.Cluster.MachineConfigHash() || passedOver(facts, seen)) {
		r.observer.Invalidate(client.ObjectKeyFromObject(facts.Cluster))
	}
}

// passedOver says whether the config of a machine was not looked at that is recorded and approved by now.
func passedOver(facts targets.Facts, seen probe) bool {
	return slices.ContainsFunc(facts.Approved(), func(m *v1alpha1.TalosMachine) bool {
		now, asked := seen.machines[m.Spec.Address]
		return asked && now.trouble == "" && now.facts.UUID == m.Spec.UUID && now.config == nil
	})
}

// describeConfig writes down what was seen of a machine's config. What was not looked at stays as it was.
func describeConfig(machine *v1alpha1.TalosMachine, look *configLook) {
	switch {
	case look == nil || look.base != nil || look.silent:
	case look.trouble != "":
		machine.Status.Config = &v1alpha1.MachineConfigStatus{SpecHash: look.specHash, Trouble: cutTo(look.trouble, mostWords)}
	default:
		c := look.compared
		machine.Status.Config = &v1alpha1.MachineConfigStatus{
			Effect: c.Effect, SpecHash: look.specHash, DesiredHash: c.DesiredHash, ActiveHash: c.ActiveHash, Diff: c.Diff, Pending: c.Pending, Trouble: c.Trouble,
		}
	}
}

// mostWords bounds the words in a status.
const mostWords = 256

func cutTo(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// reasonOfConfigs are the reasons of condition SpecInSync that machine configs are responsible for.
var reasonOfConfigs = map[metav1.ConditionStatus]string{
	metav1.ConditionTrue: v1alpha1.SpecInSyncReason, metav1.ConditionFalse: v1alpha1.SpecOutOfSyncReason, metav1.ConditionUnknown: v1alpha1.NotYetObservedReason,
}

// configsInSync says whether machines have the machine config that the spec asks for. One that asks for none lets machines have what they
// have.
func configsInSync(facts targets.Facts) (status metav1.ConditionStatus, message string) {
	if facts.Cluster.Spec.MachineConfig == nil {
		return metav1.ConditionTrue, ""
	}
	var differ, unknown []string
	trouble, hash := "", facts.Cluster.MachineConfigHash()
	for _, machine := range facts.Approved() {
		switch config := machine.Status.Config; {
		case config == nil || config.SpecHash != hash:
			unknown = append(unknown, machine.Name)
		case config.Trouble != "":
			if trouble == "" {
				trouble = fmt.Sprintf("the machine config of %s: %s", machine.Name, config.Trouble)
			}
		case config.Effect != v1alpha1.ConfigEffectNone:
			differ = append(differ, machine.Name)
		}
	}
	switch {
	case trouble != "":
		return metav1.ConditionFalse, trouble
	case len(differ) > 0:
		return metav1.ConditionFalse, fmt.Sprintf(
			"the machine config of %s is not what the spec asks for; see: ichor config diff --cluster %s; bring it there with: ichor config rollout --cluster %[2]s",
			someOf(differ), facts.Cluster.Name)
	case len(unknown) > 0:
		return metav1.ConditionUnknown, fmt.Sprintf("the machine config of %s has not been compared with the spec yet", someOf(unknown))
	}
	return metav1.ConditionTrue, ""
}

// someOf names the first of several, and counts the others.
func someOf(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}
