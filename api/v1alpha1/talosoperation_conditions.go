// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// TalosOperation's Succeeded condition and corresponding reasons.
const (
	// SucceededCondition is True when the operation completed, False while it waits for a retry, Unknown until then.
	SucceededCondition = "Succeeded"

	// SucceededReason surfaces when the operation completed on every machine that it selected.
	SucceededReason = "Succeeded"

	// CompletedWithHeldMachinesReason surfaces, with status True, when it completed and skipped machines that are held.
	CompletedWithHeldMachinesReason = "CompletedWithHeldMachines"

	// NotCompletedReason surfaces, with status Unknown, until the operation is over.
	NotCompletedReason = "NotCompleted"

	// FailedReason surfaces when the operation waits for a retry; status.failureReason says what failed.
	FailedReason = "Failed"

	// TurnedBackReason surfaces, with status False, when the operation is over and was turned back: the cluster is what it was before.
	TurnedBackReason = "TurnedBack"
)

// TalosOperation's TurningBack condition and corresponding reasons. Only operations that were asked to turn back have it.
const (
	// TurningBackCondition is True from the moment that an operation has been told to turn back until it has.
	TurningBackCondition = "TurningBack"

	// TurningBackReason surfaces while what the operation has changed becomes what it was.
	TurningBackReason = "TurningBack"

	// HasTurnedBackReason surfaces, with status False, when the cluster is what it was before.
	HasTurnedBackReason = "TurnedBack"

	// NoWayBackReason surfaces, with status False, when the request came too late; the message says why.
	NoWayBackReason = "NoWayBack"
)

// TalosOperation's Progressing condition and corresponding reasons. While a gate keeps the operation waiting, the reason is the
// name of the gate; the gates are documented with their constants below.
const (
	// ProgressingCondition is True while steps are taken, and False while the operation waits, is paused or over.
	ProgressingCondition = "Progressing"

	// ProgressingReason surfaces while steps are taken.
	ProgressingReason = "Progressing"

	// StartingReason surfaces between the lock and the first step, while the target is observed.
	StartingReason = "Starting"

	// NotStartedReason surfaces until the operation takes the lock.
	NotStartedReason = "NotStarted"

	// SettlingReason surfaces while machines in hand are taken to their nearest safe point.
	SettlingReason = "Settling"

	// DeletionBlockedReason surfaces when the operation is being deleted inside an unsafe step; the message says how it ends.
	DeletionBlockedReason = "DeletionBlocked"

	// NotProgressingReason surfaces when condition Paused says why nothing moves.
	NotProgressingReason = "Paused"

	// CompletedReason surfaces when the operation is over.
	CompletedReason = "Completed"
)

// Gates that make an operation wait. They are reasons of condition Progressing.
const (
	// TargetReachableGate waits until the target's Kubernetes API, and the Talos API of the machines it needs, answer.
	TargetReachableGate = "TargetReachable"

	// MachinesDiscoveredGate waits until initial discovery has matched every etcd member and every Node.
	MachinesDiscoveredGate = "MachinesDiscovered"

	// MachineSettledGate waits until a machine that booted another system has found it good, or fallen back.
	MachineSettledGate = "MachineSettled"

	// EtcdHealthyGate waits until etcd can lose the chosen control plane without losing quorum.
	EtcdHealthyGate = "EtcdHealthy"

	// WorkersAvailableGate waits until fewer than maxUnavailable workers are away.
	WorkersAvailableGate = "WorkersAvailable"

	// ControlPlanesReadyGate waits until every other control plane is ready.
	ControlPlanesReadyGate = "ControlPlanesReady"

	// MachinesPoweredOnGate waits until every machine of a cluster that was stopped answers again. People power them on.
	MachinesPoweredOnGate = "MachinesPoweredOn"

	// NodesReadyGate waits, before an upgrade of Kubernetes, until every Node that it takes is ready, and so are the control plane's pods.
	NodesReadyGate = "NodesReady"

	// VersionSkewGate waits until every API server runs the version to go to: nothing that asks them may be newer.
	VersionSkewGate = "VersionSkew"

	// MachineConfigPendingGate waits, or refuses, while another machine config is staged or tried on a machine: a change would wipe it.
	MachineConfigPendingGate = "MachineConfigPending"

	// RotationPassGate waits, in a rotation, until every machine is where the pass before has to have brought it, and has proved it.
	RotationPassGate = "RotationPass"

	// CredentialsConfirmedGate waits until people have confirmed that they have the new credentials.
	CredentialsConfirmedGate = "CredentialsConfirmed"

	// MachineHeldGate refuses, and waits once it has begun, while a machine is held that a rotation must not leave out.
	MachineHeldGate = "MachineHeld"
)

