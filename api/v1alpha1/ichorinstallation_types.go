// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IchorInstallationName is the name of every IchorInstallation: a hub has one, in its own namespace.
const IchorInstallationName = "ichor-hub"

// InstallationMode is how a hub runs.
// +kubebuilder:validation:Enum=Kubernetes;Standalone
type InstallationMode string

const (
	// KubernetesInstallation is a Deployment on the management cluster.
	KubernetesInstallation InstallationMode = "Kubernetes"

	// StandaloneInstallation is a process that brings its own management API.
	StandaloneInstallation InstallationMode = "Standalone"
)

// IchorInstallationSpec is what the hub shall be.
type IchorInstallationSpec struct {
	// version is the desired version of the hub, such as v0.2.0. An operation of kind ichor brings the hub to it; nothing happens without one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+$`
	Version string `json:"version,omitempty"`
}

// IchorInstallationStatus is what the hub is.
type IchorInstallationStatus struct {
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

	// version is the version of the hub that works: of the replica that leads.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`

	// mode is how the hub runs.
	// +optional
	Mode InstallationMode `json:"mode,omitempty"`

	// image is what the Deployment runs.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`
}

// IchorInstallation is the hub itself, in its own namespace. The hub makes it, and writes down what it is; spec.version says what it shall be.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=ichorinstallations,scope=Namespaced,categories=ichor
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'ichor-hub'",message="an IchorInstallation has the name ichor-hub: a hub has one, in its own namespace"
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".status.version",description="Version of the hub that works"
// +kubebuilder:printcolumn:name="Desired",type="string",JSONPath=".spec.version",description="Desired version"
// +kubebuilder:printcolumn:name="Up to date",type="string",JSONPath=".status.conditions[?(@.type=='UpToDate')].status",description="Whether the hub is what is desired"
// +kubebuilder:printcolumn:name="Upgradable",type="string",JSONPath=".status.conditions[?(@.type=='Upgradable')].reason",description="Whether an operation can upgrade the hub, or why not"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type IchorInstallation struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is what the hub shall be.
	// +optional
	Spec IchorInstallationSpec `json:"spec,omitempty,omitzero"`

	// status is what the hub is.
	// +optional
	Status IchorInstallationStatus `json:"status,omitempty,omitzero"`
}

// IchorInstallationList is a list of IchorInstallations.
//
// +kubebuilder:object:root=true
type IchorInstallationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IchorInstallation `json:"items"`
}

// GetConditions returns the conditions of the IchorInstallation.
func (i *IchorInstallation) GetConditions() []metav1.Condition { return i.Status.Conditions }

// SetConditions replaces the conditions of the IchorInstallation.
func (i *IchorInstallation) SetConditions(conditions []metav1.Condition) {
	i.Status.Conditions = conditions
}

// IchorInstallation's UpToDate condition and corresponding reasons.
const (
	// UpToDateCondition is True when the hub is what spec.version says.
	UpToDateCondition = "UpToDate"

	// UpToDateReason surfaces when the hub runs the desired version.
	UpToDateReason = "UpToDate"

	// NoVersionDesiredReason surfaces, with status True, when spec.version says nothing.
	NoVersionDesiredReason = "NoVersionDesired"

	// VersionDiffersReason surfaces when the hub runs another version than is desired; the message says what brings it there.
	VersionDiffersReason = "VersionDiffers"
)

// IchorInstallation's Upgradable condition and corresponding reasons.
const (
	// UpgradableCondition is True when an operation of kind ichor can upgrade the hub. Otherwise the message says who can, and how.
	UpgradableCondition = "Upgradable"

	// UpgradableReason surfaces when the hub runs in a Deployment that nothing else keeps as it is.
	UpgradableReason = "Upgradable"

	// HubStandaloneReason surfaces when the hub is a process that brings its own management API.
	HubStandaloneReason = "Standalone"

	// HubTrackedReason surfaces when Argo CD, Flux, Helm or clusterctl keeps the Deployment as it was described elsewhere.
	HubTrackedReason = "Tracked"

	// HubImagePinnedReason surfaces when the Deployment names its image by a digest: which one another version has nobody knows here.
	HubImagePinnedReason = "ImagePinned"

	// HubDeploymentMissingReason surfaces when there is no Deployment of the hub's name, with a container of the name manager, in its namespace.
	HubDeploymentMissingReason = "DeploymentMissing"
)
