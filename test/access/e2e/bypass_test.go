// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// The controllers of Kubernetes that delete what others leave, with the roles that every API server gives them.
const (
	garbageCollector    = "system:serviceaccount:kube-system:generic-garbage-collector"
	namespaceController = "system:serviceaccount:kube-system:namespace-controller"
)

// gone is an owner that is not there: the garbage collector deletes whatever has no other.
const gone = `"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"nope","uid":"11111111-1111-1111-1111-111111111111"}]`

// patched are the arguments of a merge patch.
func patched(resource, name, change string) []string {
	return []string{"patch", resource, name, "--type=merge", "-p", change}
}

// Whoever may not delete something does not have it deleted, does not keep it from being deleted, and does not hide it.
func TestBypassDeletionByWhatBelongsToIt(t *testing.T) {
	g := NewWithT(t)
	create(t, cluster("belonging"))
	create(t, machine("belonging"))
	create(t, operation("belonging", "node", "node: {machine: m, action: Reset}", ""))
	create(t, operation("belonging-talos", "talos", "", ""))
	for _, resource := range []string{"taloscluster", "talosmachine", "talosoperation"} {
		out, err := kubectl(t.Context(), "ichor-hub", "", append([]string{"-n", ours}, patched(resource, "belonging", `{"metadata":{"finalizers":["example.com/storage"]}}`)...)...)
		g.Expect(err).NotTo(HaveOccurred(), out)
		missing := fmt.Sprintf(`user "operator" may not say what goes with what in namespace "team-a": verb delete on %ss`, resource)
		runAll(t, []attempt{
			{name: "bypass: has it collected, " + resource, user: "operator", args: patched(resource, "belonging", `{"metadata":{`+gone+`}}`), denied: "metadata.ownerReferences: " + missing},
			{name: "bypass: removes a foreign finalizer, " + resource, user: "operator", args: patched(resource, "belonging", `{"metadata":{"finalizers":null}}`), denied: "metadata.finalizers: " + missing},
			{name: "bypass: adds a finalizer, " + resource, user: "operator", args: patched(resource, "belonging", `{"metadata":{"finalizers":["example.com/storage","example.com/mine"]}}`), denied: "metadata.finalizers: " + missing},
			{name: "labels as it likes, " + resource, user: "operator", args: []string{"label", resource, "belonging", "team=x"}},
			{name: "owns, " + resource, user: "ichor-hub", args: patched(resource, "belonging", `{"metadata":{"ownerReferences":[{"apiVersion":"ichor.maesh.dev/v1alpha1","kind":"TalosCluster","name":"belonging","uid":"`+uid(t, "taloscluster", "belonging")+`"}]}}`)},
			{name: "orphans, " + resource, user: garbageCollector, args: patched(resource, "belonging", `{"metadata":{"ownerReferences":null}}`)},
			{name: "removes a finalizer, " + resource, user: "admin", args: patched(resource, "belonging", `{"metadata":{"finalizers":null}}`)},
		})
	}
	runAll(t, []attempt{
		{name: "bypass: hides a cluster", user: "operator", args: []string{"label", "taloscluster", "belonging", "cluster.x-k8s.io/cluster-name=c2"}, denied: `label cluster.x-k8s.io/cluster-name: user "operator" may not say what goes with what`},
		{name: "bypass: hides an operation", user: "operator", args: []string{"label", "talosoperation", "belonging", "cluster.x-k8s.io/cluster-name=c2"}, denied: `label cluster.x-k8s.io/cluster-name: user "operator" may not say what goes with what`},
		{name: "labels a cluster", user: "admin", args: []string{"label", "taloscluster", "belonging", "cluster.x-k8s.io/cluster-name=belonging"}},
		{name: "has collected what they may delete", user: "operator", args: patched("talosoperation", "belonging-talos", `{"metadata":{`+gone+`}}`)},
	})
}

