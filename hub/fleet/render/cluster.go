// SPDX-License-Identifier: Apache-2.0

package render

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/controllers/versions"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/providers/capi"
)

// Facts are the objects that a cluster is rendered from.
type Facts struct {
	Cluster *v1alpha1.TalosCluster

	// CAPICluster is the Cluster of the same name, nil if there is none.
	CAPICluster *clusterv1.Cluster

	// Lease is the lock of the cluster, nil if it is not known. Then the status of the cluster says who holds it.
	Lease *coordinationv1.Lease

	Machines []*v1alpha1.TalosMachine

	// Operations are those that are not over, the oldest first.
	Operations []*pb.Operation
}

// Cluster renders a cluster.
func Cluster(of Facts) *pb.Cluster {
	cluster := of.Cluster
	rendered := &pb.Cluster{
		Ref:                Reference(cluster.Namespace, cluster.Name),
		Labels:             cluster.Labels,
		Mode:               mode(of.CAPICluster),
		Endpoint:           endpoint(of),
		Desired:            Target(targets.Declared(cluster)),
		TalosVersions:      versionRange(talosVersions(of)),
		KubernetesVersions: versionRange(kubernetesVersions(of)),
		Conditions:         Conditions(cluster.Status.Conditions),
		Lock:               lockHolder(of),
		Operations:         make([]*pb.OperationSummary, 0, len(of.Operations)),
		Drift:              drift(of),
		Paused:             capi.Paused(of.CAPICluster),
		Deleting:           !cluster.DeletionTimestamp.IsZero(),
		CreateTime:         Time(cluster.CreationTimestamp),
		Uid:                string(cluster.UID),
	}
	for _, op := range of.Operations {
		rendered.Operations = append(rendered.Operations, Summary(op))
	}
	countMachines(rendered, of.Machines)
	rendered.Attention, rendered.AttentionReason = clusterAttention(of, rendered.GetDrift())
	return rendered
}

func mode(cluster *clusterv1.Cluster) pb.ClusterMode {
	if capi.Adopted(cluster) {
		return pb.ClusterMode_CLUSTER_MODE_ADOPTED
	}
	return pb.ClusterMode_CLUSTER_MODE_IMPORTED
}

// endpoint is where the Kubernetes API is: as the TalosCluster says, or else the Cluster.
func endpoint(of Facts) string {
	if e := of.Cluster.Spec.ControlPlaneEndpoint; e != nil {
		return (&clusterv1.APIEndpoint{Host: e.Host, Port: e.Port}).String()
	}
	if of.CAPICluster != nil && of.CAPICluster.Spec.ControlPlaneEndpoint.IsValid() {
		return of.CAPICluster.Spec.ControlPlaneEndpoint.String()
	}
	return ""
}

func countMachines(rendered *pb.Cluster, machines []*v1alpha1.TalosMachine) {
	for _, machine := range machines {
		controlPlane := machine.Spec.Role == v1alpha1.ControlPlaneRole
		rendered.ControlPlanes += count(controlPlane)
		rendered.Workers += count(!controlPlane)
		rendered.MachinesReady += count(meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.MachineReadyCondition))
		rendered.MachinesPending += count(machine.Spec.Approval != v1alpha1.Approved)
		rendered.MachinesHeld += count(machine.Held())
	}
}

// lockHolder is who holds the lock; nil if nobody does.
func lockHolder(of Facts) *pb.LockHolder {
	holder, since := lock.Holder{Identity: of.Cluster.Status.LockHolder}, (*timestamppb.Timestamp)(nil)
	if of.Lease != nil {
		holder = lock.HolderOf(of.Lease)
		if acquired := of.Lease.Spec.AcquireTime; !acquired.IsZero() {
			since = timestamppb.New(acquired.Time)
		}
	}
	if holder.Identity == "" {
		return nil
	}
	rendered := &pb.LockHolder{Holder: holder.Identity, Since: since}
	if key, ok := holder.OperationKey(); ok {
		rendered.Operation = Reference(key.Namespace, key.Name)
	}
	return rendered
}

func talosVersions(of Facts) []string {
	running := make([]string, 0, len(of.Machines))
	for _, machine := range of.Machines {
		running = append(running, machine.Status.TalosVersion)
	}
	if len(running) == 0 { // The machines may be hidden from who asks.
		running = of.Cluster.Status.TalosVersions
	}
	return distinct(running)
}

// kubernetesVersions are those of the API server and of the kubelets.
func kubernetesVersions(of Facts) []string {
	running := make([]string, 0, len(of.Machines)+1)
	running = append(running, of.Cluster.Status.KubernetesVersion)
	for _, machine := range of.Machines {
		running = append(running, machine.Status.KubeletVersion)
	}
	return distinct(running)
}

// distinct are the different versions, lowest first. What is not known is left out.
func distinct(of []string) []string {
	known := slices.DeleteFunc(slices.Clone(of), func(version string) bool { return version == "" })
	slices.SortFunc(known, versions.Compare)
	return slices.Compact(known)
}

func versionRange(of []string) *pb.VersionRange {
	if len(of) == 0 {
		return nil
	}
	return &pb.VersionRange{Lowest: of[0], Highest: of[len(of)-1]}
}

// drift are the ways in which a cluster differs from its spec. Only machines that the hub may touch count.
func drift(of Facts) []*pb.Drift {
	approved := slices.DeleteFunc(slices.Clone(of.Machines), func(m *v1alpha1.TalosMachine) bool { return !m.Works() })
	slices.SortFunc(approved, func(a, b *v1alpha1.TalosMachine) int { return strings.Compare(a.Name, b.Name) })
	spec := of.Cluster.Spec
	var found []*pb.Drift
	for _, one := range []*pb.Drift{
		differing("talosVersion", spec.TalosVersion, "", approved, func(m *v1alpha1.TalosMachine) string { return m.Status.TalosVersion }),
		differing("schematicID", spec.SchematicID, "", approved, func(m *v1alpha1.TalosMachine) string { return m.Status.SchematicID }),
		differing("kubernetesVersion", spec.KubernetesVersion, of.Cluster.Status.KubernetesVersion, approved, func(m *v1alpha1.TalosMachine) string { return m.Status.KubeletVersion }),
	} {
		if one != nil {
			found = append(found, one)
		}
	}
	return found
}

// differing compares what is declared with what the cluster as a whole, and each machine, is observed to run. What is not declared, or was
// not observed, differs from nothing.
func differing(field, desired, whole string, machines []*v1alpha1.TalosMachine, observe func(*v1alpha1.TalosMachine) string) *pb.Drift {
	if desired == "" {
		return nil
	}
	found := &pb.Drift{Field: field, Desired: desired}
	var others []string
	if whole != "" && whole != desired {
		others = append(others, whole)
	}
	for _, machine := range machines {
		if running := observe(machine); running != "" && running != desired {
			others = append(others, running)
			found.Machines = append(found.Machines, machine.Name)
		}
	}
	if len(others) == 0 {
		return nil
	}
	found.Observed = strings.Join(distinct(others), ", ")
	return found
}
