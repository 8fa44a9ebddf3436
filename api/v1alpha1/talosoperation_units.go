// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// UnitPhase is where a machine, or a stage without machines, is in its operation.
// +kubebuilder:validation:Enum=InProgress;Completed
type UnitPhase string

const (
	// UnitInProgress has been selected.
	UnitInProgress UnitPhase = "InProgress"

	// UnitCompleted is past its last stage. It is never demoted.
	UnitCompleted UnitPhase = "Completed"
)

// OperationStep is what is going on with a unit.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=32
type OperationStep string

const (
	// PullingStep pulls an image.
	PullingStep OperationStep = "Pulling"

	// InstallingStep writes the new system to the inactive slot.
	InstallingStep OperationStep = "Installing"

	// UpgradingStep is the single unrepeatable call by which Talos before 1.13 installs and reboots.
	UpgradingStep OperationStep = "Upgrading"

	// SnapshottingStep stores a snapshot of etcd.
	SnapshottingStep OperationStep = "Snapshotting"

	// ForfeitingStep moves etcd's leadership to another member.
	ForfeitingStep OperationStep = "Forfeiting"

	// EvacuatingStep moves storage replicas to other machines.
	EvacuatingStep OperationStep = "Evacuating"

	// DrainingStep cordons the Node and evicts its pods.
	DrainingStep OperationStep = "Draining"

	// RebootingStep has asked for the reboot and waits for another boot ID.
	RebootingStep OperationStep = "Rebooting"

	// VerifyingStep waits until the machine is back and proves that it is what it should be.
	VerifyingStep OperationStep = "Verifying"

	// CheckingStep has everything checked that can be before anything is changed, such as the machine config by the machine itself.
	CheckingStep OperationStep = "Checking"

	// ApplyingStep brings a machine config in force without a reboot.
	ApplyingStep OperationStep = "Applying"

	// StagingStep keeps a machine config on the machine for its next boot.
	StagingStep OperationStep = "Staging"

	// UncordoningStep makes the Node schedulable again, if this operation cordoned it.
	UncordoningStep OperationStep = "Uncordoning"

	// ShuttingDownStep has asked for the shutdown and waits until the machine is off.
	ShuttingDownStep OperationStep = "ShuttingDown"

	// StayingOffStep waits until a machine that is off has stayed so for a while.
	StayingOffStep OperationStep = "StayingOff"

	// RestartingStep has asked for the restart of a service and waits until that is healthy, with a later start.
	RestartingStep OperationStep = "Restarting"

	// DefragmentingStep defragments the database of an etcd member.
	DefragmentingStep OperationStep = "Defragmenting"

	// DisarmingStep takes back etcd's alarm about space.
	DisarmingStep OperationStep = "Disarming"

	// ProvisioningStep gives a machine in maintenance mode its machine config, with which it installs Talos and boots.
	ProvisioningStep OperationStep = "Provisioning"

	// LeavingStep has the etcd member of a machine leave, and waits until the others do not know it any more.
	LeavingStep OperationStep = "Leaving"

	// RemovingMemberStep has another control plane remove the etcd member of a machine that cannot leave.
	RemovingMemberStep OperationStep = "RemovingMember"

	// ResettingStep has asked for the reset and waits until the machine is wiped.
	ResettingStep OperationStep = "Resetting"

	// DeletingNodeStep deletes the Node of a machine that has left its cluster.
	DeletingNodeStep OperationStep = "DeletingNode"

	// ForgettingStep deletes the TalosMachine of a machine that has left its cluster.
	ForgettingStep OperationStep = "Forgetting"

	// CordoningStep cordons every Node of the cluster.
	CordoningStep OperationStep = "Cordoning"

	// SyncingStep applies the bootstrap manifests that the control planes render.
	SyncingStep OperationStep = "Syncing"

	// RollingOutStep waits until the workloads of the bootstrap manifests run as they were applied.
	RollingOutStep OperationStep = "RollingOut"
)

// Steps of kind key-rotation.
const (
	// GeneratingStep makes what is new, keys or authorities, once, and keeps it and the old in Secrets before any machine hears of it.
	GeneratingStep OperationStep = "Generating"

	// ProvingStep has API servers sign tokens, and each of the others take them.
	ProvingStep OperationStep = "Proving"

	// RefreshingStep waits until nobody uses a token any more that the old key has signed.
	RefreshingStep OperationStep = "Refreshing"

	// RewritingStep has the API server write again what is encrypted in etcd.
	RewritingStep OperationStep = "Rewriting"

	// RenewingStep brings the cluster's bundle of secrets up to date.
	RenewingStep OperationStep = "Renewing"
)

// Steps of kind ca-rotation, beside Generating, Applying and Verifying.
const (
	// TrustingStep has the credentials of the cluster trust both authorities.
	TrustingStep OperationStep = "Trusting"

	// HandingOverStep puts the credentials of the new authority where people and the hub find them.
	HandingOverStep OperationStep = "HandingOver"

	// CatchingUpStep brings machines that joined late to where the others are.
	CatchingUpStep OperationStep = "CatchingUp"

	// AwaitingCredentialsStep waits until people have confirmed that they have the new credentials.
	AwaitingCredentialsStep OperationStep = "AwaitingCredentials"

	// FinishingStep deletes what the operation kept for itself.
	FinishingStep OperationStep = "Finishing"
)

