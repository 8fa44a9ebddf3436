// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/controllers/versions"
)

// messageLimit bounds every message in status.
const messageLimit = 256

// shorten cuts a message to what status holds, at the end of a character.
func shorten(message string) string {
	if len(message) <= messageLimit {
		return message
	}
	cut := messageLimit - len("…")
	for !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + "…"
}

// summarize derives the status of a TalosCluster. What was not observed keeps its last value, and is Unknown if it has none.
func summarize(facts targets.Facts, seen probe, fresh bool, lockHolder string) {
	cluster := facts.Cluster
	cluster.Status.ObservedGeneration = cluster.Generation
	cluster.Status.Initialization = &v1alpha1.TalosClusterInitialization{Provisioned: ptr.To(true)}
	cluster.Status.LockHolder = lockHolder
	countMachines(facts)
	setBundleBackupStale(cluster)
	if !fresh {
		setUnknownWhereUnset(cluster)
		return
	}
	setVersions(facts, seen)
	setCredentialsValid(cluster, seen)
	setKubernetesReachable(cluster, seen)
	setTalosReachable(cluster, seen)
	setMachinesDiscovered(facts, seen)
	setOwned(cluster, seen)
	setEtcdHealthy(facts, seen)
	setSpecInSync(facts)
	excuseStopped(cluster)
	setAvailable(cluster)
}

// setBundleBackupStale says whether a rotation has changed the cluster's bundle of secrets since people last had it exported.
func setBundleBackupStale(cluster *v1alpha1.TalosCluster) {
	changed, exported := cluster.Annotations[v1alpha1.BundleChangedAnnotation], cluster.Annotations[v1alpha1.BundleExportedAnnotation]
	if changed == exported {
		set(cluster, v1alpha1.BundleBackupStaleCondition, metav1.ConditionFalse, v1alpha1.BundleBackupCurrentReason, "")
		return
	}
	set(cluster, v1alpha1.BundleBackupStaleCondition, metav1.ConditionTrue, v1alpha1.BundleBackupStaleReason, fmt.Sprintf(
		"the bundle of the cluster's secrets was changed at %s: a backup from before makes machines that do not belong to it; keep a new one: ichor cluster bundle-export %s",
		changed, cluster.Name))
}

// excuseStopped gives what a planned shutdown brings about another reason than an outage has. What answers although it should not, and
// whatever else is wrong, keeps its own.
func excuseStopped(cluster *v1alpha1.TalosCluster) {
	if power := cluster.Power(); power != v1alpha1.ClusterIsStopped && power != v1alpha1.ClusterStarting {
		return
	}
	for kind, reason := range map[string]string{
		v1alpha1.KubernetesReachableCondition: v1alpha1.KubernetesNotReachableReason, v1alpha1.TalosReachableCondition: v1alpha1.TalosNotReachableReason,
		v1alpha1.EtcdHealthyCondition: v1alpha1.EtcdNotHealthyReason,
	} {
		if c := meta.FindStatusCondition(cluster.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason {
			set(cluster, kind, metav1.ConditionFalse, v1alpha1.StoppedReason, "the cluster "+plan.StoppedWords(cluster))
		}
	}
}

func countMachines(facts targets.Facts) {
	var total, ready, controlPlane, pending int32
	for i := range facts.Machines {
		machine := &facts.Machines[i]
		total++
		ready += count(meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.MachineReadyCondition))
		controlPlane += count(machine.Spec.Role == v1alpha1.ControlPlaneRole)
		pending += count(machine.Spec.Approval != v1alpha1.Approved)
	}
	facts.Cluster.Status.Machines = &v1alpha1.MachineCounts{Total: &total, Ready: &ready, ControlPlane: &controlPlane, PendingApproval: &pending}
}

func count(yes bool) int32 {
	if yes {
		return 1
	}
	return 0
}

// conditions are all conditions of a TalosCluster, so that every one is there from the first visit.
var conditions = []string{
	v1alpha1.AvailableCondition, v1alpha1.CredentialsValidCondition, v1alpha1.KubernetesReachableCondition, v1alpha1.TalosReachableCondition,
	v1alpha1.MachinesDiscoveredCondition, v1alpha1.OwnedCondition, v1alpha1.EtcdHealthyCondition, v1alpha1.SpecInSyncCondition,
	v1alpha1.BundleBackupStaleCondition,
}

