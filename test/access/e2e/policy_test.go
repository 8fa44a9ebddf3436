// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// In standalone mode the roles are bound to groups, everywhere; and each role has what it says.
func TestGroupsOfStandaloneModeHaveTheirRoles(t *testing.T) {
	for group, may := range map[string]map[string]string{
		"ichor:viewers":   {"list": "yes", "start": "no", "reset": "no"},
		"ichor:operators": {"list": "yes", "start": "yes", "reset": "no"},
		"ichor:admins":    {"list": "yes", "start": "yes", "reset": "yes"},
		"ichor:strangers": {"list": "no", "start": "no", "reset": "no"},
	} {
		for what, question := range map[string][]string{
			"list":  {"list", "talosclusters.ichor.maesh.dev"},
			"start": {"start", "talosoperations.ichor.maesh.dev", "--subresource=talos"},
			"reset": {"start", "talosoperations.ichor.maesh.dev", "--subresource=node-reset"},
		} {
			args := append([]string{"-n", theirs, "--as-group", group, "auth", "can-i"}, question...)
			out, _ := kubectl(t.Context(), "somebody", "", args...) // It ends with an error for no.
			NewWithT(t).Expect(out).To(HaveSuffix(may[what]+"\n"), "%s %s", group, what)
		}
	}
}

// attempt is something that somebody tries with kubectl.
type attempt struct {
	name, user string
	// input is a manifest for kubectl create; args are those of kubectl otherwise.
	input string
	args  []string
	// denied is in the answer; empty means that it is allowed.
	denied string
	// namespace is ours unless it says another.
	namespace string
}

func (a attempt) run(t *testing.T) {
	t.Helper()
	namespace := a.namespace
	if namespace == "" {
		namespace = ours
	}
	args := append([]string{"-n", namespace}, a.args...)
	if a.input != "" {
		args = append(args, "create", "-f", "-")
	}
	out, err := kubectl(t.Context(), a.user, a.input, args...)
	g := NewWithT(t)
	if a.denied == "" {
		g.Expect(err).NotTo(HaveOccurred(), out)
		return
	}
	g.Expect(err).To(HaveOccurred(), out)
	g.Expect(out).To(ContainSubstring(a.denied))
}

func runAll(t *testing.T, attempts []attempt) {
	t.Helper()
	for _, a := range attempts {
		t.Run(a.user+" "+a.name, a.run)
	}
}

// Every kind, and every action on a machine, by everybody: what may be started is decided by the role alone, whatever the tool.
func TestStart(t *testing.T) {
	const forAdmins = "ichor shutdown ca-rotation key-rotation etcd-restore node-shutdown node-reset node-join node-remove"
	parameters := map[string]string{
		"cni": "cni: {action: Upgrade}", "shutdown": "shutdown: {action: Stop, snapshot: None}", "ca-rotation": "caRotation: {authorities: [Talos]}",
		"key-rotation": "keyRotation: {keys: [Secretbox]}", "etcd-restore": "etcdRestore: {snapshotName: s, safetySnapshot: None}",
		"node-reboot": "node: {machine: m, action: Reboot}", "node-shutdown": "node: {machine: m, action: Shutdown}",
		"node-restart-service": "node: {machine: m, action: RestartService, service: kubelet}", "node-etcd-defrag": "node: {machine: m, action: EtcdDefrag}",
		"node-etcd-forfeit-leadership": "node: {machine: m, action: EtcdForfeitLeadership}", "node-reset": "node: {machine: m, action: Reset}", "node-join": "node: {machine: m, action: Join}", "node-remove": "node: {machine: m, action: Remove}",
	}
	var attempts []attempt
	for _, start := range v1alpha1.StartSubresources() {
		kind, field := start, "spec.kind "+start+": "
		if strings.HasPrefix(start, "node-") {
			kind, field = "node", "spec.node.action "
		}
		manifest := operation("start-"+start, kind, parameters[start], "")
		missing := fmt.Sprintf(`user "operator" may not start it in namespace "team-a": verb start on talosoperations/%s is missing`, start)
		operator := attempt{name: start, user: "operator", input: manifest}
		if slices.Contains(strings.Fields(forAdmins), start) {
			operator.denied = missing
			attempts = append(attempts, attempt{name: "says the field of " + start, user: "operator", input: manifest, denied: field})
		} else {
			operator.input = operation("start-"+start+"-operator", kind, parameters[start], "")
		}
		attempts = append(attempts, operator,
			attempt{name: start, user: "viewer", input: manifest, denied: `User "viewer" cannot create resource "talosoperations"`},
			attempt{name: start, user: "admin", input: manifest},
			attempt{name: start + " elsewhere", user: "admin", input: manifest, namespace: theirs, denied: `User "admin" cannot create resource "talosoperations"`},
		)
	}
	runAll(t, attempts)
}

