// SPDX-License-Identifier: Apache-2.0

package service

import (
	"slices"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// powerActions and shutdownSnapshots are what the definition of a TalosOperation lets through.
var (
	powerActions      = []v1alpha1.ClusterPowerAction{v1alpha1.ClusterStop, v1alpha1.ClusterStart}
	shutdownSnapshots = []v1alpha1.ShutdownSnapshot{v1alpha1.ShutdownSnapshotTake, v1alpha1.ShutdownSnapshotNone}
)

// shutdownOf are the parameters of an order to stop or start a cluster.
func shutdownOf(order *pb.OperationOrder, kind v1alpha1.OperationKind) (*v1alpha1.ShutdownParameters, error) {
	const field = "order.parameters.shutdown"
	shutdown := order.GetParameters().GetShutdown()
	action, snapshot := v1alpha1.ClusterPowerAction(shutdown.GetAction()), v1alpha1.ShutdownSnapshot(shutdown.GetSnapshot())
	switch {
	case kind != v1alpha1.ShutdownKind && shutdown == nil:
		return nil, nil
	case kind != v1alpha1.ShutdownKind:
		return nil, &InvalidError{Field: field, Value: shutdown.GetAction(), Allowed: "goes with kind shutdown only"}
	case !slices.Contains(powerActions, action):
		return nil, &InvalidError{Field: field + ".action", Value: shutdown.GetAction(), Allowed: "one of " + commas(powerActions)}
	case action == v1alpha1.ClusterStop && !slices.Contains(shutdownSnapshots, snapshot):
		return nil, &InvalidError{Field: field + ".snapshot", Value: shutdown.GetSnapshot(), Allowed: "one of " + commas(shutdownSnapshots) + ": it has to be said"}
	case action != v1alpha1.ClusterStop && snapshot != "":
		return nil, &InvalidError{Field: field + ".snapshot", Value: shutdown.GetSnapshot(), Allowed: "goes with action Stop only"}
	}
	return &v1alpha1.ShutdownParameters{Action: action, Snapshot: snapshot}, nil
}

// shutdownWords are the words of the command that stops or starts a cluster. The cluster is its argument.
func shutdownWords(spec v1alpha1.TalosOperationSpec) []string {
	switch {
	case spec.Shutdown.Action == v1alpha1.ClusterStart:
		return []string{"cluster", "start", spec.ClusterName}
	case spec.Shutdown.Snapshot == v1alpha1.ShutdownSnapshotTake:
		return []string{"cluster", "shutdown", spec.ClusterName, "--snapshot"}
	}
	return []string{"cluster", "shutdown", spec.ClusterName, "--no-snapshot"}
}
