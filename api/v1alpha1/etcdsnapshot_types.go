// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SnapshotReason says why a snapshot is taken.
// +kubebuilder:validation:Enum=Manual;Scheduled;Upgrade;Shutdown;Rotation;Restore
type SnapshotReason string

const (
	// SnapshotManual was asked for by a person. Only people delete it.
	SnapshotManual SnapshotReason = "Manual"

	// SnapshotScheduled was asked for by spec.etcdBackup.schedule of the TalosCluster.
	SnapshotScheduled SnapshotReason = "Scheduled"

	// SnapshotUpgrade was asked for by an operation that upgrades the target.
	SnapshotUpgrade SnapshotReason = "Upgrade"

	// SnapshotShutdown was asked for by an operation that stops the target.
	SnapshotShutdown SnapshotReason = "Shutdown"

	// SnapshotRotation was asked for by an operation that rotates the key which encrypts Secrets.
	SnapshotRotation SnapshotReason = "Rotation"

	// SnapshotRestore was asked for by an operation that replaces the etcd of the target by an older one.
	SnapshotRestore SnapshotReason = "Restore"
)

// SnapshotDeletionPolicy says what becomes of the stored snapshot when its object is deleted.
// +kubebuilder:validation:Enum=Delete;Retain
type SnapshotDeletionPolicy string

const (
	// SnapshotDelete deletes it from the storage.
	SnapshotDelete SnapshotDeletionPolicy = "Delete"

	// SnapshotRetain leaves it there.
	SnapshotRetain SnapshotDeletionPolicy = "Retain"
)

// SnapshotLocation says where a snapshot is stored.
type SnapshotLocation struct {
	// bucketURL is the bucket, as spec.etcdBackup.bucketURL of the TalosCluster was.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	BucketURL string `json:"bucketURL,omitempty"`

	// key is the name of the object in the bucket, below the path of bucketURL.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Key string `json:"key,omitempty"`

	// credentialsSecretName is the Secret that opened the bucket.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	CredentialsSecretName string `json:"credentialsSecretName,omitempty"`

	// sizeBytes is the size of the stored object, which is that of the snapshot unless it is encrypted.
	// +required
	// +kubebuilder:validation:Minimum=1
	SizeBytes int64 `json:"sizeBytes,omitempty"`

	// hash is the SHA-256 of the stored object, in hexadecimal.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash,omitempty"`
}

// SnapshotEncryption says how a snapshot is encrypted.
type SnapshotEncryption struct {
	// recipient is the public key of age that it is encrypted for. It names the private key that opens it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Recipient string `json:"recipient,omitempty"`

	// keySecretName is the Secret that the key was in.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	KeySecretName string `json:"keySecretName,omitempty"`
}

// SnapshotEncryptionKey is a key that encrypts Secrets in etcd.
type SnapshotEncryptionKey struct {
	// provider is how it encrypts, such as secretbox or aescbc.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Provider string `json:"provider,omitempty"`

	// name is what the configuration calls the key. What it has encrypted begins with that name, and is read by no key of another one. Unset
	// where a provider has no keys of its own, and in snapshots of older hubs.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// fingerprint is that of the key; of the whole configuration of the provider where it has no key of its own, as kms has none.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	Fingerprint string `json:"fingerprint,omitempty"`
}

// SnapshotKeys are fingerprints of the keys without which the data of a snapshot is of no use. Each is a SHA-256 in hexadecimal, and tells
// nothing of its key.
type SnapshotKeys struct {
	// kubernetesCA is the fingerprint of the certificate of the Kubernetes CA.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	KubernetesCA string `json:"kubernetesCA,omitempty"`

	// serviceAccount is the fingerprint of the public half of the key that signs the tokens of service accounts.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	ServiceAccount string `json:"serviceAccount,omitempty"`

	// encryption are the keys that encrypt Secrets in etcd, in the order of the configuration: the first one wrote what was written last.
	// Empty if nothing is encrypted.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Encryption []SnapshotEncryptionKey `json:"encryption,omitempty"`
}

// SnapshotContents are the facts of a snapshot that has been taken: what a restore is judged by.
type SnapshotContents struct {
	// takenTime is when etcd began to send it. What was written later is not in it.
	// +required
	TakenTime metav1.Time `json:"takenTime,omitempty,omitzero"`

	// location says where it is stored.
	// +required
	Location SnapshotLocation `json:"location,omitempty,omitzero"`

	// encryption says how it is encrypted; unset if it is not.
	// +optional
	Encryption *SnapshotEncryption `json:"encryption,omitempty"`

	// sizeBytes is the size of the snapshot.
	// +required
	// +kubebuilder:validation:Minimum=1
	SizeBytes int64 `json:"sizeBytes,omitempty"`

	// hash is the SHA-256 of the snapshot, in hexadecimal.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash,omitempty"`

	// revision is the revision of etcd that it holds.
	// +required
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision,omitempty"`

	// machine is the TalosMachine whose etcd member sent it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`

	// members is how many members etcd had.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Members int32 `json:"members,omitempty"`

	// etcdVersion is the version of the member that sent it. An older minor version cannot read it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	EtcdVersion string `json:"etcdVersion,omitempty"`

	// talosVersion is the version of Talos on that machine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	TalosVersion string `json:"talosVersion,omitempty"`

	// kubernetesVersion is the version of the target's API server, as far as it was known.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// keys are fingerprints of the keys that a restored cluster must have.
	// +optional
	Keys SnapshotKeys `json:"keys,omitempty,omitzero"`
}