// The roles that other tools have are no way around: who may write operations by another role needs the verb as well.
func TestEveryOtherRoleNeedsTheVerb(t *testing.T) {
	create(t, operation("written", "talos", "", ""))
	runAll(t, []attempt{
		{name: "starts", user: git, input: operation("git", "talos", "", ""), denied: `user "` + git + `" may not start it`},
		{name: "writes status", user: writer, args: []string{"patch", "talosoperation", "written", "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Completed"}}`},
			denied: `status: only the hub writes it; user "writer" needs verb record on talosoperations in namespace "team-a"`},
		{name: "pauses", user: writer, args: []string{"patch", "talosoperation", "written", "--type=merge", "-p", `{"spec":{"paused":true}}`}},
	})
}

func TestSteer(t *testing.T) {
	create(t, operation("upgrade", "talos", "", ""))
	create(t, operation("rotation", "ca-rotation", "caRotation: {authorities: [Talos]}", ""))
	retry := func(name string) []string {
		return []string{"annotate", "--overwrite", "talosoperation", name, "ichor.maesh.dev/retry=true"}
	}
	annotate := func(annotation string) []string {
		return []string{"annotate", "--overwrite", "talosoperation", "upgrade", annotation}
	}
	rotation := func(annotation string) []string {
		return []string{"annotate", "--overwrite", "talosoperation", "rotation", annotation}
	}
	overridden := "overrides: [{gate: EtcdHealthy, reason: x}]"
	runAll(t, []attempt{
		{name: "retries", user: "viewer", args: retry("upgrade"), denied: `User "viewer" cannot patch resource "talosoperations"`},
		{name: "retries", user: "operator", args: retry("upgrade")},
		{name: "retries a rotation", user: "operator", args: retry("rotation"),
			denied: `annotation ichor.maesh.dev/retry: user "operator" may not retry what they may not start (spec.kind ca-rotation) in namespace "team-a": verb start on talosoperations/ca-rotation is missing`},
		{name: "retries a rotation", user: "admin", args: retry("rotation")},
		{name: "turns a rotation back", user: "operator", args: rotation("ichor.maesh.dev/turn-back=true"),
			denied: `annotation ichor.maesh.dev/turn-back: user "operator" may not`},
		{name: "turns a rotation back", user: "admin", args: rotation("ichor.maesh.dev/turn-back=true")},
		{name: "takes the way back away", user: "operator", args: rotation("ichor.maesh.dev/turn-back-"), denied: `annotation ichor.maesh.dev/turn-back: user "operator" may not`},
		{name: "confirms a stage", user: "operator", args: rotation("ichor.maesh.dev/confirm-stage=TalosAwaitingCredentials"),
			denied: `annotation ichor.maesh.dev/confirm-stage: user "operator" may not`},
		{name: "confirms a stage", user: "admin", args: rotation("ichor.maesh.dev/confirm-stage=TalosAwaitingCredentials")},
		{name: "pauses", user: "operator", args: []string{"patch", "talosoperation", "rotation", "--type=merge", "-p", `{"spec":{"paused":true}}`}},
		{name: "overrides", user: "operator", input: operation("over", "talos", overridden, ""),
			denied: `spec.overrides [EtcdHealthy]: user "operator" may not bypass gates in namespace "team-a": verb override on talosoperations is missing`},
		{name: "overrides", user: "admin", input: operation("over", "talos", overridden, "")},
		{name: "deletes by force", user: "operator", args: annotate("ichor.maesh.dev/force-delete=true"),
			denied: `annotation ichor.maesh.dev/force-delete: user "operator" may not delete by force in namespace "team-a": verb override on talosoperations is missing`},
		{name: "deletes by force", user: "admin", args: annotate("ichor.maesh.dev/force-delete=true")},
		{name: "creates forced", user: "operator", input: operation("forced", "talos", "", "ichor.maesh.dev/force-delete: 'true'"), denied: "may not delete by force"},
		{name: "takes the force back", user: "operator", args: annotate("ichor.maesh.dev/force-delete-")},
		{name: "says that it began", user: "admin", args: annotate("ichor.maesh.dev/started-at=2026-01-01T00:00:00Z"),
			denied: `annotation ichor.maesh.dev/started-at: only the hub writes it; user "admin" needs verb record on talosoperations in namespace "team-a"`},
		{name: "says that it is over", user: "admin", args: annotate("ichor.maesh.dev/completed-at=2026-01-01T00:00:00Z"), denied: "annotation ichor.maesh.dev/completed-at: only the hub"},
		{name: "names it", user: "admin", args: annotate("ichor.maesh.dev/operation-id=x"), denied: "annotation ichor.maesh.dev/operation-id: only the hub"},
		{name: "says that it moves", user: "admin", args: annotate("clusterctl.cluster.x-k8s.io/delete-for-move=x"), denied: "clusterctl.cluster.x-k8s.io/delete-for-move: only the hub"},
		{name: "creates what began", user: "operator", input: operation("began", "talos", "", "ichor.maesh.dev/started-at: '2026-01-01T00:00:00Z'"), denied: "only the hub writes it"},
		{name: "restores what began, as a mover", user: "", input: operation("began", "talos", "", "ichor.maesh.dev/started-at: '2026-01-01T00:00:00Z', ichor.maesh.dev/created-by: ann")},
		{name: "writes status", user: "admin", args: []string{"patch", "talosoperation", "upgrade", "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Completed"}}`},
			denied: `User "admin" cannot get resource "talosoperations/status"`},
		{name: "writes down that it began", user: "ichor-hub", args: annotate("ichor.maesh.dev/started-at=2026-01-01T00:00:00Z")},
		{name: "is kept until it has settled", user: "ichor-hub", args: []string{"patch", "talosoperation", "upgrade", "--type=merge", "-p", `{"metadata":{"finalizers":["talosoperation.ichor.maesh.dev"]}}`}},
		{name: "lets it go unsettled", user: "admin", args: []string{"patch", "talosoperation", "upgrade", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`},
			denied: "finalizer talosoperation.ichor.maesh.dev: the hub removes it when the operation has settled"},
		{name: "lets it go", user: "ichor-hub", args: []string{"patch", "talosoperation", "upgrade", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`}},
		{name: "deletes", user: "viewer", args: []string{"delete", "talosoperation", "upgrade"}, denied: `cannot delete resource "talosoperations"`},
		{name: "deletes", user: "operator", args: []string{"delete", "talosoperation", "upgrade"}},
	})
}

