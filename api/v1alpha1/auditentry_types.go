// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AuditReporter says who wrote an audit entry.
// +kubebuilder:validation:Enum=Hub;Client
type AuditReporter string

const (
	// AuditByHub is an entry that a hub wrote, of a call that it served.
	AuditByHub AuditReporter = "Hub"

	// AuditByClient is an entry that the user's own client wrote, which worked without a hub. It says what the client says.
	AuditByClient AuditReporter = "Client"
)

// AuditResult is what came of something that somebody asked for.
// +kubebuilder:validation:Enum=Done;Denied;Refused;Failed
type AuditResult string

const (
	// AuditDone was done, or there was nothing to do.
	AuditDone AuditResult = "Done"

	// AuditDenied was not allowed to who asked.
	AuditDenied AuditResult = "Denied"

	// AuditRefused had something against it: a gate, a value that is not allowed, an object that is not there.
	AuditRefused AuditResult = "Refused"

	// AuditFailed failed, perhaps half-way.
	AuditFailed AuditResult = "Failed"
)

// AuditEffect says whether a call changed something.
// +kubebuilder:validation:Enum=Changed;Unchanged
type AuditEffect string

const (
	// AuditChanged is a call that changed something, wholly or in part.
	AuditChanged AuditEffect = "Changed"

	// AuditUnchanged is a call of which it is not known that it changed anything: it was denied, it failed, or there was nothing to do.
	AuditUnchanged AuditEffect = "Unchanged"
)

// AuditEntrySpec is what somebody did, or tried to do.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an audit entry does not change"
type AuditEntrySpec struct {
	// time is when it was over.
	// +required
	Time metav1.MicroTime `json:"time,omitempty,omitzero"`

	// user is who asked, as the management API knows them.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	User string `json:"user,omitempty"`

	// groups are those of the user.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Groups []string `json:"groups,omitempty"`

	// reporter is who wrote this down.
	// +required
	Reporter AuditReporter `json:"reporter,omitempty"`

	// action is the procedure that was called, such as CreateOperation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Action string `json:"action,omitempty"`

	// clusterName is the Cluster that it was about, in this namespace.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClusterName string `json:"clusterName,omitempty"`

	// operationName is the TalosOperation that it was about, or that was created.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	OperationName string `json:"operationName,omitempty"`

	// machineName is the TalosMachine that it was about.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	MachineName string `json:"machineName,omitempty"`

	// detail says in words what was asked for.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Detail string `json:"detail,omitempty"`

	// source is the address that the request came from.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Source string `json:"source,omitempty"`

	// client is what sent the request, as it says itself.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Client string `json:"client,omitempty"`

	// result is what came of it.
	// +required
	Result AuditResult `json:"result,omitempty"`

	// effect says whether anything was changed. Entries of what changed nothing have less room than others.
	// +optional
	Effect AuditEffect `json:"effect,omitempty"`

	// message says why it was not done, or that there was nothing to do.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// overrides are the gates that were to be bypassed, and why.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Overrides []GateOverride `json:"overrides,omitempty"`
}

// AuditEntry is something that somebody did with the hub, or tried to do. Its name begins with its time, so that a list is in order. It is
// written once, and removed when it is too old or one of too many.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=auditentries,scope=Namespaced,singular=auditentry
// +kubebuilder:printcolumn:name="User",type="string",JSONPath=".spec.user",description="Who asked"
// +kubebuilder:printcolumn:name="Action",type="string",JSONPath=".spec.action",description="What for"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".spec.clusterName",description="Target"
// +kubebuilder:printcolumn:name="Result",type="string",JSONPath=".spec.result",description="What came of it"
// +kubebuilder:printcolumn:name="Operation",type="string",JSONPath=".spec.operationName",description="Operation",priority=10
// +kubebuilder:printcolumn:name="Machine",type="string",JSONPath=".spec.machineName",description="Machine",priority=10
// +kubebuilder:printcolumn:name="Source",type="string",JSONPath=".spec.source",description="Where it came from",priority=10
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".spec.message",description="Why it was not done",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since it was written"
type AuditEntry struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is what happened.
	// +required
	Spec AuditEntrySpec `json:"spec,omitempty,omitzero"`
}

// AuditEntryList is a list of AuditEntries.
//
// +kubebuilder:object:root=true
type AuditEntryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AuditEntry `json:"items"`
}