// EtcdSnapshotSpec is a snapshot that is asked for, and the facts of it once it has been taken. They are in the spec since a move to another
// management cluster drops the status.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.contents) || (has(self.contents) && self.contents == oldSelf.contents)",message="the contents of a snapshot do not change"
// +kubebuilder:validation:XValidation:rule="self.reason != 'Scheduled' || has(self.scheduledTime)",message="a snapshot with reason Scheduled has a scheduledTime"
type EtcdSnapshotSpec struct {
	// clusterName is the Cluster whose etcd is in it, in this namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the cluster of a snapshot does not change"
	ClusterName string `json:"clusterName,omitempty"`

	// reason says why it is taken.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the reason of a snapshot does not change"
	Reason SnapshotReason `json:"reason,omitempty"`

	// requester is who asked for it: a user, or an operation as namespace/name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the requester of a snapshot does not change"
	Requester string `json:"requester,omitempty"`

	// scheduledTime is the time of the schedule that it is taken for.
	// +optional
	ScheduledTime metav1.Time `json:"scheduledTime,omitempty,omitzero"`

	// deletionPolicy says what becomes of the stored snapshot when this object is deleted; by default it is deleted, too. It stays in any case
	// when the object goes because its cluster does.
	// +optional
	DeletionPolicy SnapshotDeletionPolicy `json:"deletionPolicy,omitempty"`

	// contents are the facts of the snapshot. The hub writes them once, when the snapshot is stored and has been read back.
	// +optional
	Contents *SnapshotContents `json:"contents,omitempty"`
}

// EtcdSnapshotStatus is how far a snapshot has come.
type EtcdSnapshotStatus struct {
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

	// attempts counts the attempts that failed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempts int32 `json:"attempts,omitempty"`
}

// EtcdSnapshot is a snapshot of the etcd of a target, stored outside of it. Making the object asks for the snapshot.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=etcdsnapshots,scope=Namespaced,shortName=es,categories=ichor
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".spec.clusterName",description="Cluster whose etcd is in it"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".spec.reason",description="Why it is taken"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether it is stored and was read back"
// +kubebuilder:printcolumn:name="Taken",type="date",JSONPath=".spec.contents.takenTime",description="Time since it was taken"
// +kubebuilder:printcolumn:name="Size",type="integer",JSONPath=".spec.contents.sizeBytes",description="Size in bytes"
// +kubebuilder:printcolumn:name="Revision",type="integer",JSONPath=".spec.contents.revision",description="Revision of etcd",priority=10
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="Why it is not ready",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since it was asked for"
type EtcdSnapshot struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is what is asked for, and the facts once it is taken.
	// +required
	Spec EtcdSnapshotSpec `json:"spec,omitempty,omitzero"`

	// status is how far it has come.
	// +optional
	Status EtcdSnapshotStatus `json:"status,omitempty,omitzero"`
}

// EtcdSnapshotList is a list of EtcdSnapshots.
//
// +kubebuilder:object:root=true
type EtcdSnapshotList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EtcdSnapshot `json:"items"`
}

// GetConditions returns the conditions of the EtcdSnapshot.
func (s *EtcdSnapshot) GetConditions() []metav1.Condition { return s.Status.Conditions }

// SetConditions replaces the conditions of the EtcdSnapshot.
func (s *EtcdSnapshot) SetConditions(conditions []metav1.Condition) {
	s.Status.Conditions = conditions
}

// Good says whether the snapshot is one to restore from: it has been read back, and nobody deletes it.
func (s *EtcdSnapshot) Good() bool { return s.Spec.Contents != nil && s.DeletionTimestamp.IsZero() }

// RawCopy says whether what is stored is a database as it lay on a disk: a snapshot that etcd has sent ends with a SHA-256.
func (c *SnapshotContents) RawCopy() bool { return c.SizeBytes%databaseSector == 0 }

// databaseSector is what the size of a database is a multiple of.
const databaseSector = 512

// Retained says whether the stored snapshot stays when the object is deleted.
func (s *EtcdSnapshot) Retained() bool { return s.Spec.DeletionPolicy == SnapshotRetain }