// The hub writes status, by the one verb that its role has for it. kubectl would read the status first, which the hub never does.
func TestStatusOfTheHub(t *testing.T) {
	g := NewWithT(t)
	create(t, operation("told", "talos", "", ""))
	hub, op := clientOf(t, plane.HubConfig), &v1alpha1.TalosOperation{}
	g.Expect(hub.Get(t.Context(), client.ObjectKey{Namespace: ours, Name: "told"}, op)).To(Succeed())
	op.Status.Phase = v1alpha1.OperationPending
	g.Expect(hub.Status().Update(t.Context(), op)).To(Succeed())
}

func TestCreatedBy(t *testing.T) {
	g := NewWithT(t)
	by := func(name string) string {
		out, err := kubectl(t.Context(), "", "", "-n", ours, "get", "talosoperation", name, "-o", `jsonpath={.metadata.annotations.ichor\.maesh\.dev/created-by}`)
		g.Expect(err).NotTo(HaveOccurred(), out)
		return out
	}
	runAll(t, []attempt{
		{name: "says nothing", user: "operator", input: operation("silent", "talos", "", "")},
		{name: "says so", user: "operator", input: operation("said", "talos", "", "ichor.maesh.dev/created-by: operator")},
		{name: "says nothing, in a nameless way", user: "operator", input: operation("empty", "talos", "", "ichor.maesh.dev/created-by: ''")},
		{name: "names another", user: "operator", input: operation("another", "talos", "", "ichor.maesh.dev/created-by: admin"),
			denied: `annotation ichor.maesh.dev/created-by "admin": it is user "operator" who creates this`},
		{name: "names another", user: "admin", input: operation("another", "talos", "", "ichor.maesh.dev/created-by: operator"), denied: `it is user "admin" who creates this`},
		{name: "takes it", user: "admin", args: []string{"annotate", "--overwrite", "talosoperation", "said", "ichor.maesh.dev/created-by=admin"},
			denied: `annotation ichor.maesh.dev/created-by "admin": it stays "operator", whoever changes the operation`},
		{name: "removes it", user: "operator", args: []string{"annotate", "talosoperation", "said", "ichor.maesh.dev/created-by-"}, denied: `it stays "operator"`},
	})
	g.Expect([]string{by("silent"), by("said"), by("empty")}).To(HaveEach("operator"))
}

