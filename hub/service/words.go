// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Command is the command line that starts the same.
func (s *Start) Command() string {
	words := []string{"ichor"}
	where := []string{"--namespace", s.Order.Cluster.Namespace, "--cluster", s.Spec.ClusterName}
	switch node := s.Spec.Node; {
	case s.Spec.Shutdown != nil:
		words = append(append(words, shutdownWords(s.Spec)...), where[:2]...)
	case s.Spec.KeyRotation != nil:
		words = append(append(words, keyRotationWords(s.Spec)...), where[:2]...)
	case s.Spec.CARotation != nil:
		words = append(append(words, caRotationWords(s.Spec)...), where[:2]...)
	case s.Spec.EtcdRestore != nil:
		words = append(append(words, restoreWords(s.Spec)...), where[:2]...)
	case node != nil:
		words = slices.Concat(words, nodeWords(node), where, nodeFlags(node))
	case s.Spec.Kind == v1alpha1.ConfigKind:
		words = slices.Concat(words, []string{"config", "rollout"}, where)
	default:
		words = slices.Concat(words, []string{"upgrade", string(s.Spec.Kind), cmp.Or(s.Plan.Target.TalosVersion, s.Plan.Target.KubernetesVersion, s.Plan.Target.IchorVersion)}, where)
	}
	if config := s.Spec.Config; config != nil {
		for _, machine := range config.Machines {
			words = append(words, "--machine", machine)
		}
	}
	if schematic := s.Order.Target.SchematicID; schematic != "" {
		words = append(words, "--schematic", schematic)
	}
	if s.Spec.MaxUnavailable != nil {
		words = append(words, "--max-unavailable", s.Spec.MaxUnavailable.String())
	}
	for _, override := range s.Spec.Overrides {
		words = append(words, "--override", override.Gate+"="+override.Reason)
	}
	return shell(words)
}

var capitals = regexp.MustCompile(`([a-z])([A-Z])`)

// actionWord is an action as the command line writes it, such as restart-service.
func actionWord(action v1alpha1.NodeAction) string { return flagWord(action) }

// flagWord is a value as the command line writes it.
func flagWord[T ~string](value T) string {
	return strings.ToLower(capitals.ReplaceAllString(string(value), "$1-$2"))
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9%+,./:=@_-]+$`)

// shell quotes words for a POSIX shell.
func shell(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = word
		if !plainWord.MatchString(word) {
			quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// describe says in words what a target is.
func describe(target v1alpha1.OperationTarget) string {
	var parts []string
	for _, field := range targetFields {
		if value := field.of(target); value != "" {
			parts = append(parts, field.name+" "+value)
		}
	}
	if target.MachineConfigHash != "" {
		parts = append(parts, "machine_config_hash "+target.MachineConfigHash)
	}
	if len(parts) == 0 {
		return "nothing else than it is"
	}
	return strings.Join(parts, ", ")
}

// describeOrder says in words what an operation was ordered to do.
func describeOrder(spec v1alpha1.TalosOperationSpec, target v1alpha1.OperationTarget) string {
	what := describe(target)
	if node := spec.Node; node != nil {
		what = describeNode(node)
	}
	if shutdown := spec.Shutdown; shutdown != nil {
		what = strings.TrimSpace(fmt.Sprintf("%s %s", shutdown.Action, map[v1alpha1.ShutdownSnapshot]string{
			v1alpha1.ShutdownSnapshotTake: "with a snapshot", v1alpha1.ShutdownSnapshotNone: "without a snapshot",
		}[shutdown.Snapshot]))
	}
	if restore := spec.EtcdRestore; restore != nil {
		what = describeRestore(restore)
	}
	if config := spec.Config; config != nil {
		what += " on " + strings.Join(config.Machines, ", ")
	}
	if spec.MaxUnavailable != nil {
		what += ", at most " + spec.MaxUnavailable.String() + " workers at once"
	}
	return fmt.Sprintf("kind %s on cluster %s: %s", spec.Kind, spec.ClusterName, what)
}
