// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// TalosMachine's Ready condition and corresponding reasons.
const (
	// MachineReadyCondition is True when Talos runs and is ready, the Node is Ready and, on a control plane, etcd has the member as a voter.
	MachineReadyCondition = "Ready"

	// MachineReadyReason surfaces when the machine works.
	MachineReadyReason = "Ready"

	// MachineNotReadyReason surfaces when the machine answers and does not work; the message says what is missing.
	MachineNotReadyReason = "NotReady"

	// MachineNotReachableReason surfaces, with status Unknown, when the machine's Talos API does not answer.
	MachineNotReachableReason = "NotReachable"
)

// TalosMachine's IdentityConfirmed condition and corresponding reasons.
const (
	// IdentityConfirmedCondition is True when the machine behind the address is the one that was recorded.
	IdentityConfirmedCondition = "IdentityConfirmed"

	// IdentityConfirmedReason surfaces when the recorded identity answers.
	IdentityConfirmedReason = "Confirmed"

	// IdentityMismatchReason surfaces when another machine answers at the recorded address. The hub does not touch it.
	IdentityMismatchReason = "Mismatch"
)

// TalosMachine's Joined condition and corresponding reasons.
const (
	// MachineJoinedCondition follows a request in spec.join; it is absent without one.
	MachineJoinedCondition = "Joined"

	// MachineJoinedReason surfaces when the machine has become one of its cluster.
	MachineJoinedReason = "Joined"

	// MachineToApproveReason surfaces while nobody has approved a machine that is to join.
	MachineToApproveReason = "ApprovalPending"

	// MachineJoiningReason surfaces while a machine that is approved has not joined; an operation of kind node with action Join does that.
	MachineJoiningReason = "Joining"
)

// TalosMachine's Removed condition and corresponding reasons.
const (
	// MachineRemovedCondition follows a request in spec.removal; it is absent without one. It is never True: a machine that is removed has no
	// TalosMachine any more.
	MachineRemovedCondition = "Removed"

	// MachineRemovingReason surfaces while the removal is under way or waits; the message says for what.
	MachineRemovingReason = "Removing"
)
