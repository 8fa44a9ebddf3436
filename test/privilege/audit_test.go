// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"
)

// event is one of an audit, by the fields that are given.
func event(t *testing.T, fields string) *auditv1.Event {
	t.Helper()
	e := &auditv1.Event{Stage: auditv1.StageResponseComplete}
	NewWithT(t).Expect(yaml.Unmarshal([]byte(fields), e)).To(Succeed())
	return e
}

// Parts of events.
const (
	hub      = "user: {username: ichor-hub}\nuserAgent: ichor-hub\n"
	pod      = "user: {username: 'system:serviceaccount:ichor-system:ichor-hub'}\nuserAgent: ichor-hub/leader-election\n"
	admin    = "user: {username: ichor-admin, groups: ['system:masters']}\nuserAgent: kubectl\n"
	operator = "user: {username: ada}\nuserAgent: kubectl\n"
	byHubs   = "annotations: {authorization.k8s.io/decision: allow, authorization.k8s.io/reason: 'RBAC: allowed by ClusterRoleBinding \"x\" of ClusterRole \"ichor-hub\" to User \"ichor-hub\"'}\n"
	byOps    = "annotations: {authorization.k8s.io/decision: allow, authorization.k8s.io/reason: 'RBAC: allowed by RoleBinding \"ops/team-a\" of ClusterRole \"ichor-operator\" to Group \"ops\"'}\n"
	byRole   = "annotations: {authorization.k8s.io/decision: allow, authorization.k8s.io/reason: 'RBAC: allowed by RoleBinding \"r/ns\" of Role \"ours\" to User \"ada\"'}\n"
	byMaster = "annotations: {authorization.k8s.io/decision: allow, authorization.k8s.io/reason: ''}\n"
	forbid   = "annotations: {authorization.k8s.io/decision: forbid}\n"
	ok       = "responseStatus: {code: 200}\n"
	denied   = "responseStatus: {code: 403, message: not you}\n"
	group    = "ichor.maesh.dev"
)

