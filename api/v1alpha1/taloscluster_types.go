// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KubeProxyMode says who routes the traffic of Services.
// +kubebuilder:validation:Enum=Enabled;Replaced
type KubeProxyMode string

const (
	// KubeProxyEnabled keeps kube-proxy.
	KubeProxyEnabled KubeProxyMode = "Enabled"

	// KubeProxyReplaced lets Cilium route Services; kube-proxy is off.
	KubeProxyReplaced KubeProxyMode = "Replaced"
)

// APIEndpoint is an address of a Kubernetes API server.
type APIEndpoint struct {
	// host is a name or an IP address.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Host string `json:"host,omitempty"`

	// port is a TCP port.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// CNISpec is the desired state of the cluster network.
type CNISpec struct {
	// kubeProxy says who routes Services. Changing it needs the annotation ichor.maesh.dev/confirm-kube-proxy-switch in the same write.
	// +optional
	KubeProxy KubeProxyMode `json:"kubeProxy,omitempty"`

	// ciliumVersion is the desired version of Cilium, with or without a leading v.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	CiliumVersion string `json:"ciliumVersion,omitempty"`
}

// MachineConfigPatch is one patch over the base config of machines.
type MachineConfigPatch struct {
	// name identifies the patch in plans and diffs.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// role limits the patch to machines of one role; without it the patch applies to all.
	// +optional
	Role MachineRole `json:"role,omitempty"`

	// machines limits the patch to these TalosMachines; without it the patch applies to all. Beside role, both limits hold.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Machines []string `json:"machines,omitempty"`

	// patch is a patch as talosctl takes it: a strategic merge patch in YAML, of one document or several, or a JSON patch (RFC 6902), which
	// Talos takes for machine configs of one document only.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Patch string `json:"patch,omitempty"`
}

// MachineConfigSpec is the desired machine config of a target.
type MachineConfigSpec struct {
	// versionContract records by the rules of which minor version of Talos configs for new machines are made, such as v1.13; talosctl gen
	// config calls it --talos-version. An upgrade of Talos to a newer minor version moves it along in the same write, unless somebody else
	// keeps it. Configs that machines have already keep their form.
	// +optional
	// +kubebuilder:validation:Pattern=`^v(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})$`
	// +kubebuilder:validation:MinLength=4
	// +kubebuilder:validation:MaxLength=16
	VersionContract string `json:"versionContract,omitempty"`

	// patches are applied in order.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Patches []MachineConfigPatch `json:"patches,omitempty"`
}

// AccessSpec says where the credentials of a target are. All Secrets are in the TalosCluster's namespace.
type AccessSpec struct {
	// kubeconfigSecretName is a Secret with a kubeconfig under key "value"; by default "<cluster>-kubeconfig".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	KubeconfigSecretName string `json:"kubeconfigSecretName,omitempty"`

	// talosconfigSecretName is a Secret with a talosconfig under key "talosconfig"; by default "<cluster>-talosconfig".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	TalosconfigSecretName string `json:"talosconfigSecretName,omitempty"`

	// talosconfigContext is the context of the talosconfig to use; by default the one named like the cluster, else the only one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	TalosconfigContext string `json:"talosconfigContext,omitempty"`

	// kubernetesServerVerification says whether the certificate of the Kubernetes API server is checked. Skipped lets a kubeconfig
	// through that has insecure-skip-tls-verify; by default it is refused.
	// +optional
	KubernetesServerVerification ServerVerification `json:"kubernetesServerVerification,omitempty"`
}

// ServerVerification says whether the hub checks who a server is.
// +kubebuilder:validation:Enum=Required;Skipped
type ServerVerification string

const (
	// ServerVerificationRequired refuses credentials that do not check the server.
	ServerVerificationRequired ServerVerification = "Required"

	// ServerVerificationSkipped lets them through.
	ServerVerificationSkipped ServerVerification = "Skipped"
)

// MaintenanceWindow is a repeated time in which operations may start on machines.
type MaintenanceWindow struct {
	// schedule is a cron expression of five fields for the beginning of the window.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule,omitempty"`

	// durationSeconds is the length of the window.
	// +required
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=604800
	DurationSeconds int32 `json:"durationSeconds,omitempty"`

	// timeZone is a name of the IANA database; by default UTC.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
}

// EtcdBackupSpec says where snapshots of etcd are stored, and when they are taken.
//
// +kubebuilder:validation:XValidation:rule="!has(self.schedule) || has(self.keep)",message="keep goes with schedule"
// +kubebuilder:validation:XValidation:rule="!has(self.timeZone) || has(self.schedule)",message="timeZone goes with schedule only"
type EtcdBackupSpec struct {
	// schedule is a cron expression of five fields. Without it snapshots are taken when somebody asks, or before an operation.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule,omitempty"`

	// timeZone is a name of the IANA database for schedule; by default UTC.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`

	// keep is how many good snapshots are kept of those that the schedule or an operation asked for. Older ones are deleted, with what is
	// stored; those that people asked for are not counted.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Keep int32 `json:"keep,omitempty"`

	// bucketURL is where the snapshots are stored: s3://bucket/prefix?region=R, gs://bucket/prefix, azblob://container/prefix, or a directory
	// of the hub such as file:///var/lib/ichor/snapshots.
	// +required
	// +kubebuilder:validation:Pattern=`^(s3|gs|azblob|file)://`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	BucketURL string `json:"bucketURL,omitempty"`

	// credentialsSecretName is a Secret in the namespace of the TalosCluster with the credentials of the bucket. Its keys are
	// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN, ca.crt) for S3; credentials.json for Google; AZURE_STORAGE_ACCOUNT
	// with AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN for Azure.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	CredentialsSecretName string `json:"credentialsSecretName,omitempty"`

	// encryptionKeySecretName is a Secret in the namespace of the TalosCluster with a key of age, for which snapshots are encrypted: under
	// key "recipient" the public one is enough to take snapshots; a restore needs the private one, under key "identity". Without it
	// snapshots are stored as they are, with all Secrets of the target that etcd does not encrypt.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	EncryptionKeySecretName string `json:"encryptionKeySecretName,omitempty"`
}

// TalosClusterSpec is the desired state of one target at the Talos level. Versions are changed here first; an operation
// then brings the machines there.
//
// +kubebuilder:validation:XValidation:rule="!has(self.talosVersion) || !has(self.machineConfig) || !has(self.machineConfig.versionContract) || [self.machineConfig.versionContract.substring(1).split('.').map(n, int(n))].all(c, [self.talosVersion.substring(1).split('.')].all(v, c[0] < int(v[0]) || c[0] == int(v[0]) && c[1] <= int(v[1])))",message="machineConfig.versionContract may not be newer than talosVersion"
type TalosClusterSpec struct {
	// talosVersion is the desired version of Talos, such as v1.14.1. Empty means that nobody has declared one yet.
	// +optional
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	TalosVersion string `json:"talosVersion,omitempty"`

	// schematicID is the desired Image Factory schematic of every machine. Empty keeps the schematic that each machine runs.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	SchematicID string `json:"schematicID,omitempty"`

	// kubernetesVersion is the desired version of Kubernetes, such as v1.36.3.
	// +optional
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// cni is the desired state of the cluster network.
	// +optional
	CNI *CNISpec `json:"cni,omitempty"`

	// machineConfig is the desired machine config.
	// +optional
	MachineConfig *MachineConfigSpec `json:"machineConfig,omitempty"`

	// access says where the credentials are, if not under the names that Cluster API uses.
	// +optional
	Access *AccessSpec `json:"access,omitempty"`

	// controlPlaneEndpoint is the address of the target's Kubernetes API, as Cluster API's InfraCluster contract wants it.
	// +optional
	ControlPlaneEndpoint *APIEndpoint `json:"controlPlaneEndpoint,omitempty"`

	// maintenanceWindows are the times in which operations may begin work on a machine; none means always.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	MaintenanceWindows []MaintenanceWindow `json:"maintenanceWindows,omitempty"`

	// etcdBackup says where snapshots of etcd are stored, and when they are taken.
	// +optional
	EtcdBackup *EtcdBackupSpec `json:"etcdBackup,omitempty"`
}

// MachineCounts counts the machines of a target.
type MachineCounts struct {
	// total counts all known machines.
	// +optional
	Total *int32 `json:"total,omitempty"`

	// ready counts machines whose condition Ready is True.
	// +optional
	Ready *int32 `json:"ready,omitempty"`

	// controlPlane counts control planes.
	// +optional
	ControlPlane *int32 `json:"controlPlane,omitempty"`

	// pendingApproval counts machines that wait for an approval and are never touched until then.
	// +optional
	PendingApproval *int32 `json:"pendingApproval,omitempty"`
}

// TalosClusterInitialization holds facts that become true once, as Cluster API's InfraCluster contract wants them.
type TalosClusterInitialization struct {
	// provisioned is true from the start: the hub manages targets that exist already.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"` //nolint:kubeapilinter // The name and type are Cluster API's contract.
}

// TalosClusterStatus is the observed state of a target. Only transitions are written: when the target was last seen is a metric.
type TalosClusterStatus struct {
	// conditions are documented with their constants in this package.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization holds facts that become true once.
	// +optional
	Initialization *TalosClusterInitialization `json:"initialization,omitempty"`

	// observedGeneration is the generation of the spec that this status speaks of.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// talosVersions are the versions of Talos that its machines run, lowest first; one when all agree.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	TalosVersions []string `json:"talosVersions,omitempty"`

	// kubernetesVersion is the version of the target's API server.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// etcdLeader is the TalosMachine whose etcd member led at the last observation that changed anything.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	EtcdLeader string `json:"etcdLeader,omitempty"`

	// machines counts the machines.
	// +optional
	Machines *MachineCounts `json:"machines,omitempty"`

	// lockHolder is the identity that holds the lock of the target.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	LockHolder string `json:"lockHolder,omitempty"`
}

// TalosCluster is one target: a Talos cluster that the hub manages, beside the Cluster API Cluster of the same name and
// namespace. Deleting it makes the hub forget the target and leaves the target as it is.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=talosclusters,scope=Namespaced,shortName=tc,categories=cluster-api;ichor
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`,description="Cluster to which it belongs",priority=10
// +kubebuilder:printcolumn:name="Available",type="string",JSONPath=".status.conditions[?(@.type=='Available')].status",description="Whether the hub can work on the target"
// +kubebuilder:printcolumn:name="Talos",type="string",JSONPath=".status.talosVersions",description="Versions of Talos that run"
// +kubebuilder:printcolumn:name="Desired",type="string",JSONPath=".spec.talosVersion",description="Desired version of Talos"
// +kubebuilder:printcolumn:name="Kubernetes",type="string",JSONPath=".status.kubernetesVersion",description="Version of the API server"
// +kubebuilder:printcolumn:name="Machines",type="integer",JSONPath=".status.machines.total",description="Machines known"
// +kubebuilder:printcolumn:name="Ready",type="integer",JSONPath=".status.machines.ready",description="Machines ready"
// +kubebuilder:printcolumn:name="Lock",type="string",JSONPath=".status.lockHolder",description="Holder of the lock",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type TalosCluster struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the desired state of the target.
	// +optional
	Spec TalosClusterSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state of the target.
	// +optional
	Status TalosClusterStatus `json:"status,omitempty,omitzero"`
}

// TalosClusterList is a list of TalosClusters.
//
// +kubebuilder:object:root=true
type TalosClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TalosCluster `json:"items"`
}

// GetConditions returns the conditions of the TalosCluster.
func (c *TalosCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions of the TalosCluster.
func (c *TalosCluster) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// KubeconfigSecretName is the name of the Secret with the target's kubeconfig.
func (c *TalosCluster) KubeconfigSecretName() string {
	if c.Spec.Access != nil && c.Spec.Access.KubeconfigSecretName != "" {
		return c.Spec.Access.KubeconfigSecretName
	}
	return c.Name + "-kubeconfig"
}

// TalosconfigSecretName is the name of the Secret with the target's talosconfig.
func (c *TalosCluster) TalosconfigSecretName() string {
	if c.Spec.Access != nil && c.Spec.Access.TalosconfigSecretName != "" {
		return c.Spec.Access.TalosconfigSecretName
	}
	return c.Name + "-talosconfig"
}

// VersionContract is the version contract that the spec asks for, or nothing.
func (c *TalosCluster) VersionContract() string {
	if c.Spec.MachineConfig == nil {
		return ""
	}
	return c.Spec.MachineConfig.VersionContract
}

// TalosconfigContext is the context of the talosconfig that the spec asks for, or nothing.
func (c *TalosCluster) TalosconfigContext() string {
	if c.Spec.Access == nil {
		return ""
	}
	return c.Spec.Access.TalosconfigContext
}

// AllowsInsecure says whether the spec lets a kubeconfig through that does not check the server.
func (c *TalosCluster) AllowsInsecure() bool {
	return c.Spec.Access != nil && c.Spec.Access.KubernetesServerVerification == ServerVerificationSkipped
}