func TestClustersAndMachines(t *testing.T) {
	create(t, cluster("c1"))
	create(t, machine("c1-w-1"))
	patch := func(resource, name, change string) []string {
		return []string{"patch", resource, name, "--type=merge", "-p", change}
	}
	annotate := func(annotation string) []string {
		return []string{"annotate", "--overwrite", "taloscluster", "c1", annotation}
	}
	runAll(t, []attempt{
		{name: "asks for a version", user: "viewer", args: patch("taloscluster", "c1", `{"spec":{"talosVersion":"v1.14.1"}}`), denied: "cannot patch"},
		{name: "asks for a version", user: "operator", args: patch("taloscluster", "c1", `{"spec":{"talosVersion":"v1.14.1"}}`)},
		{name: "points at other credentials", user: "operator", args: patch("taloscluster", "c1", `{"spec":{"access":{"kubeconfigSecretName":"mine"}}}`),
			denied: `spec.access: user "operator" may not lead the hub elsewhere in namespace "team-a": verb create on talosclusters is missing`},
		{name: "points at another endpoint", user: "operator", args: patch("taloscluster", "c1", `{"spec":{"controlPlaneEndpoint":{"host":"evil","port":6443}}}`), denied: "spec.controlPlaneEndpoint: user"},
		{name: "points at other credentials", user: "admin", args: patch("taloscluster", "c1", `{"spec":{"access":{"kubeconfigSecretName":"mine"}}}`)},
		{name: "takes over", user: "operator", args: annotate("ichor.maesh.dev/take-over=x"), denied: `user "operator" may not take a cluster over from another hub in namespace "team-a": verb override on talosclusters is missing`},
		{name: "takes over", user: "admin", args: annotate("ichor.maesh.dev/take-over=x")},
		{name: "clears what is unsafe", user: "admin", args: annotate("ichor.maesh.dev/unsafe-"), denied: `annotation ichor.maesh.dev/unsafe: only the hub writes it; user "admin" needs verb record on talosclusters`},
		{name: "approves all members", user: "admin", args: annotate("ichor.maesh.dev/members-approved-at=now"), denied: "annotation ichor.maesh.dev/members-approved-at: only the hub"},
		{name: "changes the owner", user: "admin", args: annotate("ichor.maesh.dev/owner-id=two"), denied: "annotation ichor.maesh.dev/owner-id: only the hub"},
		{name: "clears what is unsafe", user: "ichor-hub", args: annotate("ichor.maesh.dev/unsafe-")},
		{name: "imports", user: "operator", input: `{apiVersion: ichor.maesh.dev/v1alpha1, kind: TalosCluster, metadata: {name: c2}, spec: {}}`, denied: `cannot create resource "talosclusters"`},
		{name: "imports", user: "admin", input: `{apiVersion: ichor.maesh.dev/v1alpha1, kind: TalosCluster, metadata: {name: c2, annotations: {ichor.maesh.dev/owner-id: two}}, spec: {}}`},
		{name: "stores credentials", user: "operator", input: `{apiVersion: v1, kind: Secret, metadata: {name: c2-kubeconfig}}`, denied: `cannot create resource "secrets"`},
		{name: "stores credentials", user: "admin", input: `{apiVersion: v1, kind: Secret, metadata: {name: c2-kubeconfig}}`},
		{name: "reads credentials", user: "viewer", args: []string{"get", "secret", "c2-kubeconfig"}, denied: `cannot get resource "secrets"`},
		{name: "reads credentials", user: "operator", args: []string{"get", "secret", "c2-kubeconfig"}, denied: `cannot get resource "secrets"`},
		{name: "reads", user: "viewer", args: []string{"get", "talosclusters,talosmachines,talosoperations,clusters.cluster.x-k8s.io,leases,events,auditentries"}},
		{name: "reads elsewhere", user: "viewer", args: []string{"get", "talosclusters"}, namespace: theirs, denied: `cannot list resource "talosclusters"`},
		{name: "holds", user: "viewer", args: []string{"annotate", "talosmachine", "c1-w-1", "ichor.maesh.dev/upgrade-hold=x"}, denied: "cannot patch"},
		{name: "holds", user: "operator", args: []string{"annotate", "talosmachine", "c1-w-1", "ichor.maesh.dev/upgrade-hold=x"}},
		{name: "approves", user: "operator", args: patch("talosmachine", "c1-w-1", `{"spec":{"approval":"Approved"}}`)},
		{name: "removes", user: "operator", args: patch("talosmachine", "c1-w-1", `{"spec":{"removal":{"reason":"x"}}}`),
			denied: `spec.removal: user "operator" may not remove machines in namespace "team-a": verb start on talosoperations/node-remove is missing`},
		{name: "removes", user: "admin", args: patch("talosmachine", "c1-w-1", `{"spec":{"removal":{"reason":"x"}}}`)},
		{name: "points at another machine", user: "operator", args: patch("talosmachine", "c1-w-1", `{"spec":{"address":"10.0.0.1"}}`), denied: `spec.address: user "operator" may not say which machine it is`},
		{name: "points at another machine", user: "operator", args: patch("talosmachine", "c1-w-1", `{"spec":{"uuid":"x"}}`), denied: `spec.uuid: user "operator"`},
		{name: "points at another machine", user: "admin", args: patch("talosmachine", "c1-w-1", `{"spec":{"address":"10.0.0.1"}}`)},
		{name: "forgets", user: "operator", args: []string{"delete", "taloscluster", "c2"}, denied: `cannot delete resource "talosclusters"`},
		{name: "forgets", user: "admin", args: []string{"delete", "taloscluster", "c2"}},
	})
}

