// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Reasons that several conditions share.
const (
	// NotYetObservedReason surfaces when a fact has not been observed since the object was made.
	NotYetObservedReason = "NotYetObserved"

	// CredentialsNotUsableReason surfaces when a fact cannot be observed because condition CredentialsValid is False: nothing is known
	// of the cluster itself.
	CredentialsNotUsableReason = "CredentialsNotUsable"

	// InternalErrorReason surfaces when the hub itself failed; its message says where to look.
	InternalErrorReason = "InternalError"
)

// StoppedReason surfaces, instead of the reason of an outage, when a cluster does not answer that was stopped on purpose.
const StoppedReason = "Stopped"

// TalosCluster's Available condition and corresponding reasons.
const (
	// AvailableCondition is True when the hub has all it needs to work on the target: credentials, both APIs, machines.
	AvailableCondition = "Available"

	// AvailableReason surfaces when the hub can work on the target.
	AvailableReason = "Available"

	// NotAvailableReason surfaces when something that the message names keeps the hub from working on the target.
	NotAvailableReason = "NotAvailable"
)

// TalosCluster's CredentialsValid condition and corresponding reasons.
const (
	// CredentialsValidCondition is True when both Secrets exist and parse, their certificates are valid, and the target accepts them.
	// Its message says which of the two it speaks of.
	CredentialsValidCondition = "CredentialsValid"

	// CredentialsValidReason surfaces when both credentials are usable.
	CredentialsValidReason = "Valid"

	// CredentialsMissingReason surfaces when a Secret or the key in it is missing.
	CredentialsMissingReason = "Missing"

	// CredentialsInvalidReason surfaces when a credential cannot be used as it is.
	CredentialsInvalidReason = "Invalid"

	// KubeconfigExpiredReason surfaces when the client certificate of the kubeconfig is past its end.
	KubeconfigExpiredReason = "KubeconfigExpired"

	// TalosconfigExpiredReason surfaces when the client certificate of the talosconfig is past its end.
	TalosconfigExpiredReason = "TalosconfigExpired"

	// CredentialsNotYetValidReason surfaces when the validity of a client certificate has not begun, by the clock of the hub.
	CredentialsNotYetValidReason = "NotYetValid"

	// TalosconfigRoleTooLowReason surfaces when the client certificate of the talosconfig has not the role os:admin.
	TalosconfigRoleTooLowReason = "TalosconfigRoleTooLow"

	// KubeconfigRejectedReason surfaces when the Kubernetes API answers and does not accept the kubeconfig, or is not the server that
	// the kubeconfig trusts.
	KubeconfigRejectedReason = "KubeconfigRejected"

	// TalosconfigRejectedReason surfaces when the machines answer and do not accept the talosconfig, or are not those that it trusts.
	TalosconfigRejectedReason = "TalosconfigRejected"

	// CredentialsExpiringReason surfaces, with status True, when a client certificate ends within 30 days.
	CredentialsExpiringReason = "ExpiringSoon"
)

// TalosCluster's KubernetesReachable condition and corresponding reasons.
const (
	// KubernetesReachableCondition is True when the target's Kubernetes API answers.
	KubernetesReachableCondition = "KubernetesReachable"

	// KubernetesReachableReason surfaces when the target's Kubernetes API answers.
	KubernetesReachableReason = "Reachable"

	// KubernetesNotReachableReason surfaces when the target's Kubernetes API does not answer on any control plane.
	KubernetesNotReachableReason = "NotReachable"
)

// TalosCluster's TalosReachable condition and corresponding reasons.
const (
	// TalosReachableCondition is True when the Talos API of every known machine answers.
	TalosReachableCondition = "TalosReachable"

	// TalosReachableReason surfaces when every machine's Talos API answers.
	TalosReachableReason = "Reachable"

	// TalosPartlyReachableReason surfaces when the Talos API of some machines does not answer.
	TalosPartlyReachableReason = "PartlyReachable"

	// TalosNotReachableReason surfaces when no machine's Talos API answers.
	TalosNotReachableReason = "NotReachable"
)

// TalosCluster's Owned condition and corresponding reasons.
const (
	// OwnedCondition is True when the record on the target names this hub. Two hubs that both work on a target would undo each other.
	OwnedCondition = "Owned"

	// OwnedReason surfaces when the record on the target names this hub.
	OwnedReason = "Owned"

	// OwnedByAnotherHubReason surfaces when the record on the target names another hub; the message says how to take over.
	OwnedByAnotherHubReason = "OwnedByAnotherHub"
)

// TalosCluster's EtcdHealthy condition and corresponding reasons.
const (
	// EtcdHealthyCondition is True when all members agree on who is a member, are voters, have a leader and no alarms.
	EtcdHealthyCondition = "EtcdHealthy"

	// EtcdHealthyReason surfaces when etcd is healthy.
	EtcdHealthyReason = "Healthy"

	// EtcdNotHealthyReason surfaces when etcd is not healthy; the message says in which way.
	EtcdNotHealthyReason = "NotHealthy"
)

// TalosCluster's MachinesDiscovered condition and corresponding reasons.
const (
	// MachinesDiscoveredCondition is True when every etcd member and every Node of the target that runs Talos is matched to one
	// TalosMachine. Its message names Nodes that do not run Talos.
	MachinesDiscoveredCondition = "MachinesDiscovered"

	// MachinesDiscoveredReason surfaces when every etcd member and every Node is matched.
	MachinesDiscoveredReason = "Discovered"

	// MachinesUnmatchedReason surfaces when an etcd member or a Node has no machine, or a machine has neither.
	MachinesUnmatchedReason = "Unmatched"

	// MachinesDuplicateReason surfaces when two machines, or two records, have the same UUID, etcd member ID, address or node name. Nothing
	// disruptive begins until that is sorted out.
	MachinesDuplicateReason = "Duplicate"

	// MembersWithoutMachineReason surfaces when Cluster API's providers manage the machines of the target, and a member of it is no
	// Machine of theirs. The hub does not touch such a member.
	MembersWithoutMachineReason = "MembersWithoutMachine"
)

// TalosCluster's SpecInSync condition and corresponding reasons.
const (
	// SpecInSyncCondition is True when the machines run what the spec asks for.
	SpecInSyncCondition = "SpecInSync"

	// SpecInSyncReason surfaces when the machines run what the spec asks for.
	SpecInSyncReason = "InSync"

	// SpecNotDeclaredReason surfaces when the spec asks for no version.
	SpecNotDeclaredReason = "NotDeclared"

	// SpecOutOfSyncReason surfaces when the machines run something else than the spec asks for.
	SpecOutOfSyncReason = "OutOfSync"
)

// TalosCluster's BundleBackupStale condition and corresponding reasons.
const (
	// BundleBackupStaleCondition is True when a secret of the cluster was changed since its bundle of secrets was last exported: a backup that
	// people keep of the bundle would make machines that do not belong to the cluster any more.
	BundleBackupStaleCondition = "BundleBackupStale"

	// BundleBackupStaleReason surfaces when a rotation has changed the bundle since it was last exported.
	BundleBackupStaleReason = "Stale"

	// BundleBackupCurrentReason surfaces, with status False, when nothing has changed the bundle since it was last exported, or at all.
	BundleBackupCurrentReason = "Current"
)
