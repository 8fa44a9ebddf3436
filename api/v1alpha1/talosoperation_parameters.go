// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "slices"

// NodeAction is one action on one machine.
// +kubebuilder:validation:Enum=Reboot;Shutdown;RestartService;EtcdDefrag;EtcdForfeitLeadership;Reset;Join;Remove
type NodeAction string

const (
	// RebootAction drains and reboots the machine.
	RebootAction NodeAction = "Reboot"

	// ShutdownAction drains the machine and powers it off.
	ShutdownAction NodeAction = "Shutdown"

	// RestartServiceAction restarts the kubelet or an extension's service.
	RestartServiceAction NodeAction = "RestartService"

	// EtcdDefragAction defragments the machine's etcd member or, where no machine is named, every member, one after the other and the
	// leader last.
	EtcdDefragAction NodeAction = "EtcdDefrag"

	// EtcdForfeitLeadershipAction moves etcd's leadership to another member.
	EtcdForfeitLeadershipAction NodeAction = "EtcdForfeitLeadership"

	// ResetAction wipes the machine.
	ResetAction NodeAction = "Reset"

	// JoinAction makes a machine in maintenance mode one of the cluster, as spec.join of its TalosMachine asks.
	JoinAction NodeAction = "Join"

	// RemoveAction takes the machine out of its cluster for good, as spec.removal of its TalosMachine asks: its etcd member, its Node and, in the
	// end, its TalosMachine.
	RemoveAction NodeAction = "Remove"
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

// ResetManner is how a machine leaves its cluster when it is reset.
// +kubebuilder:validation:Enum=Graceful;Forced
type ResetManner string

const (
	// ResetGraceful drains the machine and has its etcd member leave before anything is wiped.
	ResetGraceful ResetManner = "Graceful"

	// ResetForced wipes the machine whatever it holds. It is for machines that cannot leave.
	ResetForced ResetManner = "Forced"
)

// WipeTarget is what a reset wipes.
// +kubebuilder:validation:Enum=System;UserVolumes
type WipeTarget string

const (
	// WipeSystem wipes what Talos keeps on the system disk but the operating system itself, so that the machine boots into maintenance mode.
	WipeSystem WipeTarget = "System"

	// WipeUserVolumes wipes the disks of user volumes.
	WipeUserVolumes WipeTarget = "UserVolumes"
)

// AfterReset is what a machine does once it is wiped.
// +kubebuilder:validation:Enum=Reboot;PowerOff
type AfterReset string

const (
	// AfterResetReboot boots into maintenance mode.
	AfterResetReboot AfterReset = "Reboot"

	// AfterResetPowerOff powers the machine off.
	AfterResetPowerOff AfterReset = "PowerOff"
)

// ResetParameters are the parameters of action Reset.
type ResetParameters struct {
	// manner is how the machine leaves; by default Graceful.
	// +optional
	Manner ResetManner `json:"manner,omitempty"`

	// wipe is what is wiped; by default System.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Wipe []WipeTarget `json:"wipe,omitempty"`

	// after is what the machine does once it is wiped; by default Reboot.
	// +optional
	After AfterReset `json:"after,omitempty"`
}

// RemoveManner is how a machine leaves its cluster for good.
// +kubebuilder:validation:Enum=Graceful;Dead
type RemoveManner string

const (
	// RemoveGraceful drains the machine, has its etcd member leave and wipes it, before its Node goes.
	RemoveGraceful RemoveManner = "Graceful"

	// RemoveDead is the explicit word that the machine is lost: it is asked for nothing, and another control plane removes its etcd member. A
	// machine that shows a sign of life is not removed so.
	RemoveDead RemoveManner = "Dead"
)

// RemoveParameters are the parameters of action Remove.
type RemoveParameters struct {
	// manner is how the machine leaves; by default Graceful.
	// +optional
	Manner RemoveManner `json:"manner,omitempty"`

	// reason is a note for people and the audit. It outlives the one in spec.removal, which goes with the TalosMachine.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// EtcdAlarms is what becomes of the alarms of etcd.
// +kubebuilder:validation:Enum=Keep;Disarm
type EtcdAlarms string

const (
	// EtcdAlarmsKeep leaves alarms as they are.
	EtcdAlarmsKeep EtcdAlarms = "Keep"

	// EtcdAlarmsDisarm disarms the alarm about space once every member has been defragmented.
	EtcdAlarmsDisarm EtcdAlarms = "Disarm"
)

// NodeParameters are the parameters of kind node.
// +kubebuilder:validation:XValidation:rule="has(self.machine) || self.action == 'EtcdDefrag'",message="machine is required, but for action EtcdDefrag"
// +kubebuilder:validation:XValidation:rule="!has(self.reset) || self.action == 'Reset'",message="reset goes with action Reset only"
// +kubebuilder:validation:XValidation:rule="!has(self.remove) || self.action == 'Remove'",message="remove goes with action Remove only"
// +kubebuilder:validation:XValidation:rule="!has(self.alarms) || self.action == 'EtcdDefrag'",message="alarms goes with action EtcdDefrag only"
// +kubebuilder:validation:XValidation:rule="(self.action == 'RestartService') == has(self.service)",message="service goes with action RestartService, and only with it"
// +kubebuilder:validation:XValidation:rule="!has(self.rebootMode) || self.action == 'Reboot'",message="rebootMode goes with action Reboot only"
type NodeParameters struct {
	// machine is the name of the TalosMachine. Action EtcdDefrag without one takes every member of etcd.
	// +optional
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

	// reset says how the machine is reset.
	// +optional
	Reset *ResetParameters `json:"reset,omitempty"`

	// remove says how the machine is removed.
	// +optional
	Remove *RemoveParameters `json:"remove,omitempty"`

	// alarms is what becomes of etcd's alarms when it is defragmented; by default Keep.
	// +optional
	Alarms EtcdAlarms `json:"alarms,omitempty"`
}

// Wipes says whether the action wipes something. A machine that is removed leaves without what made it one of its cluster.
func (p *NodeParameters) Wipes(what WipeTarget) bool {
	switch {
	case p.Action == RemoveAction:
		return what == WipeSystem && !p.Dead()
	case p.Action != ResetAction:
		return false
	}
	if p.Reset == nil || len(p.Reset.Wipe) == 0 {
		return what == WipeSystem
	}
	return slices.Contains(p.Reset.Wipe, what)
}

// Forced says whether the machine is reset whatever it holds.
func (p *NodeParameters) Forced() bool {
	return p.Action == ResetAction && p.Reset != nil && p.Reset.Manner == ResetForced
}

// Dead says whether somebody has declared that the machine, which is to be removed, is lost.
func (p *NodeParameters) Dead() bool {
	return p.Action == RemoveAction && p.Remove != nil && p.Remove.Manner == RemoveDead
}

// PowersOff says whether the machine is off in the end.
func (p *NodeParameters) PowersOff() bool {
	return p.Action == ShutdownAction || p.Action == ResetAction && p.Reset != nil && p.Reset.After == AfterResetPowerOff
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

// ShutdownSnapshot is what is kept of etcd before a cluster stops.
// +kubebuilder:validation:Enum=Take;None
type ShutdownSnapshot string

const (
	// ShutdownSnapshotTake stores a snapshot of etcd first. It needs spec.etcdBackup of the TalosCluster.
	ShutdownSnapshotTake ShutdownSnapshot = "Take"

	// ShutdownSnapshotNone is the explicit word that nothing is kept.
	ShutdownSnapshotNone ShutdownSnapshot = "None"
)

// ShutdownParameters are the parameters of kind shutdown.
// +kubebuilder:validation:XValidation:rule="(self.action == 'Stop') == has(self.snapshot)",message="snapshot (Take or None) goes with action Stop, and only with it"
type ShutdownParameters struct {
	// action says which half is done.
	// +required
	Action ClusterPowerAction `json:"action,omitempty"`

	// snapshot says what is kept of etcd before the cluster stops.
	// +optional
	Snapshot ShutdownSnapshot `json:"snapshot,omitempty"`
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

// SafetySnapshot is what is kept of the etcd that a restore replaces.
// +kubebuilder:validation:Enum=Take;None
type SafetySnapshot string

const (
	// SafetySnapshotTake stores a snapshot of what runs before it is wiped. It needs spec.etcdBackup of the TalosCluster, and an etcd that
	// still answers.
	SafetySnapshotTake SafetySnapshot = "Take"

	// SafetySnapshotNone is the explicit word that nothing is kept.
	SafetySnapshotNone SafetySnapshot = "None"
)

// SnapshotIntegrity is what a stored snapshot has to prove before it is restored.
// +kubebuilder:validation:Enum=Hash;RawCopy
type SnapshotIntegrity string

const (
	// IntegrityHash takes only a snapshot that ends with the SHA-256 of its database.
	IntegrityHash SnapshotIntegrity = "Hash"

	// IntegrityRawCopy takes a database that was copied from a disk as well, which has no such hash: nobody can tell whether it is whole.
	IntegrityRawCopy SnapshotIntegrity = "RawCopy"
)

// EtcdRestoreParameters are the parameters of kind etcd-restore.
type EtcdRestoreParameters struct {
	// snapshotName is the EtcdSnapshot to restore.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SnapshotName string `json:"snapshotName,omitempty"`

	// safetySnapshot says what is kept of the etcd that is replaced. It has to be said.
	// +required
	SafetySnapshot SafetySnapshot `json:"safetySnapshot,omitempty"`

	// integrity is what the stored snapshot has to prove; by default Hash.
	// +optional
	Integrity SnapshotIntegrity `json:"integrity,omitempty"`
}

// TakesRawCopies says whether a database without a hash may be restored.
func (p *EtcdRestoreParameters) TakesRawCopies() bool { return p.Integrity == IntegrityRawCopy }

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