// A machine that is found elsewhere, or nowhere, would be in nobody's gates.
func TestBypassGatesByAnotherLabel(t *testing.T) {
	create(t, machine("labelled"))
	label := func(change string) []string {
		return []string{"label", "--overwrite", "talosmachine", "labelled", "cluster.x-k8s.io/cluster-name" + change}
	}
	unlabelled := strings.Replace(machine("other"), "labels: {cluster.x-k8s.io/cluster-name: c1}", "", 1)
	want := `want spec.clusterName, "c1"; user `
	runAll(t, []attempt{
		{name: "bypass: moves it out of the gates", user: "operator", args: label("=c2"), denied: `label cluster.x-k8s.io/cluster-name "c2": ` + want + `"operator" needs verb record on talosmachines in namespace "team-a"`},
		{name: "bypass: takes it out of the gates", user: "operator", args: label("-"), denied: `label cluster.x-k8s.io/cluster-name "": ` + want},
		{name: "moves it", user: "admin", args: label("=c2"), denied: want},
		{name: "creates it without", user: "admin", input: unlabelled, denied: want},
		{name: "creates it elsewhere", user: "admin", input: strings.Replace(machine("other"), "cluster-name: c1", "cluster-name: c2", 1), denied: want},
		{name: "creates it", user: "admin", input: machine("other")},
		{name: "moves it", user: "ichor-hub", args: label("=c2")},
		{name: "holds one that was mislabelled", user: "operator", args: []string{"annotate", "talosmachine", "labelled", "ichor.maesh.dev/upgrade-hold=x"}},
	})
}

// Operators say which version a cluster shall run. When work may begin, where etcd's snapshots go, what is in machine configs and whose the cluster
// is, is not theirs.
func TestBypassByTheSpecOfACluster(t *testing.T) {
	create(t, cluster("spec"))
	create(t, strings.Replace(cluster("nobodys"), "ichor.maesh.dev/owner-id: one,", "", 1))
	windows := `{"spec":{"maintenanceWindows":[{"schedule":"0 1 * * *","durationSeconds":3600}]}}`
	backup := `{"spec":{"etcdBackup":{"schedule":"0 1 * * *","keep":1,"bucketURL":"s3://attacker/x"}}}`
	config := `{"spec":{"machineConfig":{"patches":[{"name":"root","patch":"machine: {}"}]}}}`
	create(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: timer}, rules: [
{apiGroups: [ichor.maesh.dev], resources: [talosclusters], verbs: [get, patch, override]}]}`)
	create(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: timer}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: timer},
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: timer}]}`)
	g := NewWithT(t)
	g.Eventually(t.Context(), func() string {
		out, _ := kubectl(t.Context(), "timer", "", "-n", ours, "auth", "can-i", "override", "talosclusters.ichor.maesh.dev")
		return out
	}, 10*time.Second).Should(ContainSubstring("yes"), "RBAC hears of new roles after a moment")
	elsewhere := `user "operator" may not lead the hub elsewhere in namespace "team-a": verb create on talosclusters is missing`
	mine := []string{"annotate", "taloscluster", "nobodys", "ichor.maesh.dev/owner-id=mine"}
	runAll(t, []attempt{
		{name: "sets windows", user: "admin", args: patched("taloscluster", "spec", windows)},
		{name: "bypass: takes the windows away", user: "operator", args: patched("taloscluster", "spec", `{"spec":{"maintenanceWindows":null}}`),
			denied: `spec.maintenanceWindows: user "operator" may not say when work may begin in namespace "team-a": verb override on talosclusters is missing`},
		{name: "takes the windows away", user: "timer", args: patched("taloscluster", "spec", `{"spec":{"maintenanceWindows":null}}`)},
		{name: "bypass: sends snapshots elsewhere", user: "operator", args: patched("taloscluster", "spec", backup), denied: "spec.etcdBackup: " + elsewhere},
		{name: "sends snapshots", user: "admin", args: patched("taloscluster", "spec", backup)},
		{name: "bypass: is root on every machine", user: "operator", args: patched("taloscluster", "spec", config), denied: "spec.machineConfig: " + elsewhere},
		{name: "writes machine config", user: "admin", args: patched("taloscluster", "spec", config)},
		{name: "asks for a version beside all of these", user: "operator", args: patched("taloscluster", "spec", `{"spec":{"talosVersion":"v1.14.1"}}`)},
		{name: "bypass: takes a cluster that is nobody's", user: "operator", args: mine, denied: `annotation ichor.maesh.dev/owner-id: user "operator" may not say whose the cluster is in namespace "team-a": verb create on talosclusters is missing`},
		{name: "says whose it is", user: "admin", args: mine},
		{name: "says whose it is", user: "ichor-hub", args: []string{"annotate", "taloscluster", "probe", "--overwrite", "ichor.maesh.dev/owner-id=two"}},
	})
}

