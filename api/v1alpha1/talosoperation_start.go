// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// The verbs of this group that no API server knows by itself. RBAC grants them, and the admission policies ask for them.
const (
	// StartVerb on a subresource of talosoperations (see StartSubresource) is the right to start operations of that kind, and to retry them.
	StartVerb = "start"

	// OverrideVerb on talosoperations is the right to bypass gates and to delete an operation by force; on talosclusters, to take a
	// target over from another hub.
	OverrideVerb = "override"

	// RecordVerb on a resource of this group is the right to write what the hub records: status, the annotations that survive a lost status,
	// the audit. The hub has it, and whoever moves or restores objects needs it.
	RecordVerb = "record"
)

// nodeSubresources are what StartSubresource answers for kind node.
var nodeSubresources = map[NodeAction]string{
	RebootAction:                "node-reboot",
	ShutdownAction:              "node-shutdown",
	RestartServiceAction:        "node-restart-service",
	EtcdDefragAction:            "node-etcd-defrag",
	EtcdForfeitLeadershipAction: "node-etcd-forfeit-leadership",
	ResetAction:                 "node-reset",
	JoinAction:                  "node-join",
	RemoveAction:                "node-remove",
}

// StartSubresource is the subresource of talosoperations on which whoever starts such an operation needs the verb start: its kind or, for one
// action on one machine, "node-" and the action. It is empty where the action is none.
func (s *TalosOperationSpec) StartSubresource() string {
	switch {
	case s.Kind != NodeKind:
		return string(s.Kind)
	case s.Node == nil:
		return ""
	}
	return nodeSubresources[s.Node.Action]
}

// StartSubresources are all that StartSubresource answers.
func StartSubresources() []string {
	return []string{
		string(TalosKind), string(KubernetesKind), string(IchorKind), string(CNIKind), string(ConfigKind),
		nodeSubresources[RebootAction], nodeSubresources[ShutdownAction], nodeSubresources[RestartServiceAction],
		nodeSubresources[EtcdDefragAction], nodeSubresources[EtcdForfeitLeadershipAction], nodeSubresources[ResetAction], nodeSubresources[JoinAction],
		nodeSubresources[RemoveAction],
		string(ShutdownKind), string(CARotationKind), string(KeyRotationKind), string(EtcdRestoreKind),
	}
}
