// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "time"

// ClusterPower is how far a planned shutdown of a cluster is.
type ClusterPower string

const (
	// ClusterRuns is a cluster that nobody has stopped.
	ClusterRuns ClusterPower = ""

	// ClusterStopping is a cluster whose machines are being powered off.
	ClusterStopping ClusterPower = "Stopping"

	// ClusterIsStopped is a cluster that was stopped on purpose.
	ClusterIsStopped ClusterPower = "Stopped"

	// ClusterStarting is a cluster that was stopped, and is being taken back into service.
	ClusterStarting ClusterPower = "Starting"
)

// Power says how far a planned shutdown of the cluster is.
func (c *TalosCluster) Power() ClusterPower { return ClusterPower(c.Annotations[PowerAnnotation]) }

// StoppedBy is the operation that stops the cluster, or has, as namespace/name; empty if none has.
func (c *TalosCluster) StoppedBy() string { return c.Annotations[StoppedByAnnotation] }

// StoppedAt is when the cluster was stopped; zero if that is not known.
func (c *TalosCluster) StoppedAt() time.Time {
	at, err := time.Parse(time.RFC3339, c.Annotations[StoppedAtAnnotation])
	if err != nil {
		return time.Time{}
	}
	return at
}
