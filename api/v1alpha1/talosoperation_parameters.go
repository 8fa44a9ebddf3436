// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// NodeAction is one action on one machine.
// +kubebuilder:validation:Enum=Reboot;Shutdown;RestartService;EtcdDefrag;EtcdForfeitLeadership;Reset
type NodeAction string

const (
	// RebootAction drains and reboots the machine.
	RebootAction NodeAction = "Reboot"

	// ShutdownAction drains the machine and powers it off.
	ShutdownAction NodeAction = "Shutdown"

	// RestartServiceAction restarts the kubelet or an extension's service.
	RestartServiceAction NodeAction = "RestartService"

	// EtcdDefragAction defragments the machine's etcd member.
	EtcdDefragAction NodeAction = "EtcdDefrag"

	// EtcdForfeitLeadershipAction moves etcd's leadership to another member.
	EtcdForfeitLeadershipAction NodeAction = "EtcdForfeitLeadership"

	// ResetAction wipes the machine.
	ResetAction NodeAction = "Reset"
)

// RebootMode is how a machine reboots.
// +kubebuilder:validation:Enum=Default;PowerCycle;Force
type RebootMode string

const (
	// RebootModeDefault uses kexec where the machine can.
	RebootModeDefault RebootMode = "Default"

	// RebootModePowerCycle goes through the firmware.
	RebootModePowerCycle RebootMode = "PowerCycle"

	// RebootModeForce skips the graceful stop of services.
	RebootModeForce RebootMode = "Force"
)

// NodeParameters are the parameters of kind node.
// +kubebuilder:validation:XValidation:rule="(self.action == 'RestartService') == has(self.service)",message="service goes with action RestartService, and only with it"
// +kubebuilder:validation:XValidation:rule="!has(self.rebootMode) || self.action == 'Reboot'",message="rebootMode goes with action Reboot only"
type NodeParameters struct {
	// machine is the name of the TalosMachine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`

	// action is what is done.
	// +required
	Action NodeAction `json:"action,omitempty"`

	// rebootMode is how the machine reboots; by default Default.
	// +optional
	RebootMode RebootMode `json:"rebootMode,omitempty"`

	// service is the service to restart: kubelet, or ext- and the name of an extension's service.
	// +optional
	// +kubebuilder:validation:Pattern=`^(kubelet|ext-[a-z0-9.-]+)$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Service string `json:"service,omitempty"`
}

// ClusterPowerAction says which half of a planned shutdown is done.
// +kubebuilder:validation:Enum=Stop;Start
type ClusterPowerAction string

const (
	// ClusterStop stops every machine.
	ClusterStop ClusterPowerAction = "Stop"

	// ClusterStart waits for the machines, which people power on, and takes them back into service.
	ClusterStart ClusterPowerAction = "Start"
)

// ShutdownParameters are the parameters of kind shutdown.
type ShutdownParameters struct {
	// action says which half is done.
	// +required
	Action ClusterPowerAction `json:"action,omitempty"`
}

// CAAuthority is a certificate authority of a cluster.
// +kubebuilder:validation:Enum=Talos;Kubernetes
type CAAuthority string

const (
	// TalosCA signs the certificates of the Talos API.
	TalosCA CAAuthority = "Talos"

	// KubernetesCA signs the certificates of the Kubernetes API.
	KubernetesCA CAAuthority = "Kubernetes"
)

// CARotationParameters are the parameters of kind ca-rotation.
type CARotationParameters struct {
	// authorities are rotated one after the other, in this order.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Authorities []CAAuthority `json:"authorities,omitempty"`
}

// RotatedKey is a key of a cluster.
// +kubebuilder:validation:Enum=ServiceAccount;Secretbox
type RotatedKey string

const (
	// ServiceAccountKey signs the tokens of service accounts.
	ServiceAccountKey RotatedKey = "ServiceAccount"

	// SecretboxKey encrypts Secrets in etcd.
	SecretboxKey RotatedKey = "Secretbox"
)

// KeyRotationParameters are the parameters of kind key-rotation.
type KeyRotationParameters struct {
	// keys are rotated one after the other, in this order.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Keys []RotatedKey `json:"keys,omitempty"`
}

// EtcdRestoreParameters are the parameters of kind etcd-restore.
type EtcdRestoreParameters struct {
	// snapshotName is the EtcdSnapshot to restore.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SnapshotName string `json:"snapshotName,omitempty"`
}

// ConfigParameters are the parameters of kind config.
type ConfigParameters struct {
	// machines limits the roll-out to these TalosMachines; none means all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Machines []string `json:"machines,omitempty"`
}

// CNIAction says what is done to the cluster network.
// +kubebuilder:validation:Enum=Upgrade;SwitchKubeProxy
type CNIAction string

const (
	// CNIUpgrade brings Cilium to the version in the spec.
	CNIUpgrade CNIAction = "Upgrade"

	// CNISwitchKubeProxy brings kube-proxy to the mode in the spec.
	CNISwitchKubeProxy CNIAction = "SwitchKubeProxy"
)

// CNIParameters are the parameters of kind cni.
type CNIParameters struct {
	// action says what is done.
	// +required
	Action CNIAction `json:"action,omitempty"`
}
