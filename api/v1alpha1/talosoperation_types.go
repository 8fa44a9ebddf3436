// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// OperationKind is what an operation does.
// +kubebuilder:validation:Enum=talos;kubernetes;ichor;cni;config;node;shutdown;ca-rotation;key-rotation;etcd-restore
type OperationKind string

const (
	// TalosKind upgrades Talos, or changes the schematic, machine by machine.
	TalosKind OperationKind = "talos"

	// KubernetesKind upgrades Kubernetes, component by component.
	KubernetesKind OperationKind = "kubernetes"

	// IchorKind upgrades the hub itself.
	IchorKind OperationKind = "ichor"

	// CNIKind upgrades Cilium or switches kube-proxy.
	CNIKind OperationKind = "cni"

	// ConfigKind rolls out changes of the machine config.
	ConfigKind OperationKind = "config"

	// NodeKind is one action on one machine.
	NodeKind OperationKind = "node"

	// ShutdownKind stops and starts a whole cluster.
	ShutdownKind OperationKind = "shutdown"

	// CARotationKind replaces the CAs of a cluster.
	CARotationKind OperationKind = "ca-rotation"

	// KeyRotationKind replaces the service-account signing key and the secretbox key.
	KeyRotationKind OperationKind = "key-rotation"

	// EtcdRestoreKind rewinds a cluster to a stored etcd snapshot.
	EtcdRestoreKind OperationKind = "etcd-restore"
)

