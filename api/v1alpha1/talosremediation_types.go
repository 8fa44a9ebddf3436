// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// DefaultRemediationTimeout is how long a remediation may take, unless it says otherwise.
const DefaultRemediationTimeout = 20 * time.Minute

// TalosRemediationSpec says how far a machine is helped before it is replaced.
type TalosRemediationSpec struct {
	// timeoutSeconds is how long after the request the machine has to be healthy again. Then its owner replaces it. Waiting for other
	// operations and for maintenance windows counts. 20 minutes if it is not set.
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=604800
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// Timeout is how long the remediation may take.
func (s TalosRemediationSpec) Timeout() time.Duration {
	return time.Duration(ptr.Deref(s.TimeoutSeconds, int32(DefaultRemediationTimeout/time.Second))) * time.Second
}

// TalosRemediationStatus is how far it has come.
type TalosRemediationStatus struct {
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

	// operationName is the TalosOperation that reboots the machine.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	OperationName string `json:"operationName,omitempty"`
}

// TalosRemediation asks for help for the Machine of Cluster API of the same name, to which it belongs: the hub reboots it, under the lock of its
// cluster and with all gates, and leaves it to its owner if that does not help. A MachineHealthCheck makes it from a TalosRemediationTemplate, and
// deletes it when the Machine is healthy.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=talosremediations,scope=Namespaced,categories={ichor,cluster-api}
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster of the machine"
// +kubebuilder:printcolumn:name="Remediated",type="string",JSONPath=".status.conditions[?(@.type=='Remediated')].status",description="Whether the machine was helped"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Remediated')].reason",description="Why not"
// +kubebuilder:printcolumn:name="Operation",type="string",JSONPath=".status.operationName",description="Operation that reboots it",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since it was asked for"
type TalosRemediation struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is how far the machine is helped.
	// +optional
	Spec TalosRemediationSpec `json:"spec,omitempty,omitzero"`

	// status is how far it has come.
	// +optional
	Status TalosRemediationStatus `json:"status,omitempty,omitzero"`
}

// TalosRemediationList is a list of TalosRemediations.
//
// +kubebuilder:object:root=true
type TalosRemediationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TalosRemediation `json:"items"`
}

// GetConditions returns the conditions of the TalosRemediation.
func (r *TalosRemediation) GetConditions() []metav1.Condition { return r.Status.Conditions }

// SetConditions replaces the conditions of the TalosRemediation.
func (r *TalosRemediation) SetConditions(conditions []metav1.Condition) {
	r.Status.Conditions = conditions
}

// TalosRemediationTemplateSpec is what a TalosRemediationTemplate makes.
type TalosRemediationTemplateSpec struct {
	// template is what TalosRemediations are made from.
	// +required
	Template TalosRemediationTemplateResource `json:"template,omitempty,omitzero"`
}

// TalosRemediationTemplateResource is a TalosRemediation to be.
type TalosRemediationTemplateResource struct {
	// spec is the spec of every TalosRemediation that is made.
	// +required
	Spec TalosRemediationSpec `json:"spec"`
}

// TalosRemediationTemplate is what a MachineHealthCheck makes TalosRemediations from (spec.remediation.templateRef).
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=talosremediationtemplates,scope=Namespaced,categories={ichor,cluster-api}
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since it was made"
type TalosRemediationTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is what is made.
	// +required
	Spec TalosRemediationTemplateSpec `json:"spec,omitempty,omitzero"`
}

// TalosRemediationTemplateList is a list of TalosRemediationTemplates.
//
// +kubebuilder:object:root=true
type TalosRemediationTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TalosRemediationTemplate `json:"items"`
}

// TalosRemediation's Remediated condition and corresponding reasons.
const (
	// RemediatedCondition is True when the machine was rebooted; Cluster API judges whether that has helped, and deletes the TalosRemediation if
	// it has. It is Unknown until then, and False when the machine is left to its owner.
	RemediatedCondition = "Remediated"

	// RemediatedReason surfaces when the machine was rebooted and has come back.
	RemediatedReason = "Rebooted"

	// RemediatingReason surfaces, with status Unknown, while the operation that reboots the machine waits or goes on.
	RemediatingReason = "Rebooting"

	// RemediationPausedReason surfaces, with status Unknown, while the Cluster is paused.
	RemediationPausedReason = "Paused"

	// RemediationNotManagedReason surfaces when the machine is none of the hub's, or its Cluster is kept from the hub: nothing but its owner helps
	// it. With status Unknown the hub may come to know it.
	RemediationNotManagedReason = "NotManaged"

	// RemediationForbiddenReason surfaces when nobody has allowed the hub to reboot machines in the namespace because health checks ask for it.
	RemediationForbiddenReason = "Forbidden"

	// RemediationFailedReason surfaces when the operation that should have rebooted the machine failed, or was refused or deleted.
	RemediationFailedReason = "RebootFailed"

	// RemediationTimedOutReason surfaces when the machine was not healthy in time.
	RemediationTimedOutReason = "TimedOut"
)