func TestUsesOfAnEvent(t *testing.T) {
	hubs := func(verb, group, resource, name string) use {
		return use{role: "ClusterRole ichor-hub", verb: verb, group: group, resource: resource, name: name}
	}
	ops := func(verb, group, resource, name string) use {
		return use{role: "ClusterRole ichor-operator", verb: verb, group: group, resource: resource, name: name}
	}
	for name, row := range map[string]struct {
		event string
		uses  []use
	}{
		"a read": {hub + byHubs + ok + "verb: get\nobjectRef: {resource: secrets, namespace: n, name: a}", []use{hubs("get", "", "secrets", "a")}},
		"a pod's": {pod + byHubs + ok + "verb: update\nobjectRef: {apiGroup: coordination.k8s.io, resource: leases, name: l}",
			[]use{hubs("update", "coordination.k8s.io", "leases", "l")}},
		"a watch that goes on":                {hub + byHubs + "stage: ResponseStarted\nverb: watch\nobjectRef: {resource: secrets}", []use{hubs("watch", "", "secrets", "")}},
		"one that began":                      {hub + byHubs + "stage: RequestReceived\nverb: get\nobjectRef: {resource: secrets}", nil},
		"a path":                              {hub + byHubs + ok + "verb: get\nrequestURI: /metrics?x=y", []use{{role: "ClusterRole ichor-hub", verb: "get", path: "/metrics"}}},
		"what was forbidden":                  {hub + forbid + denied + "verb: get\nobjectRef: {resource: secrets}", nil},
		"an administrator's":                  {admin + byMaster + ok + "verb: get\nobjectRef: {resource: secrets}", nil},
		"a person's":                          {operator + byOps + ok + "verb: get\nobjectRef: {apiGroup: ichor.maesh.dev, resource: talosclusters, name: c}", []use{ops("get", group, "talosclusters", "c")}},
		"a Role's":                            {operator + byRole + ok + "verb: get\nobjectRef: {resource: secrets, name: s}", []use{{role: "Role ours", verb: "get", resource: "secrets", name: "s"}}},
		"a test's with the hub's credentials": {"user: {username: ichor-hub}\nuserAgent: e2e.test\n" + byHubs + ok + "verb: get\nobjectRef: {resource: secrets}", nil},
		"a test's in the hub's name":          {admin + "impersonatedUser: {username: ichor-hub}\n" + byHubs + ok + "verb: get\nobjectRef: {resource: secrets}", nil},
		"in another's name": {
			hub + "impersonatedUser: {username: ada, uid: u, groups: [ops, 'system:authenticated'], extra: {scopes: [a, b]}}\n" + byOps + ok + "verb: patch\nobjectRef: {apiGroup: ichor.maesh.dev, resource: talosclusters, name: c}",
			[]use{
				hubs("impersonate", "", "users", "ada"), hubs("impersonate", "", "groups", "ops"), hubs("impersonate", "authentication.k8s.io", "uids", "u"),
				hubs("impersonate", "authentication.k8s.io", "userextras/scopes", "a"), hubs("impersonate", "authentication.k8s.io", "userextras/scopes", "b"),
				ops("patch", group, "talosclusters", "c"),
			},
		},
		"in the name of an account": {
			hub + "impersonatedUser: {username: 'system:serviceaccount:ci:robot', groups: ['system:serviceaccounts', 'system:serviceaccounts:ci', 'system:authenticated']}\n" + forbid + denied + "verb: create\nobjectRef: {resource: secrets}",
			[]use{hubs("impersonate", "", "serviceaccounts", "robot")},
		},
		"what a person may do": {
			hub + byHubs + ok + "verb: create\nobjectRef: {apiGroup: authorization.k8s.io, resource: subjectaccessreviews}\nresponseObject: {spec: {user: ada, resourceAttributes: {verb: list, group: ichor.maesh.dev, resource: talosoperations}}, status: {allowed: true, reason: 'RBAC: allowed by ClusterRoleBinding \"o\" of ClusterRole \"ichor-operator\" to User \"ada\"'}}",
			[]use{ops("list", group, "talosoperations", ""), hubs("create", "authorization.k8s.io", "subjectaccessreviews", "")},
		},
		"what a person may not do": {
			hub + byHubs + ok + "verb: create\nobjectRef: {apiGroup: authorization.k8s.io, resource: subjectaccessreviews}\nresponseObject: {spec: {user: ada, resourceAttributes: {verb: list, resource: secrets}}, status: {allowed: false}}",
			[]use{hubs("create", "authorization.k8s.io", "subjectaccessreviews", "")},
		},
		"a path that somebody may get": {
			hub + byHubs + ok + "verb: create\nobjectRef: {apiGroup: authorization.k8s.io, resource: subjectaccessreviews}\nresponseObject: {spec: {user: p, nonResourceAttributes: {verb: get, path: /metrics}}, status: {allowed: true, reason: 'RBAC: allowed by ClusterRoleBinding \"m\" of ClusterRole \"ichor-hub-metrics-reader\" to User \"p\"'}}",
			[]use{{role: "ClusterRole ichor-hub-metrics-reader", verb: "get", path: "/metrics"}, hubs("create", "authorization.k8s.io", "subjectaccessreviews", "")},
		},
		"status, which a policy guards": {
			hub + byHubs + ok + "verb: patch\nobjectRef: {apiGroup: ichor.maesh.dev, resource: talosclusters, subresource: status, name: c}",
			[]use{hubs("patch", group, "talosclusters/status", "c"), hubs("record", group, "talosclusters", "c")},
		},
		"status that a policy kept": {
			hub + byHubs + denied + "verb: patch\nobjectRef: {apiGroup: ichor.maesh.dev, resource: talosclusters, subresource: status, name: c}",
			[]use{hubs("patch", group, "talosclusters/status", "c")},
		},
		"status that no policy guards": {
			hub + byHubs + ok + "verb: patch\nobjectRef: {apiGroup: ichor.maesh.dev, resource: talosremediations, subresource: status, name: c}",
			[]use{hubs("patch", group, "talosremediations/status", "c")},
		},
		"an entry of the audit": {
			hub + byHubs + ok + "verb: create\nobjectRef: {apiGroup: ichor.maesh.dev, resource: auditentries, name: e}",
			[]use{hubs("create", group, "auditentries", "e"), hubs("record", group, "auditentries", "e")},
		},
		"a person's entry": {
			operator + byOps + ok + "verb: create\nobjectRef: {apiGroup: ichor.maesh.dev, resource: auditentries, name: e}",
			[]use{ops("create", group, "auditentries", "e")},
		},
		"a start": {
			operator + byOps + ok + "verb: create\nobjectRef: {apiGroup: ichor.maesh.dev, resource: talosoperations, name: o}\nrequestObject: {spec: {clusterName: c, kind: node, node: {action: Reboot, machine: m}}}",
			[]use{ops("create", group, "talosoperations", "o"), ops("start", group, "talosoperations/node-reboot", "o")},
		},
		"a start past a gate": {
			operator + byOps + ok + "verb: create\nobjectRef: {apiGroup: ichor.maesh.dev, resource: talosoperations, name: o}\nrequestObject: {spec: {clusterName: c, kind: talos, overrides: [{gate: g, reason: r}]}}",
			[]use{ops("create", group, "talosoperations", "o"), ops("start", group, "talosoperations/talos", "o"), ops("override", group, "talosoperations", "o")},
		},
		"a start that a policy kept": {
			operator + byOps + denied + "verb: create\nobjectRef: {apiGroup: ichor.maesh.dev, resource: talosoperations, name: o}\nrequestObject: {spec: {clusterName: c, kind: talos}}",
			[]use{ops("create", group, "talosoperations", "o")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			found, err := usesOf(event(t, row.event))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found).To(ConsistOf(row.uses))
		})
	}
}

