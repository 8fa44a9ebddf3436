// SPDX-License-Identifier: Apache-2.0

package plan

// Codes of warnings.
const (
	// SingleControlPlaneWarning warns of an outage of the Kubernetes API.
	SingleControlPlaneWarning = "SingleControlPlane"

	// NoSnapshotWarning warns that the hub knows of no snapshot of etcd to go back to.
	NoSnapshotWarning = "NoSnapshot"

	// EtcdOneWayWarning warns of a new minor of etcd: from some point on there is no way back.
	EtcdOneWayWarning = "EtcdOneWay"

	// SchematicChangesWarning warns that machines get another schematic than they run.
	SchematicChangesWarning = "SchematicChanges"

	// VersionContractWarning says what becomes of the version contract, which goes along with the version of Talos.
	VersionContractWarning = "VersionContract"

	// PullsLateWarning warns of machines that pull nothing beforehand.
	PullsLateWarning = "PullsLate"

	// HostnameMayChangeWarning warns of machines that may come back under another name.
	HostnameMayChangeWarning = "HostnameMayChange"

	// TakesEffectLaterWarning warns of changes that are brought to machines and take effect at a later time.
	TakesEffectLaterWarning = "TakesEffectLater"
	// NotGracefulWarning warns of what is not done first for a machine that is forced.
	NotGracefulWarning = "NotGraceful"

	// GivesSecretsWarning says which machine is given the secrets of the cluster.
	GivesSecretsWarning = "GivesSecrets"

	// ModelWarning says what the machine config of a machine that joins is made from.
	ModelWarning = "Model"

	// NameNotGivenWarning warns of a machine that joins and gets its name from elsewhere.
	NameNotGivenWarning = "NameNotGiven"

	// StaysOffWarning says what becomes of a machine that is off.
	StaysOffWarning = "StaysOff"

	// EtcdRoomWarning says how many members etcd goes on with.
	EtcdRoomWarning = "EtcdRoom"

	// RemainsWarning says what is left behind, and how it goes.
	RemainsWarning = "Remains"

	// NothingToDoWarning says that there is nothing to do, as far as is known.
	NothingToDoWarning = "NothingToDo"

	// TwoControlPlanesWarning warns that etcd cannot lose a member.
	TwoControlPlanesWarning = "TwoControlPlanes"

	// DrainsNodesWarning warns of Nodes that are drained although their machines stay up.
	DrainsNodesWarning = "DrainsNodes"

	// ManifestsChangeWarning warns of objects in the cluster that are applied anew.
	ManifestsChangeWarning = "ManifestsChange"

	// KubeletsStayBehindWarning warns of kubelets that keep their version.
	KubeletsStayBehindWarning = "KubeletsStayBehind"

	// GateOverriddenWarning says what an override skips.
	GateOverriddenWarning = "GateOverridden"

	// ClusterPausedWarning, ClusterLockedWarning and NotAvailableWarning say why the operation would wait at first.
	ClusterPausedWarning = "ClusterPaused"
	ClusterLockedWarning = "ClusterLocked"
	NotAvailableWarning  = "NotAvailable"

	// OverrideUselessWarning says that an override skips nothing.
	OverrideUselessWarning = "OverrideUseless"
)

// Warning is what a person should know before a start, and what does not keep it from starting.
type Warning struct {
	// Code tells warnings apart.
	Code string

	// Message says what may happen, and to what.
	Message string
}

// Outage says what the reboot of a cluster's only control plane means.
var Outage = Warning{SingleControlPlaneWarning, "the only control plane reboots: the Kubernetes API of the cluster is away meanwhile"}
