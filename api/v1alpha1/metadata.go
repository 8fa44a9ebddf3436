// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Labels, annotations and finalizers are part of the API: people and Git folders write them.
const (
	// TalosOperationFinalizer keeps an operation until it has settled, removed what it put on the target and released the lock.
	TalosOperationFinalizer = "talosoperation.ichor.maesh.dev"

	// EtcdSnapshotFinalizer keeps an EtcdSnapshot until what is stored of it is deleted.
	EtcdSnapshotFinalizer = "etcdsnapshot.ichor.maesh.dev"

	// UpgradeOrderLabel on a TalosMachine sorts it within its tier: by string, missing last, then by name.
	UpgradeOrderLabel = "ichor.maesh.dev/upgrade-order"

	// UpgradeHoldAnnotation on a TalosMachine makes rolling operations skip it; its value is a note for people.
	UpgradeHoldAnnotation = "ichor.maesh.dev/upgrade-hold"

	// MembersApprovedAtAnnotation on a TalosCluster records when initial approval ended: one discovery had matched every
	// etcd member and every Node to a machine. Machines found later wait for an explicit approval.
	MembersApprovedAtAnnotation = "ichor.maesh.dev/members-approved-at"

	// JoinedAtAnnotation on a TalosMachine records when the hub first saw a machine that was asked to join (spec.join) work as one of its
	// cluster. Until then it counts as none. It moves with the object, so that a move makes no member a stranger.
	JoinedAtAnnotation = "ichor.maesh.dev/joined-at"

	// ProvisionedAtAnnotation on a TalosMachine records when a machine that was asked to join was about to be given its machine config, with the
	// secrets of its cluster. It is written before that.
	ProvisionedAtAnnotation = "ichor.maesh.dev/provisioned-at"

	// OwnerIDAnnotation on a TalosCluster is the identity under which this hub manages the target. It is made at import
	// and moves with the object, so that the record on the target still matches after a move.
	OwnerIDAnnotation = "ichor.maesh.dev/owner-id"

	// UnsafeAnnotation on a TalosCluster names the operation that is inside a window which nobody else may enter
	// (a rotation between swap and drop, a restore after the first wipe).
	UnsafeAnnotation = "ichor.maesh.dev/unsafe"

	// ConfirmKubeProxySwitchAnnotation on a TalosCluster confirms a change of spec.cni.kubeProxy in the same write.
	ConfirmKubeProxySwitchAnnotation = "ichor.maesh.dev/confirm-kube-proxy-switch"

	// OperationIDAnnotation on a TalosOperation is its identity, generated at its first visit. Names are re-used and UIDs
	// change in moves and restores; this does neither.
	OperationIDAnnotation = "ichor.maesh.dev/operation-id"

	// CreatedByAnnotation on a TalosOperation is the user who created it. Admission sets it where it is missing, or refuses the
	// operation where it cannot, refuses the name of another, and lets nobody change it.
	CreatedByAnnotation = "ichor.maesh.dev/created-by"

	// MachineConfigLabel on a Secret says that it has the base of a machine's config: the machine config, under key "machineconfig", that the
	// patches of the TalosCluster are applied to. Its value is "base".
	MachineConfigLabel = "ichor.maesh.dev/machine-config"

	// UpgradedByAnnotation on the Job that upgrades the hub names the operation (namespace/name) that it is of.
	UpgradedByAnnotation = "ichor.maesh.dev/upgraded-by"

	// RetryAnnotation set to "true" on a TalosOperation asks, once, to run its failed step again.
	RetryAnnotation = "ichor.maesh.dev/retry"

	// ConfirmStageAnnotation on a TalosOperation ends a stage that waits for people: its value is the name of that stage. A value that
	// names another one means nothing.
	ConfirmStageAnnotation = "ichor.maesh.dev/confirm-stage"

	// OldKeyLabel on a Secret says that it has a key that was rotated away and that snapshots of etcd still need. Its value is the provider
	// of the key, such as secretbox, or ServiceAccount.
	OldKeyLabel = "ichor.maesh.dev/old-key"

	// KeyFingerprintAnnotation on a Secret with OldKeyLabel is the fingerprint of the key, as spec.contents.keys of an EtcdSnapshot has it.
	KeyFingerprintAnnotation = "ichor.maesh.dev/key-fingerprint"

	// StartedAtAnnotation on a TalosOperation is written before its first disruptive call and survives a lost status.
	StartedAtAnnotation = "ichor.maesh.dev/started-at"

	// CompletedAtAnnotation on a TalosOperation is written when it completes and survives a lost status.
	CompletedAtAnnotation = "ichor.maesh.dev/completed-at"

	// ForceDeleteAnnotation set to "true" on a TalosOperation lets its deletion go on inside an unsafe step, and leaves the target as
	// it is. Whoever sets it needs the verb override.
	ForceDeleteAnnotation = "ichor.maesh.dev/force-delete"

	// ForceDeleteReasonAnnotation beside ForceDeleteAnnotation says why, for people.
	ForceDeleteReasonAnnotation = "ichor.maesh.dev/force-delete-reason"

	// TurnBackAnnotation set to "true" on a TalosOperation asks to turn it back: what it has changed becomes what it was, as long as that is
	// possible. It is not taken back.
	TurnBackAnnotation = "ichor.maesh.dev/turn-back"

	// BundleChangedAnnotation on a TalosCluster is when the hub last changed a secret that belongs into a backup of the cluster's secrets.
	BundleChangedAnnotation = "ichor.maesh.dev/bundle-changed-at"

	// BundleExportedAnnotation on a TalosCluster is the value that BundleChangedAnnotation had when the bundle was last exported.
	BundleExportedAnnotation = "ichor.maesh.dev/bundle-exported"

	// IdempotencyKeyLabel on a TalosOperation is the key that a call brought which may be repeated: the same key is the same operation.
	IdempotencyKeyLabel = "ichor.maesh.dev/idempotency-key"

	// TakeOverAnnotation on a TalosCluster takes the target over from another hub, on purpose: its value is the owner ID that the other
	// hub wrote down on the target. The hub removes it when that is done.
	TakeOverAnnotation = "ichor.maesh.dev/take-over"

	// DeleteForMoveAnnotation is put on objects by "clusterctl move" before it deletes them: they go on elsewhere. It is Cluster API's.
	DeleteForMoveAnnotation = "clusterctl.cluster.x-k8s.io/delete-for-move"

	// BlockMoveAnnotation on any object of a Cluster makes "clusterctl move" wait. It is Cluster API's; its value says whose block it is.
	BlockMoveAnnotation = "clusterctl.cluster.x-k8s.io/block-move"

	// CordonedByAnnotation on a Node of a target names the operation (namespace/name) that cordoned it. It is set in the same
	// patch as the cordon; an operation uncordons only what it cordoned.
	CordonedByAnnotation = "ichor.maesh.dev/cordoned-by"

	// PowerAnnotation on a TalosCluster says how far a planned shutdown of it is: Stopping, Stopped or Starting. It is not there on a
	// cluster that runs. The hub writes it, with the next two; it moves with the object.
	PowerAnnotation = "ichor.maesh.dev/power"

	// StoppedByAnnotation on a TalosCluster names the operation (namespace/name) that stops the cluster, or has. Nodes that this
	// operation cordoned are given back when the cluster is started.
	StoppedByAnnotation = "ichor.maesh.dev/stopped-by"

	// StoppedAtAnnotation on a TalosCluster is when that operation ended, or while it goes on, when it began to power machines off.
	StoppedAtAnnotation = "ichor.maesh.dev/stopped-at"

	// StorageReplicasAnnotation on a Node of a target is written by a storage operator there: how many replicas of volumes the Node
	// holds. Where it is, an operation moves the replicas off the Node before it drains it.
	StorageReplicasAnnotation = "ichor.maesh.dev/storage-replicas"

	// StorageEvacuatedByAnnotation on a Node of a target names the operation (namespace/name) that evacuates its storage. While it is
	// there the storage operator moves replicas off the Node and puts none on it; an operation removes only what it wrote.
	StorageEvacuatedByAnnotation = "ichor.maesh.dev/storage-evacuated-by"

	// LockEpochAnnotation on a lock's Lease is the random identity of the hub process that holds it.
	LockEpochAnnotation = "ichor.maesh.dev/lock-epoch"

	// LockLastAnnotation on a lock's Lease is the operation that gave it back last, by ID, and how far the target's record knows it to have
	// come: <operation ID>/<sequence>. The operation itself may be gone by the time that somebody asks.
	LockLastAnnotation = "ichor.maesh.dev/lock-last"
)

// The only values that mean anything.
const (
	// RetryRequested is the value of RetryAnnotation.
	RetryRequested = "true"

	// TurnBackRequested is the value of TurnBackAnnotation.
	TurnBackRequested = "true"

	// ForceDeleteRequested is the value of ForceDeleteAnnotation.
	ForceDeleteRequested = "true"
)
