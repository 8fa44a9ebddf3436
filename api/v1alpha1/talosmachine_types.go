// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MachineRole is what a machine is in its cluster.
// +kubebuilder:validation:Enum=ControlPlane;Worker
type MachineRole string

const (
	// ControlPlaneRole is a machine with an etcd member and the components of the control plane.
	ControlPlaneRole MachineRole = "ControlPlane"

	// WorkerRole is any other machine.
	WorkerRole MachineRole = "Worker"
)

// Approval says whether the hub may touch a machine.
// +kubebuilder:validation:Enum=Approved;Pending
type Approval string

const (
	// Approved machines are worked on.
	Approved Approval = "Approved"

	// ApprovalPending machines are shown and never touched.
	ApprovalPending Approval = "Pending"
)

// RemovalSpec is an explicit request to remove a machine from its cluster.
type RemovalSpec struct {
	// reason is a note for people and the audit.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// JoinSpec is an explicit request to make a machine in maintenance mode one of its cluster.
type JoinSpec struct {
	// fingerprint is that of the certificate which the machine serves in maintenance mode: the SHA-256 of its public key, in base64. Talos
	// writes it on the console. The certificate is another one after each boot. The secrets of the cluster are given to no other machine.
	// +required
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{43}=$`
	// +kubebuilder:validation:MinLength=44
	// +kubebuilder:validation:MaxLength=44
	Fingerprint string `json:"fingerprint,omitempty"`

	// installDisk is the disk that Talos is installed on, such as /dev/sda. By default it is the only disk that the machine has.
	// +optional
	// +kubebuilder:validation:Pattern=`^/dev/[A-Za-z0-9/._:-]+$`
	// +kubebuilder:validation:MinLength=6
	// +kubebuilder:validation:MaxLength=128
	InstallDisk string `json:"installDisk,omitempty"`

	// hostname is what the machine is called, and with it its Node. By default Talos makes one of the hardware's identity.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Hostname string `json:"hostname,omitempty"`
}

// TalosMachineSpec says which node this is and what the hub may do with it.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.uuid) || (has(self.uuid) && self.uuid == oldSelf.uuid)",message="uuid is immutable once it is set: another machine is another TalosMachine"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.join) || has(self.join)",message="join stays once it is set: without it a machine that has not joined would count as one of its cluster; to give it up, delete the TalosMachine"
type TalosMachineSpec struct {
	// clusterName is the Cluster to which the machine belongs.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterName is immutable"
	ClusterName string `json:"clusterName,omitempty"`

	// role is what the machine is in its cluster.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="role is immutable"
	Role MachineRole `json:"role,omitempty"`

	// address is the IP address at which the Talos API of the machine is addressed.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Address string `json:"address,omitempty"`

	// uuid is the identity of the hardware; it is compared before every destructive call.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UUID string `json:"uuid,omitempty"`

	// approval says whether the hub may touch the machine.
	// +optional
	Approval Approval `json:"approval,omitempty"`

	// join asks that the machine, which waits in maintenance mode, becomes one of its cluster. An operation of kind node with action Join does
	// that, once the machine is approved. It counts for nothing as soon as the machine has joined, and stays.
	// +optional
	Join *JoinSpec `json:"join,omitempty"`

	// removal asks that the machine is removed from its cluster. An operation of kind node with action Remove does that, and deletes this object
	// in the end. Deleting this object removes nothing.
	// +optional
	Removal *RemovalSpec `json:"removal,omitempty"`
}

// TalosMachineStatus is the observed state of a machine.
type TalosMachineStatus struct {
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

	// nodeName is the name of the machine's Node.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// machineName is the Machine of Cluster API that is this machine; empty where Cluster API does not manage the machines of the target.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	MachineName string `json:"machineName,omitempty"`

	// etcdMemberID is the ID of the machine's etcd member, in hexadecimal.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	EtcdMemberID string `json:"etcdMemberID,omitempty"`

	// talosVersion is the version of Talos that runs.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	TalosVersion string `json:"talosVersion,omitempty"`

	// kubeletVersion is the version of the kubelet that runs.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	KubeletVersion string `json:"kubeletVersion,omitempty"`

	// schematicID is the Image Factory schematic that runs.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	SchematicID string `json:"schematicID,omitempty"`

	// platform is the Talos platform, such as metal.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Platform string `json:"platform,omitempty"`

	// secureBoot says whether the machine booted with Secure Boot.
	// +optional
	SecureBoot SecureBootState `json:"secureBoot,omitempty"`

	// bootID changes with every boot.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`

	// config is how the machine config that the machine has stands to the one that the spec of its cluster asks for.
	// +optional
	Config *MachineConfigStatus `json:"config,omitempty"`
}

// ConfigEffect is what it takes to bring a machine config in force.
// +kubebuilder:validation:Enum=None;Live;Reboot;Upgrade
type ConfigEffect string

const (
	// ConfigEffectNone means that nothing differs.
	ConfigEffectNone ConfigEffect = "None"

	// ConfigEffectLive changes are in force as soon as they are applied.
	ConfigEffectLive ConfigEffect = "Live"

	// ConfigEffectReboot changes need a reboot.
	ConfigEffectReboot ConfigEffect = "Reboot"

	// ConfigEffectUpgrade changes take effect when Talos is next installed or upgraded.
	ConfigEffectUpgrade ConfigEffect = "Upgrade"
)

// MachineConfigStatus is how the machine config that a machine has stands to the one that is asked for.
type MachineConfigStatus struct {
	// effect is what it takes to bring in force what is asked for. It is missing while that is not known.
	// +optional
	Effect ConfigEffect `json:"effect,omitempty"`

	// specHash is the hash of the patches that this speaks of: SHA-256, in hexadecimal. While spec.machineConfig of the TalosCluster has
	// another one, nobody has looked at it yet.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	SpecHash string `json:"specHash,omitempty"`

	// desiredHash is the hash of what is asked for: SHA-256, in hexadecimal.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	DesiredHash string `json:"desiredHash,omitempty"`

	// activeHash is the hash of what is in force.
	// +optional
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	ActiveHash string `json:"activeHash,omitempty"`

	// diff is what differs, unified and with secrets masked; its end is cut where it is long.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	Diff string `json:"diff,omitempty"`

	// pending says that something else waits on the machine: a config that somebody tries, or has staged.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Pending string `json:"pending,omitempty"`

	// trouble says why nothing is known, or why what is asked for cannot be rendered.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Trouble string `json:"trouble,omitempty"`
}

// SecureBootState says whether Secure Boot is on.
// +kubebuilder:validation:Enum=Enabled;Disabled
type SecureBootState string

const (
	// SecureBootEnabled machines boot signed images only.
	SecureBootEnabled SecureBootState = "Enabled"

	// SecureBootDisabled machines boot any image.
	SecureBootDisabled SecureBootState = "Disabled"
)

// TalosMachine is one node of a target. Deleting it makes the hub forget the machine and leaves the machine as it is.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=talosmachines,scope=Namespaced,shortName=tm,categories=cluster-api;ichor
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".spec.clusterName",description="Cluster to which it belongs"
// +kubebuilder:printcolumn:name="Node",type="string",JSONPath=".status.nodeName",description="Name of its Node"
// +kubebuilder:printcolumn:name="Role",type="string",JSONPath=".spec.role",description="Role in its cluster"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether it works"
// +kubebuilder:printcolumn:name="Talos",type="string",JSONPath=".status.talosVersion",description="Version of Talos that runs"
// +kubebuilder:printcolumn:name="Kubelet",type="string",JSONPath=".status.kubeletVersion",description="Version of the kubelet that runs"
// +kubebuilder:printcolumn:name="Address",type="string",JSONPath=".spec.address",description="Address of its Talos API",priority=10
// +kubebuilder:printcolumn:name="Approval",type="string",JSONPath=".spec.approval",description="Whether the hub may touch it",priority=10
// +kubebuilder:printcolumn:name="Removal",type="string",JSONPath=".spec.removal.reason",description="Why it is asked to be removed",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type TalosMachine struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec says which node this is and what the hub may do with it.
	// +required
	Spec TalosMachineSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state of the machine.
	// +optional
	Status TalosMachineStatus `json:"status,omitempty,omitzero"`
}