// What somebody may not start they may stop; they neither let it go on, nor faster, nor have it deleted.
func TestBypassStartByWhatIsThere(t *testing.T) {
	reset := func(name, more string) string {
		return operation(name, "node", "node: {machine: m, action: Reset}, "+more, "")
	}
	create(t, reset("reset", "paused: true, maxUnavailable: 4, ttlSecondsAfterFinished: 60"))
	create(t, reset("reset-percent", "maxUnavailable: 20%"))
	missing := `: user "operator" may not let go on what they may not start (spec.node.action Reset) in namespace "team-a": verb start on talosoperations/node-reset is missing`
	spec := func(name, change string) []string { return patched("talosoperation", name, `{"spec":{`+change+`}}`) }
	runAll(t, []attempt{
		{name: "bypass: lets it go on", user: "operator", args: spec("reset", `"paused":false`), denied: "spec.paused" + missing},
		{name: "bypass: lets it go on by saying nothing", user: "operator", args: spec("reset", `"paused":null`), denied: "spec.paused" + missing},
		{name: "bypass: lets more go at once", user: "operator", args: spec("reset", `"maxUnavailable":5`), denied: "spec.maxUnavailable" + missing},
		{name: "bypass: lets more go at once by percentage", user: "operator", args: spec("reset", `"maxUnavailable":"1%"`), denied: "spec.maxUnavailable" + missing},
		{name: "bypass: lets more go at once of a percentage", user: "operator", args: spec("reset-percent", `"maxUnavailable":"100%"`), denied: "spec.maxUnavailable" + missing},
		{name: "bypass: has it deleted when it is over", user: "operator", args: spec("reset", `"ttlSecondsAfterFinished":0`), denied: "spec.ttlSecondsAfterFinished" + missing},
		{name: "bypass: deletes it", user: "operator", args: []string{"delete", "talosoperation", "reset"},
			denied: `spec.node.action Reset: user "operator" may not delete what they may not start in namespace "team-a": verb start on talosoperations/node-reset is missing`},
		{name: "bypass: deletes all", user: "operator", args: []string{"delete", "talosoperation", "--all"}, denied: "may not delete what they may not start"},
		{name: "lets less go at once", user: "operator", args: spec("reset", `"maxUnavailable":3`)},
		{name: "lets one go at once", user: "operator", args: spec("reset", `"maxUnavailable":null`)},
		{name: "lets less go at once of a percentage", user: "operator", args: spec("reset-percent", `"maxUnavailable":"9%"`)},
		{name: "pauses", user: "operator", args: spec("reset-percent", `"paused":true`)},
		{name: "lets it go on", user: "admin", args: spec("reset", `"paused":false`)},
		{name: "lets it go on", user: "ichor-hub", args: spec("reset-percent", `"paused":false`)},
		{name: "deletes it", user: "admin", args: []string{"delete", "talosoperation", "reset"}},
		{name: "deletes it, as ttl asks", user: "ichor-hub", args: []string{"delete", "talosoperation", "reset-percent"}},
	})
	create(t, operation("mine", "talos", "paused: true, maxUnavailable: 2", ""))
	runAll(t, []attempt{
		{name: "lets their own kind go on, and faster", user: "operator", args: spec("mine", `"paused":false,"maxUnavailable":"50%","ttlSecondsAfterFinished":60`)},
		{name: "deletes their own kind", user: "operator", args: []string{"delete", "talosoperation", "mine"}},
	})
}