// Gates that refuse. They are named in refusals and may be named in spec.overrides where the refusal says so.
const (
	// TargetDeclaredGate refuses when the spec of the target declares no version to go to.
	TargetDeclaredGate = "TargetDeclared"

	// TargetExpectedGate refuses when the spec of the target is not what spec.expectedTarget says.
	TargetExpectedGate = "TargetExpected"

	// TalosVersionPathGate refuses versions that are not final, not newer, or too far. Skipping one minor may be overridden.
	TalosVersionPathGate = "TalosVersionPath"

	// TalosHostVersionGate refuses machines that run a Talos which this hub cannot upgrade.
	TalosHostVersionGate = "TalosHostVersion"

	// KubernetesPairingGate refuses when Talos and Kubernetes would not go together. It may be overridden where it is Talos that changes.
	KubernetesPairingGate = "KubernetesPairing"

	// KubernetesVersionPathGate refuses versions of Kubernetes that are not final, not newer, or more than one minor away.
	KubernetesVersionPathGate = "KubernetesVersionPath"

	// KubernetesVersionOwnedGate refuses to change a version of Kubernetes that Cluster API's control plane or topology says.
	KubernetesVersionOwnedGate = "KubernetesVersionOwned"

	// CiliumPairingGate refuses when Cilium is not tested with the version of Kubernetes to go to. It may be overridden.
	CiliumPairingGate = "CiliumPairing"

	// ControlPlaneHeldGate refuses an upgrade of Kubernetes that would leave out a control plane: its API server would stay behind.
	ControlPlaneHeldGate = "ControlPlaneHeld"

	// RemovedAPIsGate fails the check before an upgrade of Kubernetes when something asks for APIs that the version has no more. It may be
	// overridden: who asked may be gone.
	RemovedAPIsGate = "RemovedAPIs"

	// SchematicGate refuses when the schematic of a machine is not known, so that extensions could be lost.
	SchematicGate = "Schematic"

	// MachineKnownGate refuses when a machine that the operation names is not part of the target, or is not approved. An approval
	// that was taken back while the operation ran makes it wait.
	MachineKnownGate = "MachineKnown"

	// ActionKnownGate refuses an action of kind node that this hub does not know.
	ActionKnownGate = "ActionKnown"

	// TargetOwnedGate refuses a target whose record names another hub, until it is taken over on purpose.
	TargetOwnedGate = "TargetOwned"

	// MachineConfigKnownGate refuses while it is not known what becomes of the machine config of a machine: it has not been compared yet, which
	// an operation waits for, or what is asked for cannot be rendered.
	MachineConfigKnownGate = "MachineConfigKnown"

	// QuorumGate refuses when taking a control plane away costs etcd its quorum for certain, as with two members.
	QuorumGate = "Quorum"

	// EtcdMemberGate refuses an action on etcd for a machine that has no member of it, or that has no other member beside it.
	EtcdMemberGate = "EtcdMember"

	// ClusterRunningGate refuses to work on a cluster that was stopped on purpose, until it is started.
	ClusterRunningGate = "ClusterRunning"

	// ClusterStoppedGate refuses to start a cluster that no operation has stopped.
	ClusterStoppedGate = "ClusterStopped"

	// SnapshotUsableGate refuses to restore a snapshot that is not there, is another cluster's, is not taken yet, or has no hash.
	SnapshotUsableGate = "SnapshotUsable"

	// SnapshotStorageGate refuses to take a snapshot of etcd where none can be stored.
	SnapshotStorageGate = "SnapshotStorage"

	// KeyOverlapGate refuses to rotate a key where the machine config of a control plane cannot hold the old one and the new one at the
	// same time.
	KeyOverlapGate = "KeyOverlap"

	// ControlPlanesRenderedGate refuses to rotate the key that encrypts Secrets where new control planes are rendered from the bundle of
	// secrets, which holds the key and not its name.
	ControlPlanesRenderedGate = "ControlPlanesRendered"

	// HubUpgradableGate refuses an upgrade of the hub where an operation cannot bring it about; see condition Upgradable of the IchorInstallation.
	HubUpgradableGate = "HubUpgradable"

	// HubVersionPathGate refuses versions of the hub that are not final, not newer, or more than one minor away.
	HubVersionPathGate = "HubVersionPath"

	// KeysInUseGate waits before an old key is dropped, as long as a control plane has not taken the new one.
	KeysInUseGate = "KeysInUse"
)