// Operators ask for snapshots, administrators delete them, and nobody but the hub says what is in one.
func TestSnapshots(t *testing.T) {
	snapshot := func(name, spec string) string {
		return fmt.Sprintf(`{apiVersion: ichor.maesh.dev/v1alpha1, kind: EtcdSnapshot, metadata: {name: %s}, spec: {clusterName: c1, %s}}`, name, spec)
	}
	const contents = `"contents": {"takenTime": "2026-01-01T00:00:00Z", "location": {"bucketURL": "s3://mine", "key": "k", "sizeBytes": 1, "hash": "%[1]s"}, ` +
		`"sizeBytes": 1, "hash": "%[1]s", "revision": 1, "machine": "m", "members": 1, "talosVersion": "v1.14.1"}`
	forged := fmt.Sprintf(contents, strings.Repeat("0", 64))
	patch := func(change string) []string {
		return []string{"patch", "etcdsnapshot", "one", "--type=merge", "-p", change}
	}
	runAll(t, []attempt{
		{name: "asks", user: "viewer", input: snapshot("one", "reason: Manual"), denied: `cannot create resource "etcdsnapshots"`},
		{name: "asks", user: "operator", input: snapshot("one", "reason: Manual, requester: operator")},
		{name: "asks as another", user: "operator", input: snapshot("two", "reason: Manual, requester: admin"),
			denied: `spec.requester: user "operator" may not ask for a snapshot in the name of another in namespace "team-a"`},
		{name: "asks as the schedule", user: "admin", input: snapshot("two", `reason: Scheduled, scheduledTime: "2026-01-01T00:00:00Z"`),
			denied: `spec.scheduledTime, spec.reason: only the hub writes it; user "admin" needs verb record on etcdsnapshots in namespace "team-a"`},
		{name: "asks as an operation", user: "operator", input: snapshot("two", "reason: Upgrade"), denied: "spec.reason: only the hub"},
		{name: "brings one that nobody took", user: "admin", input: snapshot("two", "reason: Manual, "+forged), denied: "spec.contents: only the hub writes it"},
		{name: "says what is in it", user: "admin", args: patch(`{"spec": {` + forged + `}}`), denied: "spec.contents: only the hub writes it"},
		{name: "says what is in it", user: "ichor-hub", args: patch(`{"spec": {` + forged + `}}`)},
		{name: "says something else", user: "ichor-hub", args: patch(`{"spec":{"contents":{"revision":2}}}`), denied: "the contents of a snapshot do not change"},
		{name: "takes it back", user: "ichor-hub", args: patch(`{"spec":{"contents":null}}`), denied: "the contents of a snapshot do not change"},
		{name: "gives it to another cluster", user: "admin", args: patch(`{"spec":{"clusterName":"c2"}}`), denied: "the cluster of a snapshot does not change"},
		{name: "retains it", user: "operator", args: patch(`{"spec":{"deletionPolicy":"Retain"}}`), denied: `cannot patch resource "etcdsnapshots"`},
		{name: "retains it", user: "admin", args: patch(`{"spec":{"deletionPolicy":"Retain"}}`)},
		{name: "says that it is ready", user: "admin", args: []string{"patch", "etcdsnapshot", "one", "--subresource=status", "--type=merge", "-p", `{"status":{"attempts":1}}`},
			denied: `cannot get resource "etcdsnapshots/status"`},
		{name: "deletes", user: "operator", args: []string{"delete", "etcdsnapshot", "one"}, denied: `cannot delete resource "etcdsnapshots"`},
		{name: "deletes", user: "admin", args: []string{"delete", "etcdsnapshot", "one"}},
	})
}