// Steps of kind etcd-restore.
const (
	// PreparingStep waits until a control plane that was wiped is back without an etcd, ready to take one.
	PreparingStep OperationStep = "Preparing"

	// RecoveringStep sends the snapshot to the one control plane that etcd begins with.
	RecoveringStep OperationStep = "Recovering"

	// BootstrappingStep has that control plane begin an etcd of the snapshot.
	BootstrappingStep OperationStep = "Bootstrapping"

	// JoiningStep waits until a machine has joined: it answers as one of the cluster, or its etcd member votes.
	JoiningStep OperationStep = "Joining"

	// AwaitingStep waits a while for a worker that does not answer, and then goes on without it.
	AwaitingStep OperationStep = "Awaiting"

	// CleaningStep deletes from the target what came back with the snapshot and stands for nothing any more.
	CleaningStep OperationStep = "Cleaning"
)

// ErrorClass says what a failed call means for the step.
// +kubebuilder:validation:Enum=Permanent;Retryable;InProgress;Timeout;Interrupted
type ErrorClass string

const (
	// ErrorPermanent will not go away by itself.
	ErrorPermanent ErrorClass = "Permanent"

	// ErrorRetryable may go away; the call was not carried out.
	ErrorRetryable ErrorClass = "Retryable"

	// ErrorInProgress means that the same work is under way already; waiting is right.
	ErrorInProgress ErrorClass = "InProgress"

	// ErrorTimeout means that the step's deadline passed.
	ErrorTimeout ErrorClass = "Timeout"

	// ErrorInterrupted means that the hub stopped in the middle of a call that may not be repeated.
	ErrorInterrupted ErrorClass = "Interrupted"
)

// CallResult says how a call ended.
// +kubebuilder:validation:Enum=Succeeded;Failed
type CallResult string

const (
	// CallSucceeded did what it was asked to do.
	CallSucceeded CallResult = "Succeeded"

	// CallFailed did not.
	CallFailed CallResult = "Failed"
)

// CallOutcome is how the call of a step ended.
type CallOutcome struct {
	// result says how it ended.
	// +required
	Result CallResult `json:"result,omitempty"`

	// class says what a failure means.
	// +optional
	Class ErrorClass `json:"class,omitempty"`

	// exitCode is the installer's exit code, where there is one.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`

	// message says what happened.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`

	// time is when it ended.
	// +required
	Time metav1.Time `json:"time,omitempty,omitzero"`
}

// StepRecord is one step that a unit went through, for time lines and estimates.
type StepRecord struct {
	// step is the step.
	// +required
	Step OperationStep `json:"step,omitempty"`

	// stage is the stage in which it ran.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Stage string `json:"stage,omitempty"`

	// startTime is when the step was claimed.
	// +required
	StartTime metav1.Time `json:"startTime,omitempty,omitzero"`

	// completionTime is when the step failed, the next one was claimed, or the unit ended.
	// +optional
	CompletionTime metav1.Time `json:"completionTime,omitempty,omitzero"`
}

// UnitProgress is how far a unit has come whose step makes many calls. It is what the next call goes on from.
type UnitProgress struct {
	// cursor is where the next call begins; the kind says what it means. Without one the work is over.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Cursor string `json:"cursor,omitempty"`

	// done counts what is done.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Done int64 `json:"done,omitempty"`
}

// MaxStepRecords is how many steps are kept of a unit; the oldest go first.
const MaxStepRecords = 64

// UnitStatus is the state of one machine, or of one stage without machines. All that the hub needs to go on after a crash is here.
type UnitStatus struct {
	// name is the TalosMachine, or the stage.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// phase is Completed only after the unit's last stage.
	// +required
	Phase UnitPhase `json:"phase,omitempty"`

	// stage is the stage in which the unit is.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Stage string `json:"stage,omitempty"`

	// completedStage is the last stage that is over for this unit.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	CompletedStage string `json:"completedStage,omitempty"`

	// step is what is going on. A step with a call is written here before the call is made: a claim.
	// +optional
	Step OperationStep `json:"step,omitempty"`

	// stepStartTime is when the step was claimed.
	// +optional
	StepStartTime metav1.Time `json:"stepStartTime,omitempty,omitzero"`

	// outcome is how the call of the step ended; without it the call is under way, or was when the hub stopped.
	// +optional
	Outcome *CallOutcome `json:"outcome,omitempty"`

	// unknownSince is when an attempt of the step first ended without anybody knowing how. What later attempts answer does not tell.
	// +optional
	UnknownSince metav1.Time `json:"unknownSince,omitempty,omitzero"`

	// failureTime is when the unit failed. It is there only while the operation waits for a retry.
	// +optional
	FailureTime metav1.Time `json:"failureTime,omitempty,omitzero"`

	// retryStep is the step at which a retry begins, where that is not the failed step.
	// +optional
	RetryStep OperationStep `json:"retryStep,omitempty"`

	// preRebootBootID is the boot ID read before the reboot was asked for.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	PreRebootBootID string `json:"preRebootBootID,omitempty"`

	// nodeName is the machine's Node when the reboot was asked for. It has to come back as the same.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// resolvedImage is the image as the machine resolved it when it pulled it. Talos before 1.13 cannot pull beforehand; there it is the
	// image that the machine was told to upgrade to.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ResolvedImage string `json:"resolvedImage,omitempty"`

	// configHash is the hash of the machine config that the claimed step brings to the machine: SHA-256, in hexadecimal.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	ConfigHash string `json:"configHash,omitempty"`

	// serviceStartTime is when the service that the claimed step restarts had started before, by the clock of its machine.
	// +optional
	ServiceStartTime metav1.MicroTime `json:"serviceStartTime,omitempty,omitzero"`

	// progress is how far the unit has come, where its step makes many calls.
	// +optional
	Progress *UnitProgress `json:"progress,omitempty"`

	// message says what the unit waits for or why it failed.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`

	// steps are the steps so far.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Steps []StepRecord `json:"steps,omitempty"`
}