// Gates that refuse a request to the hub's service before anything is written. Operations that are made in other ways do not meet them:
// they queue, and what they find in the spec of the target is what they bring about.
const (
	// OperationUnfinishedGate refuses while another operation on the target is not over.
	OperationUnfinishedGate = "OperationUnfinished"

	// SpecTrackedGate refuses to change an object that Argo CD or Flux keeps as it is in Git.
	SpecTrackedGate = "SpecTracked"

	// SpecOwnedGate refuses to change fields that another field manager of server-side apply owns.
	SpecOwnedGate = "SpecOwned"
)

// TalosOperation's Paused condition and corresponding reasons. There is one reason for everything that keeps an operation from
// moving other than a gate that time opens; the first that applies wins, in this order.
const (
	// PausedCondition is True when the operation does not move; the message says who can change that, and with which command.
	PausedCondition = "Paused"

	// NotPausedReason surfaces when nothing pauses the operation.
	NotPausedReason = "NotPaused"

	// ClusterPausedReason surfaces when the Cluster is paused in the sense of Cluster API.
	ClusterPausedReason = "ClusterPaused"

	// OperatorPausedReason surfaces when spec.paused is true. The lock stays with the operation.
	OperatorPausedReason = "OperatorPaused"

	// StatusLostReason surfaces when the operation had begun and its status is gone or older than the record on the target.
	StatusLostReason = "StatusLost"

	// StepFailedReason surfaces when a step failed. Nothing is repeated or rolled back until somebody retries.
	StepFailedReason = "StepFailed"

	// NoExecutorReason surfaces when this hub does not know the kind.
	NoExecutorReason = "NoExecutor"

	// RefusedReason surfaces when a gate refuses which time will not open.
	RefusedReason = "Refused"

	// WaitingForWindowReason surfaces when no maintenance window of the target is open.
	WaitingForWindowReason = "WaitingForWindow"

	// ControlPlaneTransitioningReason surfaces when a control plane seems to be under replacement.
	ControlPlaneTransitioningReason = "ControlPlaneTransitioning"

	// ClusterLockHeldReason surfaces when somebody else holds the lock of the target, or comes first.
	ClusterLockHeldReason = "ClusterLockHeld"

	// TargetMissingReason surfaces when the TalosCluster that the operation names does not exist.
	TargetMissingReason = "TargetMissing"
)

// TalosOperation's LockHeld condition and corresponding reasons.
const (
	// LockHeldCondition is True while the operation holds the lock of the target.
	LockHeldCondition = "LockHeld"

	// LockHeldReason surfaces while the operation holds the lock.
	LockHeldReason = "Held"

	// LockNotHeldReason surfaces until the operation takes the lock.
	LockNotHeldReason = "NotHeld"

	// LockReleasedReason surfaces after the operation gave the lock back.
	LockReleasedReason = "Released"
)

// TalosOperation's TargetSuperseded condition and corresponding reasons.
const (
	// TargetSupersededCondition is True when the spec of the target changed after the operation had captured it.
	TargetSupersededCondition = "TargetSuperseded"

	// TargetSupersededReason surfaces when the spec asks for something else by now; the message says what.
	TargetSupersededReason = "Superseded"

	// TargetCurrentReason surfaces when the operation brings the target to what its spec asks for.
	TargetCurrentReason = "Current"
)

// Reasons of Events about a TalosOperation, beside the reasons of its conditions.
const (
	// LockTakenEvent is recorded when the operation takes the lock.
	LockTakenEvent = "LockTaken"

	// StageCompletedEvent is recorded when a stage is over on all its units.
	StageCompletedEvent = "StageCompleted"

	// FoundEvent is recorded when a stage that looks at the target is over and has something to tell.
	FoundEvent = "Found"

	// MachineCompletedEvent is recorded when a machine is past its last stage.
	MachineCompletedEvent = "MachineCompleted"

	// LockTakenOverEvent is recorded, as a Warning, when the operation takes the lock from one that failed.
	LockTakenOverEvent = "LockTakenOver"

	// LockReleasedEvent is recorded when the operation gives the lock back.
	LockReleasedEvent = "LockReleased"

	// ResumedEvent is recorded when what paused the operation is over.
	ResumedEvent = "Resumed"

	// ForceDeletedEvent is recorded, as a Warning, when the operation is deleted whatever its machines are in.
	ForceDeletedEvent = "ForceDeleted"

	// RetryingEvent is recorded when a retry begins.
	RetryingEvent = "Retrying"

	// GateOverriddenEvent is recorded, as a Warning, when an override bypasses a gate.
	GateOverriddenEvent = "GateOverridden"
)