func setUnknownWhereUnset(cluster *v1alpha1.TalosCluster) {
	for _, condition := range conditions {
		if meta.FindStatusCondition(cluster.Status.Conditions, condition) == nil {
			set(cluster, condition, metav1.ConditionUnknown, v1alpha1.NotYetObservedReason, "")
		}
	}
}

func set(cluster *v1alpha1.TalosCluster, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: shorten(message), ObservedGeneration: cluster.Generation,
	})
}

// setVersions keeps the versions of machines that do not answer as they were last seen.
func setVersions(facts targets.Facts, seen probe) {
	status := &facts.Cluster.Status
	all := make([]*v1alpha1.TalosMachine, 0, len(facts.Machines))
	for i := range facts.Machines {
		machine := &facts.Machines[i]
		all = append(all, machine)
		if leads(machine, seen) {
			status.EtcdLeader = machine.Name
		}
	}
	status.TalosVersions = versionsOf(all)
	if seen.kubernetesVersion != "" {
		status.KubernetesVersion = seen.kubernetesVersion
	}
}

// versionsOf are the different versions of Talos that machines run, lowest first.
func versionsOf(machines []*v1alpha1.TalosMachine) []string {
	var running []string
	for _, machine := range machines {
		if version := machine.Status.TalosVersion; version != "" && !slices.Contains(running, version) {
			running = append(running, version)
		}
	}
	slices.SortFunc(running, versions.Compare)
	return running
}

func leads(machine *v1alpha1.TalosMachine, seen probe) bool {
	etcd := seen.machines[machine.Spec.Address].etcd
	return etcd != nil && etcd.MemberID == etcd.Leader
}

func setKubernetesReachable(cluster *v1alpha1.TalosCluster, seen probe) {
	switch {
	case seen.kubeconfig.unusable:
		set(cluster, v1alpha1.KubernetesReachableCondition, metav1.ConditionUnknown, v1alpha1.CredentialsNotUsableReason, unusableKubeconfig)
	case seen.kubeTrouble != "":
		set(cluster, v1alpha1.KubernetesReachableCondition, metav1.ConditionFalse, v1alpha1.KubernetesNotReachableReason, seen.kubeTrouble)
	default:
		set(cluster, v1alpha1.KubernetesReachableCondition, metav1.ConditionTrue, v1alpha1.KubernetesReachableReason, "")
	}
}

func setTalosReachable(cluster *v1alpha1.TalosCluster, seen probe) {
	if seen.talosconfig.unusable {
		set(cluster, v1alpha1.TalosReachableCondition, metav1.ConditionUnknown, v1alpha1.CredentialsNotUsableReason, unusableTalosconfig)
		return
	}
	var silent []string
	for _, machine := range inOrder(seen.machines) {
		if machine.trouble != "" {
			silent = append(silent, machine.address+": "+machine.trouble)
		}
	}
	switch {
	case len(silent) == len(seen.machines):
		set(cluster, v1alpha1.TalosReachableCondition, metav1.ConditionFalse, v1alpha1.TalosNotReachableReason, cmp.Or(seen.talosTrouble, noMachine(seen)))
	case len(silent) > 0:
		set(cluster, v1alpha1.TalosReachableCondition, metav1.ConditionFalse, v1alpha1.TalosPartlyReachableReason, strings.Join(silent, ", "))
	default:
		set(cluster, v1alpha1.TalosReachableCondition, metav1.ConditionTrue, v1alpha1.TalosReachableReason, "")
	}
}

// noMachine says that no machine answers, and what the first one answers instead: a certificate or a role that is of no use is the same
// to all of them.
func noMachine(seen probe) string {
	const says = "no machine answers"
	machines := inOrder(seen.machines)
	if len(machines) == 0 || machines[0].trouble == "no answer" {
		return says
	}
	return says + ": " + machines[0].address + ": " + machines[0].trouble
}