// TalosMachineList is a list of TalosMachines.
//
// +kubebuilder:object:root=true
type TalosMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TalosMachine `json:"items"`
}

// GetConditions returns the conditions of the TalosMachine.
func (m *TalosMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions replaces the conditions of the TalosMachine.
func (m *TalosMachine) SetConditions(conditions []metav1.Condition) {
	m.Status.Conditions = conditions
}

// Held says whether rolling operations skip the machine.
func (m *TalosMachine) Held() bool {
	_, held := m.Annotations[UpgradeHoldAnnotation]
	return held
}

// Joining says whether the machine is to become one of its cluster and is none yet.
func (m *TalosMachine) Joining() bool {
	return m.Spec.Join != nil && m.Annotations[JoinedAtAnnotation] == ""
}

// HalfJoined says whether the machine was given, or may have been given, the secrets of its cluster, and does not count as one of it: nothing
// that goes to every machine of the cluster goes to it.
func (m *TalosMachine) HalfJoined() bool {
	return m.Joining() && m.Annotations[ProvisionedAtAnnotation] != ""
}

// Stranger says whether the machine seems to be one of the cluster, and nobody has approved it. One that has yet to join is none.
func (m *TalosMachine) Stranger() bool { return m.Spec.Approval != Approved && !m.Joining() }

// Works says whether the hub may touch the machine as one of its cluster.
func (m *TalosMachine) Works() bool { return m.Spec.Approval == Approved && !m.Joining() }

// ApprovedMachines are those of the machines that the hub may touch and that belong to the cluster by now.
func ApprovedMachines(machines []TalosMachine) []*TalosMachine {
	var approved []*TalosMachine
	for i := range machines {
		if machines[i].Works() {
			approved = append(approved, &machines[i])
		}
	}
	return approved
}
