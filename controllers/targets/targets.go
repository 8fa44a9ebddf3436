// SPDX-License-Identifier: Apache-2.0

// Package targets reads what the management cluster knows of a target.
package targets

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/capi"
	"ichor.maesh.dev/hub/providers/target"
)

// Facts are the objects about a target.
type Facts struct {
	// Cluster is nil if there is none.
	Cluster *v1alpha1.TalosCluster

	// CAPICluster is the Cluster of the same name, nil if there is none.
	CAPICluster *clusterv1.Cluster

	// Machines are the machines, by name: what is said about the first of several is the same every time.
	Machines []v1alpha1.TalosMachine

	// Members are the Machines of Cluster API, where its providers manage the machines of the target. Load does not read them.
	Members []clusterv1.Machine
}

// Adopted says whether Cluster API's providers manage the machines of the target.
func (f Facts) Adopted() bool { return capi.Adopted(f.CAPICluster) }

// Load reads the objects about a target.
func Load(ctx context.Context, reader client.Reader, key client.ObjectKey) (Facts, error) {
	facts := Facts{Cluster: &v1alpha1.TalosCluster{}, CAPICluster: &clusterv1.Cluster{}}
	switch err := reader.Get(ctx, key, facts.Cluster); {
	case apierrors.IsNotFound(err):
		return Facts{}, nil
	case err != nil:
		return Facts{}, fmt.Errorf("reading TalosCluster %s: %w", key, err)
	}
	switch err := reader.Get(ctx, key, facts.CAPICluster); {
	case apierrors.IsNotFound(err):
		facts.CAPICluster = nil
	case err != nil:
		return Facts{}, fmt.Errorf("reading Cluster %s: %w", key, err)
	}
	list := &v1alpha1.TalosMachineList{}
	if err := reader.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: key.Name}); err != nil {
		return Facts{}, fmt.Errorf("listing TalosMachines of cluster %s: %w", key, err)
	}
	// The label is how they are found; the spec, which never changes, is whose they are.
	facts.Machines = slices.DeleteFunc(list.Items, func(m v1alpha1.TalosMachine) bool { return m.Spec.ClusterName != key.Name })
	// Informers list in any order.
	slices.SortFunc(facts.Machines, func(a, b v1alpha1.TalosMachine) int { return strings.Compare(a.Name, b.Name) })
	return facts, nil
}

// Snapshot reads the EtcdSnapshot that an operation in a namespace names; nil if it names none, or none that is there.
func Snapshot(ctx context.Context, reader client.Reader, namespace string, spec v1alpha1.TalosOperationSpec) (*v1alpha1.EtcdSnapshot, error) {
	if spec.EtcdRestore == nil {
		return nil, nil
	}
	snapshot := &v1alpha1.EtcdSnapshot{}
	key := client.ObjectKey{Namespace: namespace, Name: spec.EtcdRestore.SnapshotName}
	switch err := reader.Get(ctx, key, snapshot); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading EtcdSnapshot %s: %w", key, err)
	}
	return snapshot, nil
}

// Installation reads the IchorInstallation of a hub, for operations that are about the hub itself; nil for others, or if there is none.
func Installation(ctx context.Context, reader client.Reader, key client.ObjectKey, spec v1alpha1.TalosOperationSpec) (*v1alpha1.IchorInstallation, error) {
	if spec.Kind != v1alpha1.IchorKind {
		return nil, nil
	}
	installation := &v1alpha1.IchorInstallation{}
	switch err := reader.Get(ctx, key, installation); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading IchorInstallation %s: %w", key, err)
	}
	return installation, nil
}

// DeclaredFor is what the spec of a TalosCluster asks for, or, of the hub, that of the IchorInstallation where there is one.
func DeclaredFor(cluster *v1alpha1.TalosCluster, installation *v1alpha1.IchorInstallation) v1alpha1.OperationTarget {
	declared := Declared(cluster)
	if installation != nil {
		declared.IchorVersion = installation.Spec.Version
	}
	return declared
}

// DeepCopy returns facts for who goes on with them while somebody else writes the objects: the answer to a write is read into the object that
// was written, field by field.
func (f Facts) DeepCopy() Facts {
	f.Cluster, f.CAPICluster = f.Cluster.DeepCopy(), f.CAPICluster.DeepCopy()
	f.Machines, f.Members = copies[v1alpha1.TalosMachine](f.Machines), copies[clusterv1.Machine](f.Members)
	return f
}

func copies[T any, P interface {
	*T
	DeepCopy() *T
}](of []T) []T {
	made := make([]T, len(of))
	for i := range of {
		made[i] = *P(&of[i]).DeepCopy()
	}
	return made
}

// Member is the Machine that a machine is, among the Members; nil if it is none of them.
func (f Facts) Member(machine *v1alpha1.TalosMachine) *clusterv1.Machine {
	for i := range f.Members {
		if f.Members[i].Name == machine.Status.MachineName {
			return &f.Members[i]
		}
	}
	return capi.Find(f.Members, capi.Identity{
		UUID: machine.Spec.UUID, NodeName: machine.Status.NodeName, Addresses: []string{machine.Spec.Address},
	})
}

// Owner is a reference to the Cluster, or to the TalosCluster where there is no Cluster.
func (f Facts) Owner() metav1.OwnerReference {
	if f.CAPICluster != nil {
		return metav1.OwnerReference{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: f.CAPICluster.Name, UID: f.CAPICluster.UID,
		}
	}
	return metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosCluster", Name: f.Cluster.Name, UID: f.Cluster.UID,
	}
}

// Approved are the machines that the hub may touch.
func (f Facts) Approved() []*v1alpha1.TalosMachine {
	return v1alpha1.ApprovedMachines(f.Machines)
}

// Machine is the machine of a name, or nil.
func (f Facts) Machine(name string) *v1alpha1.TalosMachine {
	for i := range f.Machines {
		if f.Machines[i].Name == name {
			return &f.Machines[i]
		}
	}
	return nil
}

// Target is the target as the adapters need to know it.
func (f Facts) Target() target.Target {
	t := Target(f.Cluster)
	for i := range f.Machines {
		if machine := &f.Machines[i]; machine.Spec.Role == v1alpha1.ControlPlaneRole && machine.Spec.Address != "" && !machine.Joining() {
			t.ControlPlanes = append(t.ControlPlanes, machine.Spec.Address)
		}
	}
	return t
}

// Target is a TalosCluster as the adapters need to know it, while none of its machines is known.
func Target(cluster *v1alpha1.TalosCluster) target.Target {
	return target.Target{
		NamespacedName:     client.ObjectKeyFromObject(cluster),
		KubeconfigSecret:   cluster.KubeconfigSecretName(),
		TalosconfigSecret:  cluster.TalosconfigSecretName(),
		TalosconfigContext: cluster.TalosconfigContext(),
		AllowInsecure:      cluster.AllowsInsecure(),
	}
}

// Declared is what the spec of a TalosCluster asks for.
func Declared(cluster *v1alpha1.TalosCluster) v1alpha1.OperationTarget {
	declared := v1alpha1.OperationTarget{
		TalosVersion:      cluster.Spec.TalosVersion,
		SchematicID:       cluster.Spec.SchematicID,
		KubernetesVersion: cluster.Spec.KubernetesVersion,
		MachineConfigHash: cluster.MachineConfigHash(),
	}
	if cluster.Spec.CNI != nil {
		declared.CiliumVersion, declared.KubeProxy = cluster.Spec.CNI.CiliumVersion, cluster.Spec.CNI.KubeProxy
	}
	return declared
}