// What is left over is removed by Kubernetes' own controllers, which have no verb of ours.
func TestKubernetesRemovesWhatIsLeftOver(t *testing.T) {
	g := NewWithT(t)
	create(t, operation("collected", "node", "node: {machine: m, action: Reset}", ""))
	runAll(t, []attempt{{name: "collects", user: garbageCollector, args: []string{"delete", "talosoperation", "collected"}}})

	out, err := kubectl(t.Context(), "", "", "create", "namespace", "left-over")
	g.Expect(err).NotTo(HaveOccurred(), out)
	out, err = kubectl(t.Context(), "", operation("left", "shutdown", "shutdown: {action: Stop, snapshot: None}", ""), "-n", "left-over", "create", "-f", "-")
	g.Expect(err).NotTo(HaveOccurred(), out)
	runAll(t, []attempt{
		{name: "empties the namespace", user: namespaceController, namespace: "left-over", args: []string{"delete", "talosoperation", "left"}},
	})
	out, err = kubectl(t.Context(), "", operation("left", "shutdown", "shutdown: {action: Stop, snapshot: None}", ""), "-n", "left-over", "create", "-f", "-")
	g.Expect(err).NotTo(HaveOccurred(), out)
	out, err = kubectl(t.Context(), "", "", "delete", "namespace", "left-over", "--timeout=30s")
	g.Expect(err).NotTo(HaveOccurred(), out)
}

// Before Kubernetes 1.36 nothing fills in who created an operation: then it has to be said, by everybody.
func TestBypassOfCreatedByWithoutMutatingPolicies(t *testing.T) {
	g := NewWithT(t)
	binding, err := kubectl(t.Context(), "", "", "get", "mutatingadmissionpolicybinding", "ichor-created-by", "-o", "json")
	g.Expect(err).NotTo(HaveOccurred(), binding)
	out, err := kubectl(t.Context(), "", "", "delete", "mutatingadmissionpolicybinding", "ichor-created-by")
	g.Expect(err).NotTo(HaveOccurred(), out)
	says := func(ctx context.Context, user, annotations string) string {
		out, _ := kubectl(ctx, user, operation("unsaid", "talos", "", annotations), "-n", ours, "create", "--dry-run=server", "-f", "-")
		return out
	}
	t.Cleanup(func() {
		g := NewWithT(t)
		out, err := kubectl(context.WithoutCancel(t.Context()), "", strings.ReplaceAll(binding, `"resourceVersion"`, `"generateName"`), "create", "-f", "-")
		g.Expect(err).NotTo(HaveOccurred(), out)
		g.Eventually(func() string { return says(context.WithoutCancel(t.Context()), "operator", "") }, 20*time.Second).Should(ContainSubstring("created (server dry run)"))
	})
	missing := `annotation ichor.maesh.dev/created-by is missing, and this API server does not fill it in (Kubernetes does from 1.36 on): say user "operator"`
	g.Eventually(func() string { return says(t.Context(), "operator", "") }, 20*time.Second).Should(ContainSubstring(missing))
	g.Expect(says(t.Context(), "operator", "ichor.maesh.dev/created-by: ''")).To(ContainSubstring(missing))
	g.Expect(says(t.Context(), "", "")).To(ContainSubstring("created-by is missing"))
	g.Expect(says(t.Context(), "operator", "ichor.maesh.dev/created-by: operator")).To(ContainSubstring("created (server dry run)"))
	g.Expect(says(t.Context(), "operator", "ichor.maesh.dev/created-by: admin")).To(ContainSubstring("who creates this"))
}

// uid is that of an object of ours.
func uid(t *testing.T, resource, name string) string {
	t.Helper()
	out, err := kubectl(t.Context(), "", "", "-n", ours, "get", resource, name, "-o", "jsonpath={.metadata.uid}")
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), out)
	return out
}
