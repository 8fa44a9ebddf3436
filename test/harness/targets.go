// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/service"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/tlsfault"
)

// Import brings a cluster of the fleet to the hub, and returns when the hub can work on it.
func (h *Harness) Import(ctx context.Context, cluster string) error {
	simulated := h.Fleet.Cluster(cluster)
	err := h.ImportAs(ctx, cluster, simulated.Kubeconfig(), simulated.Talosconfig())
	if err != nil {
		return err
	}
	_, err = h.WaitForCluster(ctx, cluster, Available())
	return err
}

// ImportAs brings a cluster to the hub with the given files, or gives the hub other files for it. It neither waits nor looks whether they
// open the cluster.
func (h *Harness) ImportAs(ctx context.Context, cluster string, kubeconfig, talosconfig []byte) error {
	_, err := h.Service.Import(ctx, service.Import{Name: cluster, Namespace: Namespace, Kubeconfig: kubeconfig, Talosconfig: talosconfig, Offline: true})
	return err
}

// Revoke makes the machines of a cluster refuse the client certificate of a talosconfig, and no other, until the fault is cleared.
func (h *Harness) Revoke(cluster string, talosconfig []byte) (id string, err error) {
	config, err := clientconfig.FromBytes(talosconfig)
	if err != nil {
		return "", fmt.Errorf("reading the talosconfig: %w", err)
	}
	encoded, err := base64.StdEncoding.DecodeString(config.Contexts[config.Context].Crt)
	if err != nil {
		return "", fmt.Errorf("reading the certificate of the talosconfig: %w", err)
	}
	block, _ := pem.Decode(encoded)
	if block == nil {
		return "", errors.New("reading the certificate of the talosconfig: it is not PEM")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("reading the certificate of the talosconfig: %w", err)
	}
	return h.Fault(fault.Fault{Name: fault.ClientCertificate, Cluster: cluster, Params: map[string]string{
		fault.ParamAPI: "talos", fault.ParamSerial: tlsfault.Serial(certificate),
	}})
}

// Upgrade starts an upgrade of Talos, as ichor upgrade talos does. maxUnavailable may be zero.
func (h *Harness) Upgrade(ctx context.Context, cluster, version string, maxUnavailable int) (*v1alpha1.TalosOperation, error) {
	var most *intstr.IntOrString
	if maxUnavailable > 0 {
		n := intstr.FromInt(maxUnavailable)
		most = &n
	}
	return h.order(ctx, service.Order{
		Cluster: key(cluster),
		Spec:    v1alpha1.TalosOperationSpec{ClusterName: cluster, Kind: v1alpha1.TalosKind, MaxUnavailable: most},
		Target:  v1alpha1.OperationTarget{TalosVersion: version},
	})
}

// Reboot starts the reboot of a node, as ichor node reboot does.
func (h *Harness) Reboot(ctx context.Context, cluster, node string) (*v1alpha1.TalosOperation, error) {
	return h.order(ctx, service.Order{
		Cluster: key(cluster),
		Spec: v1alpha1.TalosOperationSpec{
			ClusterName: cluster, Kind: v1alpha1.NodeKind, Node: &v1alpha1.NodeParameters{Machine: node, Action: v1alpha1.RebootAction},
		},
	})
}

// Begin starts an operation by its spec, which names the cluster.
func (h *Harness) Begin(ctx context.Context, spec v1alpha1.TalosOperationSpec) (*v1alpha1.TalosOperation, error) {
	return h.order(ctx, service.Order{Cluster: key(spec.ClusterName), Spec: spec})
}

// errNothingToDo means that every machine is where an order would bring it.
var errNothingToDo = errors.New("there is nothing to do")

func (h *Harness) order(ctx context.Context, order service.Order) (*v1alpha1.TalosOperation, error) {
	start, err := h.Service.Plan(ctx, order)
	if err != nil {
		return nil, err
	}
	created, err := h.Service.Create(ctx, start, service.CreateOptions{})
	if err == nil && created.Operation == nil {
		err = errNothingToDo
	}
	return created.Operation, err
}

// Resume does what the state of an operation calls for, as ichor operation resume does.
func (h *Harness) Resume(ctx context.Context, op *v1alpha1.TalosOperation) error {
	current, err := h.Operation(ctx, op)
	if err != nil {
		return err
	}
	if _, err := h.Service.Retry(ctx, current); err != nil {
		return err
	}
	_, err = h.Service.SetPaused(ctx, current, false)
	return err
}

// Operation reads an operation again.
func (h *Harness) Operation(ctx context.Context, op *v1alpha1.TalosOperation) (*v1alpha1.TalosOperation, error) {
	return h.Service.Operation(ctx, client.ObjectKeyFromObject(op))
}

// Cluster reads a TalosCluster.
func (h *Harness) Cluster(ctx context.Context, name string) (*v1alpha1.TalosCluster, error) {
	facts, err := h.Service.Facts(ctx, key(name))
	return facts.Cluster, err
}

func key(cluster string) client.ObjectKey {
	return client.ObjectKey{Namespace: Namespace, Name: cluster}
}

// Condition is something that a test waits for.
type Condition[T client.Object] struct {
	// Says is what it is, for the error of a test that waited in vain.
	Says string

	// Holds says whether it is so.
	Holds func(T) bool
}

