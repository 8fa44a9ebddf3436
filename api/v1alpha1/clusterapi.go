// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// What the hub writes on objects of Cluster API.
const (
	// TalosAvailableCondition on a Cluster of Cluster API is condition Available of its TalosCluster: whether the hub is able to work on the
	// cluster. It has the reasons and messages of that condition, and may be an availability gate of the Cluster. It is not there on
	// Clusters that the hub does not manage.
	TalosAvailableCondition = "ichor.maesh.dev/TalosAvailable"

	// OptOutAnnotation on a Cluster of Cluster API keeps the hub from it, whatever its value: it is not adopted, nothing is written on it or
	// its Machines, and operations of it stand. It is for those who own the Cluster.
	OptOutAnnotation = "ichor.maesh.dev/opt-out"
)

// DeletionWaitsEvent is recorded about a Machine of Cluster API, a control plane, whose deletion waits for who has the lock of the cluster.
const DeletionWaitsEvent = "DeletionWaits"
