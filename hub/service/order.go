// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/versions"
	"ichor.maesh.dev/hub/hub/fleet/render"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Bounds of an order; the definitions of the objects have the same.
const (
	mostUnavailable = 1000
	mostOverrides   = 16
	mostGate        = 64
	mostReason      = 256
)

// Order is what somebody wants done.
type Order struct {
	// Cluster is on which cluster. Its name may be empty if the order is about one machine, which tells.
	Cluster client.ObjectKey

	// Spec is what. The target that it expects comes later.
	Spec v1alpha1.TalosOperationSpec

	// Target is what the spec of the cluster shall ask for. What is empty stays as it is.
	Target v1alpha1.OperationTarget
}

// orderOf reads an order. It asks nobody: whether the cluster can have it is the plan's to say.
func (s *Server) orderOf(order *pb.OperationOrder) (Order, error) {
	kind, planner, err := kindOf(order.GetKind())
	if err != nil {
		return Order{}, err
	}
	made := Order{Spec: v1alpha1.TalosOperationSpec{Kind: kind}}
	for _, read := range []func() error{
		func() (err error) { made.Cluster, err = s.clusterOf(order, kind); return err },
		func() (err error) { made.Spec.Node, err = nodeOf(order, kind); return err },
		func() (err error) { made.Spec.Config, err = configOf(order, kind); return err },
		func() (err error) { made.Spec.Shutdown, err = shutdownOf(order, kind); return err },
		func() (err error) { made.Spec.KeyRotation, err = keyRotationOf(order, kind); return err },
		func() (err error) { made.Spec.CARotation, err = caRotationOf(order, kind); return err },
		func() (err error) { made.Spec.EtcdRestore, err = restoreOf(order, kind); return err },
		func() (err error) {
			made.Target, err = targetOf("order.target", order.GetTarget(), kind, planner)
			return err
		},
		func() error { return withoutHash(order) },
		func() (err error) { made.Spec.MaxUnavailable, err = budgetOf(order.GetMaxUnavailable()); return err },
		func() (err error) { made.Spec.Overrides, err = overridesOf(order.GetOverrides()); return err },
	} {
		if err := read(); err != nil {
			return Order{}, err
		}
	}
	made.Spec.ClusterName = made.Cluster.Name
	return made, nil
}

// kindOf is a kind that this hub runs, and its planner.
func kindOf(kind pb.OperationKind) (v1alpha1.OperationKind, plan.Planner, error) {
	name, _ := render.KindOf(kind)
	planner, ok := planners[name]
	if !ok {
		known := slices.Sorted(maps.Keys(planners))
		return "", nil, &InvalidError{Field: "order.kind", Value: string(name), Allowed: fmt.Sprintf("this hub runs %s", commas(known))}
	}
	return name, planner, nil
}

// clusterOf is the cluster that an order names. One about a machine may leave out its name.
func (s *Server) clusterOf(order *pb.OperationOrder, kind v1alpha1.OperationKind) (client.ObjectKey, error) {
	ref := order.GetCluster()
	if order.GetParameters().GetNode().GetMachine() != "" && kind == v1alpha1.NodeKind && ref.GetName() == "" && ref.GetNamespace() != "" {
		return client.ObjectKey{Namespace: ref.GetNamespace()}, s.checkReference("order.cluster", ref)
	}
	return s.key("order.cluster", ref)
}

