// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Input is what the config of a machine is rendered and judged from.
type Input struct {
	// Base is the config that patches are applied to.
	Base []byte

	// Patches are those of the cluster that are for the machine, in order.
	Patches []v1alpha1.MachineConfigPatch

	// Active is the config in force on the machine, Persistent the one that its next boot brings in force.
	Active, Persistent []byte

	// Version is the version of Talos that the machine runs.
	Version string
}

// Patches are the patches of a cluster that are for a machine, in order.
func Patches(cluster *v1alpha1.TalosCluster, machine *v1alpha1.TalosMachine) []v1alpha1.MachineConfigPatch {
	var list []v1alpha1.MachineConfigPatch
	for _, patch := range cluster.Patches() {
		if patch.AppliesTo(machine) {
			list = append(list, patch)
		}
	}
	return list
}

// rendered is a config that a machine shall have, beside the one in force there, both in normal form.
type rendered struct {
	config      []byte
	active, now []document
	changes     []change
	kept        []string
}

// Render returns the whole config that a machine shall have. Where it says what the one in force says already, it is that one, to the byte.
func Render(in Input) ([]byte, error) {
	made, err := render(in)
	if err != nil {
		return nil, err
	}
	return made.config, nil
}

func render(in Input) (rendered, error) {
	r := rendered{config: in.Active}
	if len(in.Patches) == 0 && bytes.Equal(in.Base, in.Active) {
		return r, nil // Nothing is asked of most machines; they cost next to nothing.
	}
	own, err := split(in.Active)
	if err != nil {
		return rendered{}, fmt.Errorf("the config in force: %w", err)
	}
	if r.active, err = normal(own); err != nil {
		return rendered{}, fmt.Errorf("the config in force: %w", err)
	}
	if err := r.patch(in); err != nil {
		return rendered{}, err
	}
	if r.changes = changes(r.active, r.now); len(r.changes) > 0 {
		r.config = join(r.now)
	}
	return r, r.check(in)
}

// patch makes what the machine shall have.
func (r *rendered) patch(in Input) error {
	base, err := split(in.Base)
	if err != nil {
		return fmt.Errorf("the base config: %w", err)
	}
	known, others := part(base)
	provider, err := load(known)
	if err != nil {
		return fmt.Errorf("the base config: %w", err)
	}
	for _, p := range in.Patches {
		if provider, err = apply(provider, p, len(others)); err != nil {
			return fmt.Errorf("patch %q: %w", p.Name, err)
		}
	}
	made, err := encode(provider)
	if err != nil {
		return err
	}
	followed, kept := follow(made, r.active)
	r.now = slices.Concat(followed, others)
	r.kept = takenBack(kept, base, made)
	return nil
}

// takenBack are the fields, of those that had to be taken back, that patches had changed: what only the base has is simply older.
func takenBack(kept []string, base, made []document) []string {
	if len(kept) == 0 {
		return nil
	}
	before, err := normal(base)
	if err != nil {
		return nil
	}
	patched := map[string]bool{}
	for _, c := range changes(before, made) {
		for _, p := range append(ancestors(c), c.kind) {
			patched[p] = true
		}
	}
	return slices.DeleteFunc(kept, func(field string) bool { return !patched[field] })
}

// ancestors are a field and all that it is part of, as follow names them.
func ancestors(c change) []string {
	keys, list := c.path.keys(), []string(nil)
	for i := range keys {
		list = append(list, field(c.kind, strings.Join(keys[:i+1], ".")).String())
	}
	return list
}

// apply applies one patch.
func apply(provider config.Provider, p v1alpha1.MachineConfigPatch, others int) (config.Provider, error) {
	for _, raw := range chunks([]byte(p.Patch)) { // Machinery follows aliases as far as they lead.
		if _, err := treeOf(raw); errors.Is(err, errTooLarge) {
			return nil, err
		}
	}
	patch, err := configpatcher.LoadPatch([]byte(p.Patch))
	if err != nil {
		return nil, unreadable(p)
	}
	_, strategic := patch.(configpatcher.StrategicMergePatch)
	if documents := len(provider.Documents()) + others; !strategic && documents > 1 {
		return nil, fmt.Errorf(
			"it is a JSON patch (RFC 6902), which Talos takes for configs of one document only, and this one has %d: write it as a strategic merge patch", documents)
	}
	out, err := configpatcher.Apply(configpatcher.WithConfig(provider), []configpatcher.Patch{patch})
	if err != nil {
		return nil, about(err, provider, p)
	}
	patched, err := out.Config()
	if err != nil {
		return nil, about(err, provider, p)
	}
	if patched.RawV1Alpha1() == nil {
		return nil, errNoMain
	}
	return patched, nil
}

// unreadable says why a patch cannot be read. What it says may be secret, so only its kinds and fields are told.
func unreadable(p v1alpha1.MachineConfigPatch) error {
	documents, err := split([]byte(p.Patch))
	if err != nil {
		return fmt.Errorf("it is neither a strategic merge patch nor a JSON patch: %w", err)
	}
	for _, d := range documents {
		if !d.known {
			return fmt.Errorf("this hub does not know documents of kind %q: upgrade the hub", d.kind)
		}
	}
	if _, err := configpatcher.LoadPatch([]byte(p.Patch)); err != nil {
		return words(err, documents)
	}
	return errors.New("it cannot be read")
}

// about are the words of an error about a patch.
func about(err error, provider config.Provider, p v1alpha1.MachineConfigPatch) error {
	patch, splitErr := split([]byte(p.Patch))
	own, encodeErr := encode(provider)
	if splitErr != nil || encodeErr != nil { // A JSON patch is no document.
		return errors.New("it cannot be applied")
	}
	return words(err, slices.Concat(patch, own))
}

// check refuses what the machine would refuse, as far as machinery can tell.
func (r *rendered) check(in Input) error {
	if len(r.changes) == 0 {
		return nil
	}
	if kind, minor := tooNew(r.now, r.active, in.Version); kind != "" {
		return fmt.Errorf("document %s needs Talos v1.%d, and the machine runs %s", kind, minor, in.Version)
	}
	objection := validate(r.now)
	if objection == nil {
		return nil
	}
	if before := validate(r.active); before != nil && before.Error() == objection.Error() {
		return nil // The machine lives with it: an older Talos asks for less.
	}
	return fmt.Errorf("refused by Talos: %w", objection)
}

// installed is how machinery validates for a machine with a disk.
type installed struct{}

// String implements validation.RuntimeMode.
func (installed) String() string { return "metal" }

// RequiresInstall implements validation.RuntimeMode.
func (installed) RequiresInstall() bool { return false }

// InContainer implements validation.RuntimeMode.
func (installed) InContainer() bool { return false }

func validate(documents []document) error {
	known, _ := part(documents)
	provider, err := load(known)
	if err != nil {
		return err
	}
	if _, err := provider.ValidateAsClient(installed{}); err != nil {
		return words(err, known)
	}
	return nil
}
