// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func TestWhatARightCovers(t *testing.T) {
	for name, row := range map[string]struct {
		grant   grant
		use     use
		covered bool
	}{
		"itself":                        {grant{verb: "get", resource: "secrets"}, use{verb: "get", resource: "secrets", name: "a"}, true},
		"another verb":                  {grant{verb: "get", resource: "secrets"}, use{verb: "list", resource: "secrets"}, false},
		"another group":                 {grant{verb: "get", group: "a", resource: "events"}, use{verb: "get", group: "b", resource: "events"}, false},
		"another resource":              {grant{verb: "get", resource: "secrets"}, use{verb: "get", resource: "configmaps"}, false},
		"every verb":                    {grant{verb: "*", resource: "secrets"}, use{verb: "impersonate", resource: "secrets"}, true},
		"every group":                   {grant{verb: "get", group: "*", resource: "events"}, use{verb: "get", group: "b", resource: "events"}, true},
		"every resource":                {grant{verb: "get", group: "a", resource: "*"}, use{verb: "get", group: "a", resource: "things"}, true},
		"every resource, subresource":   {grant{verb: "get", group: "a", resource: "*"}, use{verb: "get", group: "a", resource: "things/status"}, true},
		"a resource is no subresource":  {grant{verb: "get", group: "a", resource: "things"}, use{verb: "get", group: "a", resource: "things/status"}, false},
		"a subresource is no resource":  {grant{verb: "get", group: "a", resource: "things/status"}, use{verb: "get", group: "a", resource: "things"}, false},
		"a subresource":                 {grant{verb: "get", group: "a", resource: "things/status"}, use{verb: "get", group: "a", resource: "things/status"}, true},
		"one subresource of all":        {grant{verb: "get", group: "a", resource: "*/scale"}, use{verb: "get", group: "a", resource: "things/scale"}, true},
		"another subresource":           {grant{verb: "get", group: "a", resource: "*/scale"}, use{verb: "get", group: "a", resource: "things/status"}, false},
		"resource of that name":         {grant{verb: "get", group: "a", resource: "*/scale"}, use{verb: "get", group: "a", resource: "scale"}, false},
		"a name":                        {grant{verb: "get", resource: "secrets", name: "a"}, use{verb: "get", resource: "secrets", name: "a"}, true},
		"another name":                  {grant{verb: "get", resource: "secrets", name: "a"}, use{verb: "get", resource: "secrets", name: "b"}, false},
		"all is not a name":             {grant{verb: "list", resource: "secrets", name: "a"}, use{verb: "list", resource: "secrets"}, false},
		"a path":                        {grant{verb: "get", path: "/metrics"}, use{verb: "get", path: "/metrics"}, true},
		"a path below":                  {grant{verb: "get", path: "/metrics"}, use{verb: "get", path: "/metrics/cadvisor"}, false},
		"all paths below":               {grant{verb: "get", path: "/metrics/*"}, use{verb: "get", path: "/metrics/cadvisor"}, true},
		"a path of which all are below": {grant{verb: "get", path: "/metrics/*"}, use{verb: "get", path: "/metrics"}, false},
		"every path":                    {grant{verb: "get", path: "*"}, use{verb: "get", path: "/healthz"}, true},
		"a path is no resource":         {grant{verb: "get", path: "*"}, use{verb: "get", resource: "secrets"}, false},
		"everything is no path":         {grant{verb: "*", group: "*", resource: "*"}, use{verb: "get", path: "/metrics"}, false},
		"an extra of a user":            {grant{verb: "impersonate", group: "authentication.k8s.io", resource: "*"}, use{verb: "impersonate", group: "authentication.k8s.io", resource: "userextras/scopes"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(row.grant.covers(row.use)).To(Equal(row.covered))
		})
	}
}

func TestRulesAreTakenApart(t *testing.T) {
	g := NewWithT(t)
	r := role{name: "ClusterRole r", rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", "b"}, Resources: []string{"events"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"x", "y"}, Verbs: []string{"get"}},
		{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
	}}
	g.Expect(r.grants()).To(ConsistOf(
		grant{role: "ClusterRole r", verb: "get", resource: "events"}, grant{role: "ClusterRole r", verb: "list", resource: "events"},
		grant{role: "ClusterRole r", verb: "get", group: "b", resource: "events"}, grant{role: "ClusterRole r", verb: "list", group: "b", resource: "events"},
		grant{role: "ClusterRole r", verb: "get", resource: "secrets", name: "x"}, grant{role: "ClusterRole r", verb: "get", resource: "secrets", name: "y"},
		grant{role: "ClusterRole r", verb: "get", path: "/metrics"},
	))
}

// Whoever has a role that is put together from others uses the rules of those.
func TestAggregatedRolesUseTheRulesOfOthers(t *testing.T) {
	g := NewWithT(t)
	get := func(resource string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"get"}}}
	}
	roles := []role{
		{name: "ClusterRole less", from: []labels.Selector{labels.SelectorFromSet(labels.Set{"less": "true"})}},
		{name: "ClusterRole more", from: []labels.Selector{labels.SelectorFromSet(labels.Set{"more": "true"})}},
		{name: "ClusterRole less-rules", labels: map[string]string{"less": "true", "more": "true"}, rules: get("a")},
		{name: "ClusterRole more-rules", labels: map[string]string{"more": "true"}, rules: get("b")},
	}
	r := newRights(roles)
	r.use(use{role: "ClusterRole less", verb: "get", resource: "b"})
	r.use(use{role: "ClusterRole other", verb: "get", resource: "a"})
	g.Expect(r.unused()).To(HaveLen(2), "neither role allowed that")
	r.use(use{role: "ClusterRole more", verb: "get", resource: "a"})
	g.Expect(r.unused()).To(ConsistOf(grant{role: "ClusterRole more-rules", verb: "get", resource: "b"}))
	r.use(use{role: "ClusterRole more", verb: "get", resource: "b"})
	g.Expect(r.unused()).To(BeEmpty())
}

// The roles are read as they are installed, with the hub's and those of people.
func TestShippedRoles(t *testing.T) {
	g := NewWithT(t)
	roles, err := shipped("../../config")
	g.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, role := range roles {
		names = append(names, role.name)
	}
	g.Expect(names).To(ContainElements("ClusterRole ichor-hub", "ClusterRole ichor-viewer-rules", "ClusterRole ichor-hub-metrics-reader", "ClusterRole ichor-hub-cluster-api"))
	r := newRights(roles)
	for _, who := range []string{"ichor-viewer", "ichor-operator", "ichor-admin"} {
		g.Expect(r.reach["ClusterRole "+who]).NotTo(BeEmpty(), who)
	}
	g.Expect(r.reach[clusterAPI.name]).To(Equal(r.reach["ClusterRole ichor-hub-cluster-api"]))
}