var schematicID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// targetOf is what the spec of a cluster shall ask for, with versions as the objects write them.
func targetOf(field string, message *pb.OperationTarget, kind v1alpha1.OperationKind, planner plan.Planner) (v1alpha1.OperationTarget, error) {
	target := render.TargetOf(message)
	if narrow := planner.Narrow(target); narrow != target {
		return v1alpha1.OperationTarget{}, &InvalidError{Field: field, Value: describe(target), Allowed: brings(kind, planner)}
	}
	for _, asked := range []struct {
		name      string
		normalize func(string) (string, error)
		version   *string
	}{
		{"talos_version", versions.Talos.Normalize, &target.TalosVersion},
		{"kubernetes_version", versions.Kubernetes.Normalize, &target.KubernetesVersion},
		{"cilium_version", versions.Cilium.Normalize, &target.CiliumVersion},
		{"ichor_version", versions.NormalizeHub, &target.IchorVersion},
	} {
		if *asked.version == "" {
			continue
		}
		normal, err := asked.normalize(*asked.version)
		if err != nil {
			return v1alpha1.OperationTarget{}, &InvalidError{Field: field + "." + asked.name, Value: *asked.version, Allowed: err.Error()}
		}
		*asked.version = normal
	}
	if hash := target.MachineConfigHash; hash != "" && !schematicID.MatchString(hash) {
		return v1alpha1.OperationTarget{}, &InvalidError{Field: field + ".machine_config_hash", Value: hash, Allowed: "64 hexadecimal digits in lower case"}
	}
	if target.SchematicID != "" && !schematicID.MatchString(target.SchematicID) {
		return v1alpha1.OperationTarget{}, &InvalidError{Field: field + ".schematic_id", Value: target.SchematicID, Allowed: "64 hexadecimal digits in lower case"}
	}
	return target, nil
}

// brings says which parts of a target operations of a kind bring about.
func brings(kind v1alpha1.OperationKind, planner plan.Planner) string {
	full := planner.Narrow(v1alpha1.OperationTarget{TalosVersion: "x", SchematicID: "x", KubernetesVersion: "x", CiliumVersion: "x", KubeProxy: "x", IchorVersion: "x"})
	var parts []string
	for _, field := range targetFields {
		if field.of(full) != "" {
			parts = append(parts, field.name)
		}
	}
	if len(parts) == 0 {
		return fmt.Sprintf("kind %s changes no spec", kind)
	}
	return fmt.Sprintf("kind %s brings %s and nothing else", kind, commas(parts))
}

// budgetOf is how many workers may be away at once; nothing is the default.
func budgetOf(text string) (*intstr.IntOrString, error) {
	if text == "" {
		return nil, nil
	}
	digits, percent := strings.CutSuffix(text, "%")
	number, err := strconv.ParseInt(digits, 10, 32)
	plain := err == nil && number >= 1 && digits == strconv.FormatInt(number, 10)
	switch {
	case plain && percent && number <= 100:
		return ptr.To(intstr.FromString(text)), nil
	case plain && !percent && number <= mostUnavailable:
		return ptr.To(intstr.FromInt32(int32(number))), nil
	}
	return nil, &InvalidError{Field: "order.max_unavailable", Value: text, Allowed: "a number from 1 to 1000, or a percentage from 1% to 100%"}
}

// overridesOf are the gates that an order bypasses.
func overridesOf(messages []*pb.GateOverride) ([]v1alpha1.GateOverride, error) {
	if len(messages) > mostOverrides {
		return nil, &InvalidError{Field: "order.overrides", Value: strconv.Itoa(len(messages)), Allowed: fmt.Sprintf("at most %d", mostOverrides)}
	}
	var overrides []v1alpha1.GateOverride
	for i, message := range messages {
		field, override := fmt.Sprintf("order.overrides[%d]", i), v1alpha1.GateOverride{Gate: message.GetGate(), Reason: message.GetReason()}
		switch {
		case override.Gate == "" || len(override.Gate) > mostGate:
			return nil, &InvalidError{Field: field + ".gate", Value: override.Gate, Allowed: "the name of a gate, as a refusal has it"}
		case strings.TrimSpace(override.Reason) == "" || len(override.Reason) > mostReason:
			return nil, &InvalidError{Field: field + ".reason", Value: override.Reason, Allowed: fmt.Sprintf("say why, in 1 to %d bytes", mostReason)}
		case slices.ContainsFunc(overrides, func(o v1alpha1.GateOverride) bool { return o.Gate == override.Gate }):
			return nil, &InvalidError{Field: field + ".gate", Value: override.Gate, Allowed: "each gate once"}
		}
		overrides = append(overrides, override)
	}
	return overrides, nil
}

// commas joins names for people.
func commas[T ~string](names []T) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, ", ")
}