func setMachinesDiscovered(facts targets.Facts, seen probe) {
	status, reason, message := discovered(facts, seen)
	set(facts.Cluster, v1alpha1.MachinesDiscoveredCondition, status, reason, message)
}

// discovered judges discovery. Records that clash do so whether the target answers or not.
func discovered(facts targets.Facts, seen probe) (status metav1.ConditionStatus, reason, message string) {
	if message := cmp.Or(gate.Duplicate(pointers(facts.Machines)), twins(seen)); message != "" {
		return metav1.ConditionFalse, v1alpha1.MachinesDuplicateReason, message
	}
	switch {
	case seen.kubeconfig.unusable:
		return metav1.ConditionUnknown, v1alpha1.CredentialsNotUsableReason, unusableKubeconfig
	case seen.talosconfig.unusable:
		return metav1.ConditionUnknown, v1alpha1.CredentialsNotUsableReason, unusableTalosconfig
	case !observed(seen):
		return metav1.ConditionUnknown, v1alpha1.NotYetObservedReason, "the target does not answer"
	case different(seen):
		return metav1.ConditionFalse, v1alpha1.MachinesUnmatchedReason, "the kubeconfig and the talosconfig are of different clusters: no Node is a machine that answers"
	case strangers(facts, seen) != "":
		return metav1.ConditionFalse, v1alpha1.MembersWithoutMachineReason, strangers(facts, seen)
	case !slices.ContainsFunc(facts.Machines, func(m v1alpha1.TalosMachine) bool { return m.Spec.Role == v1alpha1.ControlPlaneRole }):
		return metav1.ConditionFalse, v1alpha1.MachinesUnmatchedReason, cmp.Or(unmatched(facts, seen), "no control plane was found")
	}
	if message := unmatched(facts, seen); message != "" {
		return metav1.ConditionFalse, v1alpha1.MachinesUnmatchedReason, message
	}
	return metav1.ConditionTrue, v1alpha1.MachinesDiscoveredReason, foreign(seen.nodes)
}

// observed says whether a probe was answered by both APIs.
func observed(seen probe) bool {
	return !seen.kubeconfig.unusable && !seen.talosconfig.unusable && seen.kubeTrouble == "" && seen.talosTrouble == ""
}

func pointers(machines []v1alpha1.TalosMachine) []*v1alpha1.TalosMachine {
	list := make([]*v1alpha1.TalosMachine, 0, len(machines))
	for i := range machines {
		list = append(list, &machines[i])
	}
	return list
}

func setEtcdHealthy(facts targets.Facts, seen probe) {
	if seen.talosconfig.unusable {
		set(facts.Cluster, v1alpha1.EtcdHealthyCondition, metav1.ConditionUnknown, v1alpha1.CredentialsNotUsableReason, unusableTalosconfig)
		return
	}
	if trouble := gate.EtcdTrouble(facts.Approved(), etcdViews(facts, seen)); trouble != "" {
		set(facts.Cluster, v1alpha1.EtcdHealthyCondition, metav1.ConditionFalse, v1alpha1.EtcdNotHealthyReason, trouble)
		return
	}
	set(facts.Cluster, v1alpha1.EtcdHealthyCondition, metav1.ConditionTrue, v1alpha1.EtcdHealthyReason, "")
}

func etcdViews(facts targets.Facts, seen probe) map[string]gate.EtcdView {
	views := map[string]gate.EtcdView{}
	for i := range facts.Machines {
		machine, ok := seen.machines[facts.Machines[i].Spec.Address]
		switch {
		case !ok:
		case machine.etcd != nil:
			views[facts.Machines[i].Name] = gate.EtcdView{Etcd: *machine.etcd}
		default:
			views[facts.Machines[i].Name] = gate.EtcdView{Trouble: machine.trouble + machine.etcdTrouble}
		}
	}
	return views
}

// setSpecInSync tells of the first way in which what runs is not what is declared.
func setSpecInSync(facts targets.Facts) {
	found := inSync{metav1.ConditionTrue, v1alpha1.SpecNotDeclaredReason, ""}
	for _, compare := range []func(targets.Facts) *inSync{talosInSync, kubernetesInSync, configInSync} {
		if declared := compare(facts); declared != nil {
			found = *declared
		}
		if found.status != metav1.ConditionTrue {
			break
		}
	}
	set(facts.Cluster, v1alpha1.SpecInSyncCondition, found.status, found.reason, found.message)
}