func TestRefusals(t *testing.T) {
	const of = "verb: create\nrequestURI: /apis/x\nobjectRef: {apiGroup: ichor.maesh.dev, resource: talosoperations, subresource: status}"
	for name, row := range map[string]struct {
		event string
		by    string // Empty if it counts as none.
	}{
		"by RBAC":                   {hub + forbid + denied + of, byRBAC},
		"before RBAC":               {hub + denied + of, byRBAC}, // Such as of an impersonation.
		"by a policy":               {hub + byHubs + denied + of, byAdmission},
		"none":                      {hub + byHubs + ok + of, ""},
		"not yet":                   {"stage: RequestReceived\n" + hub + forbid + denied + of, ""},
		"another's":                 {operator + forbid + denied + of, ""},
		"in another's name":         {hub + "impersonatedUser: {username: ada}\n" + forbid + denied + of, ""},
		"by a namespace's end":      {hub + byHubs + "responseStatus: {code: 403, message: 'forbidden: unable to create new content in namespace n because it is being terminated'}\n" + of, ""},
		"it was not there":          {hub + byHubs + "responseStatus: {code: 404}\n" + of, ""},
		"with its credentials":      {"user: {username: ichor-hub}\nuserAgent: e2e.test\n" + forbid + denied + of, ""},
		"of a pod":                  {pod + forbid + denied + of, byRBAC},
		"of another ServiceAccount": {"user: {username: 'system:serviceaccount:ichor-system:default'}\nuserAgent: ichor-hub\n" + forbid + denied + of, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r, how, refused := refusedOf(event(t, row.event))
			g.Expect(refused).To(Equal(row.by != ""))
			if refused {
				g.Expect(r).To(Equal(refusal{verb: "create", group: group, resource: "talosoperations/status", by: row.by}))
				g.Expect(how).To(Equal("/apis/x: not you"))
			}
		})
	}
}

func TestSecretsOfTheHub(t *testing.T) {
	const label = "cluster.x-k8s.io%2Fcluster-name"
	for name, row := range map[string]struct{ event, trouble string }{
		"those of clusters":        {hub + "verb: watch\nrequestURI: /api/v1/secrets?labelSelector=" + label + "&watch=true\nobjectRef: {resource: secrets}", ""},
		"those of one cluster":     {hub + "verb: list\nrequestURI: /api/v1/namespaces/n/secrets?labelSelector=" + label + "%3Dc%2Ckey\nobjectRef: {resource: secrets}", ""},
		"all":                      {hub + "verb: list\nrequestURI: /api/v1/secrets?limit=500\nobjectRef: {resource: secrets}", "list of Secrets without a selector for label cluster.x-k8s.io/cluster-name"},
		"all but those":            {hub + "verb: list\nrequestURI: /api/v1/secrets?labelSelector=%21" + label + "\nobjectRef: {resource: secrets}", "list of Secrets without"},
		"by another label":         {hub + "verb: watch\nrequestURI: /api/v1/secrets?labelSelector=app\nobjectRef: {resource: secrets}", "watch of Secrets without"},
		"credentials":              {hub + "verb: get\nobjectRef: {resource: secrets, name: c1-kubeconfig}", ""},
		"new credentials":          {hub + "verb: update\nobjectRef: {resource: secrets, name: c1-talosconfig}", ""},
		"credentials that go":      {hub + "verb: delete\nobjectRef: {resource: secrets, name: c1-kubeconfig}", "delete of Secret c1-kubeconfig"},
		"somebody's":               {pod + "verb: get\nobjectRef: {resource: secrets, name: database}", "get of Secret database"},
		"many":                     {hub + "verb: deletecollection\nrequestURI: /x\nobjectRef: {resource: secrets}", "deletion of more than one Secret: /x"},
		"somebody's, as that":      {hub + "impersonatedUser: {username: ada}\nverb: get\nobjectRef: {resource: secrets, name: database}", ""},
		"secrets of another group": {hub + "verb: list\nrequestURI: /x\nobjectRef: {apiGroup: example.com, resource: secrets}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if row.trouble == "" {
				NewWithT(t).Expect(secretTrouble(event(t, row.event))).To(BeEmpty())
				return
			}
			NewWithT(t).Expect(secretTrouble(event(t, row.event))).To(HavePrefix(row.trouble))
		})
	}
}

// line is an event as it is in a log.
func line(t *testing.T, fields string) string {
	t.Helper()
	content, err := json.Marshal(event(t, fields))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(content) + "\n"
}