// Completed holds for operations that are over.
func Completed() Condition[*v1alpha1.TalosOperation] {
	return Condition[*v1alpha1.TalosOperation]{"Completed", func(op *v1alpha1.TalosOperation) bool {
		return op.Completed() && op.Annotations[v1alpha1.CompletedAtAnnotation] != ""
	}}
}

// Paused holds for operations that are paused for a reason, with a message that contains every text.
func Paused(reason string, texts ...string) Condition[*v1alpha1.TalosOperation] {
	return OperationCondition(v1alpha1.PausedCondition, metav1.ConditionTrue, reason, texts...)
}

// WaitingAt holds for operations that wait at a gate, with a message that contains every text.
func WaitingAt(gate string, texts ...string) Condition[*v1alpha1.TalosOperation] {
	return OperationCondition(v1alpha1.ProgressingCondition, metav1.ConditionFalse, gate, texts...)
}

// Stopped holds for operations that do not move for a reason that contains a text, be it at a gate or paused.
func Stopped(text string) Condition[*v1alpha1.TalosOperation] {
	return Either(
		OperationCondition(v1alpha1.PausedCondition, metav1.ConditionTrue, "", text),
		Condition[*v1alpha1.TalosOperation]{fmt.Sprintf("waiting at a gate that says %q", text), func(op *v1alpha1.TalosOperation) bool {
			return has(op.Status.Conditions, v1alpha1.ProgressingCondition, metav1.ConditionFalse, "", []string{text}) &&
				!has(op.Status.Conditions, v1alpha1.ProgressingCondition, metav1.ConditionFalse, v1alpha1.NotStartedReason, nil)
		}},
	)
}

// Either holds where any of the conditions does.
func Either[T client.Object](all ...Condition[T]) Condition[T] {
	says := make([]string, 0, len(all))
	for _, one := range all {
		says = append(says, one.Says)
	}
	return Condition[T]{strings.Join(says, " or "), func(object T) bool {
		return slices.ContainsFunc(all, func(one Condition[T]) bool { return one.Holds(object) })
	}}
}

// OperationCondition holds for operations with a condition whose message contains every text.
func OperationCondition(kind string, status metav1.ConditionStatus, reason string, texts ...string) Condition[*v1alpha1.TalosOperation] {
	return Condition[*v1alpha1.TalosOperation]{
		fmt.Sprintf("%s=%s %s %q", kind, status, reason, texts),
		func(op *v1alpha1.TalosOperation) bool { return has(op.Status.Conditions, kind, status, reason, texts) },
	}
}

// InStage holds for operations that are in a stage.
func InStage(stage string) Condition[*v1alpha1.TalosOperation] {
	return Condition[*v1alpha1.TalosOperation]{"in stage " + stage, func(op *v1alpha1.TalosOperation) bool { return op.Status.Stage == stage }}
}

// Past holds for operations that have completed a stage.
func Past(stage string) Condition[*v1alpha1.TalosOperation] {
	return Condition[*v1alpha1.TalosOperation]{"past stage " + stage, func(op *v1alpha1.TalosOperation) bool {
		return slices.Contains(op.Status.CompletedStages, stage)
	}}
}

// InStep holds for operations of which a machine is in a step.
func InStep(machine string, step v1alpha1.OperationStep) Condition[*v1alpha1.TalosOperation] {
	return Condition[*v1alpha1.TalosOperation]{fmt.Sprintf("%s in step %s", machine, step), func(op *v1alpha1.TalosOperation) bool {
		return slices.ContainsFunc(op.Status.Machines, func(u v1alpha1.UnitStatus) bool { return u.Name == machine && u.Step == step })
	}}
}

// UnitSays holds for operations of which a machine has a message that contains a text.
func UnitSays(machine, text string) Condition[*v1alpha1.TalosOperation] {
	return Condition[*v1alpha1.TalosOperation]{fmt.Sprintf("%s says %q", machine, text), func(op *v1alpha1.TalosOperation) bool {
		return slices.ContainsFunc(op.Status.Machines, func(u v1alpha1.UnitStatus) bool {
			return u.Name == machine && strings.Contains(u.Message, text)
		})
	}}
}

// Available holds for clusters that the hub can work on.
func Available() Condition[*v1alpha1.TalosCluster] {
	return ClusterCondition(v1alpha1.AvailableCondition, metav1.ConditionTrue, v1alpha1.AvailableReason)
}

// ClusterCondition holds for clusters with a condition whose message contains every text.
func ClusterCondition(kind string, status metav1.ConditionStatus, reason string, texts ...string) Condition[*v1alpha1.TalosCluster] {
	return Condition[*v1alpha1.TalosCluster]{
		fmt.Sprintf("%s=%s %s %q", kind, status, reason, texts),
		func(c *v1alpha1.TalosCluster) bool { return has(c.Status.Conditions, kind, status, reason, texts) },
	}
}

func has(conditions []metav1.Condition, kind string, status metav1.ConditionStatus, reason string, texts []string) bool {
	c := meta.FindStatusCondition(conditions, kind)
	return c != nil && c.Status == status && (reason == "" || c.Reason == reason) &&
		!slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(c.Message, text) })
}