// inSync is what condition SpecInSync says.
type inSync struct {
	status          metav1.ConditionStatus
	reason, message string
}

// configInSync compares the machine configs with what is declared; nil if nothing is.
func configInSync(facts targets.Facts) *inSync {
	if facts.Cluster.Spec.MachineConfig == nil {
		return nil
	}
	status, message := configsInSync(facts)
	return &inSync{status, reasonOfConfigs[status], message}
}

// talosInSync compares what the machines run with what is declared; nil if nothing is.
func talosInSync(facts targets.Facts) *inSync {
	cluster := facts.Cluster
	desired, running := cluster.Spec.TalosVersion, versionsOf(facts.Approved())
	switch {
	case desired == "":
		return nil
	case len(running) == 0:
		return &inSync{metav1.ConditionUnknown, v1alpha1.NotYetObservedReason, "no machine has told its version"}
	case len(running) == 1 && running[0] == desired && otherSchematic(facts):
		return &inSync{metav1.ConditionFalse, v1alpha1.SpecOutOfSyncReason, fmt.Sprintf(
			"machines run another schematic than the spec asks for; bring them there with: ichor upgrade talos %s --cluster %s", desired, cluster.Name)}
	case len(running) == 1 && running[0] == desired:
		return &inSync{metav1.ConditionTrue, v1alpha1.SpecInSyncReason, ""}
	}
	return &inSync{metav1.ConditionFalse, v1alpha1.SpecOutOfSyncReason, fmt.Sprintf(
		"the machines run Talos %s and the spec asks for %s; bring them there with: ichor upgrade talos %[2]s --cluster %s",
		strings.Join(running, ", "), desired, cluster.Name)}
}

// otherSchematic says whether a machine runs another schematic than the spec asks for.
func otherSchematic(facts targets.Facts) bool {
	desired := facts.Cluster.Spec.SchematicID
	return desired != "" && slices.ContainsFunc(facts.Approved(), func(m *v1alpha1.TalosMachine) bool {
		return m.Status.SchematicID != "" && m.Status.SchematicID != desired
	})
}

// setAvailable needs what the hub needs to work: credentials, both APIs, known machines. A machine that reboots is no reason to call
// the whole target unavailable.
func setAvailable(cluster *v1alpha1.TalosCluster) {
	for _, needed := range []string{v1alpha1.CredentialsValidCondition, v1alpha1.KubernetesReachableCondition, v1alpha1.TalosReachableCondition} {
		condition := meta.FindStatusCondition(cluster.Status.Conditions, needed)
		if condition.Reason == v1alpha1.StoppedReason {
			set(cluster, v1alpha1.AvailableCondition, metav1.ConditionFalse, v1alpha1.StoppedReason, condition.Message)
			return
		}
		if condition.Status != metav1.ConditionTrue && condition.Reason != v1alpha1.TalosPartlyReachableReason {
			set(cluster, v1alpha1.AvailableCondition, metav1.ConditionFalse, v1alpha1.NotAvailableReason, needed+": "+condition.Message)
			return
		}
	}
	if meta.IsStatusConditionFalse(cluster.Status.Conditions, v1alpha1.OwnedCondition) {
		owned := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.OwnedCondition)
		set(cluster, v1alpha1.AvailableCondition, metav1.ConditionFalse, v1alpha1.NotAvailableReason, v1alpha1.OwnedCondition+": "+owned.Message)
		return
	}
	if cluster.Annotations[v1alpha1.MembersApprovedAtAnnotation] == "" {
		discovered := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.MachinesDiscoveredCondition)
		set(cluster, v1alpha1.AvailableCondition, metav1.ConditionFalse, v1alpha1.NotAvailableReason, "initial discovery: "+discovered.Message)
		return
	}
	set(cluster, v1alpha1.AvailableCondition, metav1.ConditionTrue, v1alpha1.AvailableReason, "")
}