func TestAudit(t *testing.T) {
	now := time.Now()
	written := entryName(now, "aaaaa")
	runAll(t, []attempt{
		{name: "writes", user: "viewer", input: entry("aaaaa", "viewer", "Client", now), denied: `cannot create resource "auditentries"`},
		{name: "writes", user: "operator", input: entry("aaaaa", "operator", "Client", now)},
		{name: "writes of another", user: "operator", input: entry("bbbbb", "admin", "Client", now), denied: `spec.user "admin": user "operator" writes nobody else's audit`},
		{name: "writes as the hub", user: "operator", input: entry("bbbbb", "operator", "Hub", now), denied: `spec.reporter Hub: user "operator" is not the hub`},
		{name: "writes of the past", user: "operator", input: entry("bbbbb", "operator", "Client", now.Add(-6*time.Minute)), denied: "want at most five minutes from the time of the API server"},
		{name: "writes of the future", user: "operator", input: entry("bbbbb", "operator", "Client", now.Add(6*time.Minute)), denied: "want at most five minutes"},
		{name: "borrows a group", user: "operator", input: strings.Replace(entry("bbbbb", "operator", "Client", now), "reporter:", "groups: [boss], reporter:", 1), denied: `spec.groups [boss]: user "operator" is not in all of them`},
		{name: "bypass: stays on top of the list by its name", user: "operator", input: entryNamed("zzzz-forged", "operator", "Client", now), denied: `metadata.name "zzzz-forged": want spec.time in UTC, `},
		{name: "bypass: hides at the end of the list by its name", user: "operator", input: entryNamed(entryName(now.Add(-24*time.Hour), "bbbbb"), "operator", "Client", now), denied: "want spec.time in UTC"},
		{name: "bypass: says the time of its name in another zone", user: "operator", input: strings.Replace(entry("bbbbb", "operator", "Client", now), `Z"`, `+00:00"`, 1), denied: "want spec.time in UTC"},
		{name: "writes of anybody, as the hub", user: "ichor-hub", input: entry("hhhhh", "operator", "Hub", now.Add(-time.Hour))},
		{name: "changes", user: "admin", args: []string{"label", "auditentry", written, "x=y"}, denied: `cannot patch resource "auditentries"`},
		{name: "removes", user: "admin", args: []string{"delete", "auditentry", written}, denied: `cannot delete resource "auditentries"`},
		{name: "changes what is written", user: "", args: []string{"patch", "auditentry", written, "--type=merge", "-p", `{"spec":{"result":"Denied"}}`}, denied: "an audit entry does not change"},
		{name: "removes", user: "ichor-hub", args: []string{"delete", "auditentry", written}},
	})
}