// GateOverride bypasses a gate that allows it. Whoever writes one needs the verb override.
type GateOverride struct {
	// gate is the name of the gate, as a refusal names it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Gate string `json:"gate,omitempty"`

	// reason says why; it is kept with the operation and in the audit.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// OperationTarget is what an operation brings its cluster to.
type OperationTarget struct {
	// talosVersion is the version of Talos.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	TalosVersion string `json:"talosVersion,omitempty"`

	// schematicID is the schematic of every machine; empty keeps the one that each machine runs.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	SchematicID string `json:"schematicID,omitempty"`

	// kubernetesVersion is the version of Kubernetes.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// ciliumVersion is the version of Cilium.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	CiliumVersion string `json:"ciliumVersion,omitempty"`

	// kubeProxy is the mode of kube-proxy.
	// +optional
	KubeProxy KubeProxyMode `json:"kubeProxy,omitempty"`

	// machineConfigHash is the hash of spec.machineConfig of the TalosCluster: SHA-256, in hexadecimal. A roll-out brings what it began with.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	MachineConfigHash string `json:"machineConfigHash,omitempty"`

	// ichorVersion is the version of the hub itself, as spec.version of the IchorInstallation has it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	IchorVersion string `json:"ichorVersion,omitempty"`
}

// TalosOperationSpec is the order: one action on one target. It is immutable but for paused, maxUnavailable and
// ttlSecondsAfterFinished.
//
// +kubebuilder:validation:XValidation:rule="(self.kind == 'node') == has(self.node)",message="node goes with kind node, and only with it"
// +kubebuilder:validation:XValidation:rule="(self.kind == 'cni') == has(self.cni)",message="cni goes with kind cni, and only with it"
// +kubebuilder:validation:XValidation:rule="(self.kind == 'shutdown') == has(self.shutdown)",message="shutdown goes with kind shutdown, and only with it"
// +kubebuilder:validation:XValidation:rule="(self.kind == 'ca-rotation') == has(self.caRotation)",message="caRotation goes with kind ca-rotation, and only with it"
// +kubebuilder:validation:XValidation:rule="(self.kind == 'key-rotation') == has(self.keyRotation)",message="keyRotation goes with kind key-rotation, and only with it"
// +kubebuilder:validation:XValidation:rule="(self.kind == 'etcd-restore') == has(self.etcdRestore)",message="etcdRestore goes with kind etcd-restore, and only with it"
// +kubebuilder:validation:XValidation:rule="self.kind == 'config' || !has(self.config)",message="config goes with kind config only"
// +kubebuilder:validation:XValidation:rule="has(self.overrides) == has(oldSelf.overrides) && has(self.expectedTarget) == has(oldSelf.expectedTarget) && has(self.config) == has(oldSelf.config)",message="spec is immutable but for paused, maxUnavailable and ttlSecondsAfterFinished"
type TalosOperationSpec struct {
	// clusterName is the target: a TalosCluster in the same namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterName is immutable"
	ClusterName string `json:"clusterName,omitempty"`

	// kind is what the operation does.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="kind is immutable"
	Kind OperationKind `json:"kind,omitempty"`

	// paused stops the operation at the next safe point of the machines in hand; the lock stays with it.
	// +optional
	Paused *bool `json:"paused,omitempty"` //nolint:kubeapilinter // As in Cluster API and every Kubernetes kind that can pause.

	// maxUnavailable is how many workers may be away at once, as a number or a percentage of the workers; by default 1.
	// Control planes always go one at a time.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 1000 : self.matches('^([1-9][0-9]?|100)%$')",message="maxUnavailable is a number from 1 to 1000 or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// overrides bypass gates that allow it.
	// +optional
	// +listType=map
	// +listMapKey=gate
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="overrides are immutable"
	Overrides []GateOverride `json:"overrides,omitempty"`

	// expectedTarget makes the operation refuse a target that differs from what its creator saw.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="expectedTarget is immutable"
	ExpectedTarget *OperationTarget `json:"expectedTarget,omitempty"`

	// ttlSecondsAfterFinished deletes the operation this long after it completed; without it the operation is kept.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// node holds the parameters of kind node.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="node is immutable"
	Node *NodeParameters `json:"node,omitempty"`

	// config holds the parameters of kind config.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="config is immutable"
	Config *ConfigParameters `json:"config,omitempty"`

	// cni holds the parameters of kind cni.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cni is immutable"
	CNI *CNIParameters `json:"cni,omitempty"`

	// shutdown holds the parameters of kind shutdown.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="shutdown is immutable"
	Shutdown *ShutdownParameters `json:"shutdown,omitempty"`

	// caRotation holds the parameters of kind ca-rotation.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="caRotation is immutable"
	CARotation *CARotationParameters `json:"caRotation,omitempty"`

	// keyRotation holds the parameters of kind key-rotation.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="keyRotation is immutable"
	KeyRotation *KeyRotationParameters `json:"keyRotation,omitempty"`

	// etcdRestore holds the parameters of kind etcd-restore.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="etcdRestore is immutable"
	EtcdRestore *EtcdRestoreParameters `json:"etcdRestore,omitempty"`
}

// OperationPhase is where an operation is. It is derived for people; nothing reads it back to decide.
// +kubebuilder:validation:Enum=Pending;InProgress;Paused;Completed
type OperationPhase string

const (
	// OperationPending has not taken the lock yet and waits for nothing in particular.
	OperationPending OperationPhase = "Pending"

	// OperationInProgress holds the lock and works, or waits at a gate that time opens.
	OperationInProgress OperationPhase = "InProgress"

	// OperationPaused does not move; condition Paused says why.
	OperationPaused OperationPhase = "Paused"

	// OperationCompleted is over.
	OperationCompleted OperationPhase = "Completed"
)

// TalosOperationStatus is the state of the work. Nothing that matters is kept anywhere else.
type TalosOperationStatus struct {
	// conditions are documented with their constants in this package.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that this status speaks of.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is where the operation is.
	// +optional
	Phase OperationPhase `json:"phase,omitempty"`

	// stage is the stage under way.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Stage string `json:"stage,omitempty"`

	// completedStages are the stages that are over on all their units.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=32
	CompletedStages []string `json:"completedStages,omitempty"`

	// comingStages are the stages after the one under way, as the plan has them now.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=32
	ComingStages []string `json:"comingStages,omitempty"`

	// target is what the operation brings its cluster to, captured in the write that first records the lock. A later
	// change of the spec does not change it, but sets condition TargetSuperseded.
	// +optional
	Target *OperationTarget `json:"target,omitempty"`

	// machines are the machines that were selected so far. A machine that is not listed was never selected.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	Machines []UnitStatus `json:"machines,omitempty"`

	// units are the stages without machines.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Units []UnitStatus `json:"units,omitempty"`

	// held are the machines that were skipped because they carry the annotation ichor.maesh.dev/upgrade-hold.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Held []string `json:"held,omitempty"`

	// failureReason says what failed. It is there only while the operation waits for a retry.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	FailureReason string `json:"failureReason,omitempty"`

	// lastRetry is when a retry was last begun.
	// +optional
	LastRetry metav1.Time `json:"lastRetry,omitempty,omitzero"`

	// startTime is when the lock was first taken.
	// +optional
	StartTime metav1.Time `json:"startTime,omitempty,omitzero"`

	// completionTime is when the operation completed.
	// +optional
	CompletionTime metav1.Time `json:"completionTime,omitempty,omitzero"`

	// operationID is the identity of the operation since it began, whatever becomes of its annotations.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	OperationID string `json:"operationID,omitempty"`

	// sequence is the place of the operation among all that were started on the target; the record on the target has it too.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Sequence int64 `json:"sequence,omitempty"`
}

// TalosOperation is one action on one target, and the record of it. It is no desired state: it is never kept in Git, and
// "ichor gitops export" leaves it out.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=talosoperations,scope=Namespaced,shortName=top,categories=cluster-api;ichor
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".spec.clusterName",description="Target"
// +kubebuilder:printcolumn:name="Kind",type="string",JSONPath=".spec.kind",description="What it does"
// +kubebuilder:printcolumn:name="Phase",type="string",JSONPath=".status.phase",description="Where it is"
// +kubebuilder:printcolumn:name="Stage",type="string",JSONPath=".status.stage",description="Stage under way"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Paused')].reason",description="Why it does not move",priority=10
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Progressing')].message",description="What is going on",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type TalosOperation struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the order.
	// +required
	Spec TalosOperationSpec `json:"spec,omitempty,omitzero"`

	// status is the state of the work.
	// +optional
	Status TalosOperationStatus `json:"status,omitempty,omitzero"`
}

// TalosOperationList is a list of TalosOperations.
//
// +kubebuilder:object:root=true
type TalosOperationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TalosOperation `json:"items"`
}

// GetConditions returns the conditions of the TalosOperation.
func (o *TalosOperation) GetConditions() []metav1.Condition { return o.Status.Conditions }

// SetConditions replaces the conditions of the TalosOperation.
func (o *TalosOperation) SetConditions(conditions []metav1.Condition) {
	o.Status.Conditions = conditions
}

// Paused says whether somebody asked the operation to pause.
func (o *TalosOperation) Paused() bool { return o.Spec.Paused != nil && *o.Spec.Paused }

// Completed says whether the operation is over.
func (o *TalosOperation) Completed() bool { return !o.Status.CompletionTime.IsZero() }

// Machine returns the state of a machine, or nil if it was never selected.
func (o *TalosOperation) Machine(name string) *UnitStatus {
	for i := range o.Status.Machines {
		if o.Status.Machines[i].Name == name {
			return &o.Status.Machines[i]
		}
	}
	return nil
}