// Whoever was given verbs on audit entries by mistake does not get at them, and a namespace goes with its entries all the same.
func TestAuditStaysAsLongAsItsNamespace(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	written := entryName(now, "aaaaa")
	for _, args := range [][]string{
		{"create", "namespace", "gone"},
		{"-n", "gone", "create", "role", "eraser", "--verb=delete,deletecollection,list,get,patch,update", "--resource=auditentries.ichor.maesh.dev"},
		{"-n", "gone", "create", "rolebinding", "eraser", "--role=eraser", "--user=eraser"},
	} {
		out, err := kubectl(t.Context(), "", "", args...)
		g.Expect(err).NotTo(HaveOccurred(), out)
	}
	runAll(t, []attempt{
		{name: "writes", user: "ichor-hub", namespace: "gone", input: entry("aaaaa", "operator", "Hub", now)},
		{name: "removes", user: "eraser", namespace: "gone", args: []string{"delete", "auditentry", written}, denied: `audit entry ` + written + ` stays until it is older than the hub keeps them; user "eraser" needs verb record`},
		{name: "removes all", user: "eraser", namespace: "gone", args: []string{"delete", "auditentry", "--all"}, denied: "audit entry " + written + " stays"},
		{name: "labels", user: "eraser", namespace: "gone", args: []string{"label", "auditentry", written, "x=y"}, denied: "audit entry " + written + " does not change"},
		{name: "deletes the namespace", user: "", args: []string{"delete", "namespace", "gone", "--timeout=30s"}},
	})
}
