// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"ichor.maesh.dev/hub/hack/kustomize"
)

// grant is one right: a verb on a resource, or on a path of the API server that is no resource.
type grant struct {
	role string // As in roleName.
	verb string

	group, resource string // A subresource is part of the resource, as in rules: talosoperations/status.
	name            string // Empty for any.

	path string
}

// roleName tells roles apart, wherever they are: the hub has no two of the same kind and name.
func roleName(kind, name string) string { return kind + " " + name }

func (g grant) String() string {
	if g.path != "" {
		return fmt.Sprintf("%s: %s %s", g.role, g.verb, g.path)
	}
	text := fmt.Sprintf("%s: %s %s", g.role, g.verb, g.resource)
	if g.group != "" {
		text += " of " + g.group
	}
	if g.name != "" {
		text += " named " + g.name
	}
	return text
}

// covers says whether a right is why something was allowed, by the rules of RBAC.
func (g grant) covers(u use) bool {
	if g.verb != rbacv1.VerbAll && g.verb != u.verb {
		return false
	}
	if g.path != "" || u.path != "" {
		return u.path != "" && coversPath(g.path, u.path)
	}
	return (g.group == rbacv1.APIGroupAll || g.group == u.group) && coversResource(g.resource, u.resource) && (g.name == "" || g.name == u.name)
}

// coversResource knows the wildcards of resources: everything, and one subresource of whatever has it.
func coversResource(granted, used string) bool {
	if granted == rbacv1.ResourceAll || granted == used {
		return true
	}
	sub, every := strings.CutPrefix(granted, "*/")
	_, of, isSub := strings.Cut(used, "/")
	return every && isSub && of == sub
}

func coversPath(granted, used string) bool {
	below, every := strings.CutSuffix(granted, "*")
	return granted == used || every && strings.HasPrefix(used, below)
}

// role is a ClusterRole or a Role.
type role struct {
	name   string // As in roleName.
	labels map[string]string
	rules  []rbacv1.PolicyRule

	// from selects the ClusterRoles whose rules the API server gives to this one.
	from []labels.Selector
}

// grants are the rights of the rules of a role, each by itself.
func (r role) grants() (all []grant) {
	for _, rule := range r.rules {
		for _, verb := range rule.Verbs {
			for _, path := range rule.NonResourceURLs {
				all = append(all, grant{role: r.name, verb: verb, path: path})
			}
			all = append(all, resourceGrants(r.name, verb, rule)...)
		}
	}
	return all
}

func resourceGrants(role, verb string, rule rbacv1.PolicyRule) (all []grant) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, name := range names {
				all = append(all, grant{role: role, verb: verb, group: group, resource: resource, name: name})
			}
		}
	}
	return all
}

// peopleLabel begins the labels of what the roles of people are put together from.
const peopleLabel = "rbac.ichor.maesh.dev/aggregate-to-"

// ofPeople says whether a role is part of those of people. They are an offer: what people do with kubectl is more than any test does.
func (r role) ofPeople() bool {
	for label := range r.labels {
		if strings.HasPrefix(label, peopleLabel) {
			return true
		}
	}
	return false
}

// clusterAPI is the role of Cluster API's manager, which takes in those of its providers. It is not ours, and what it takes in is.
var clusterAPI = role{
	name: roleName("ClusterRole", "aggregated-manager-role"),
	from: []labels.Selector{labels.SelectorFromSet(labels.Set{"cluster.x-k8s.io/aggregate-to-manager": "true"})},
}

// shipped are the roles that are installed: those of config/default, and that of the metrics.
func shipped(config string) ([]role, error) {
	var roles []role
	for _, dir := range []string{"default", "prometheus"} {
		objects, err := kustomize.Objects(filepath.Join(config, dir))
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			found, err := readRole(object)
			if err != nil {
				return nil, fmt.Errorf("reading %s %s: %w", object.GetKind(), object.GetName(), err)
			}
			roles = append(roles, found...)
		}
	}
	if len(roles) == 0 {
		return nil, fmt.Errorf("there is no role in %s", config)
	}
	return append(roles, clusterAPI), nil
}

// readRole reads a role; nothing if the object is none.
func readRole(object *unstructured.Unstructured) ([]role, error) {
	if !slices.Contains([]string{"ClusterRole", "Role"}, object.GetKind()) {
		return nil, nil
	}
	read := &rbacv1.ClusterRole{} // A Role is one without the aggregation.
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, read); err != nil {
		return nil, err
	}
	r := role{name: roleName(object.GetKind(), read.Name), labels: read.Labels, rules: read.Rules}
	if read.AggregationRule != nil {
		for _, selector := range read.AggregationRule.ClusterRoleSelectors {
			r.from = append(r.from, labels.SelectorFromSet(selector.MatchLabels))
		}
	}
	return []role{r}, nil
}

// rights are the grants of all roles, found by the role that the API server names as the reason.
type rights struct {
	all  []grant
	used []bool

	// people are the roles whose rights need not be used.
	people map[string]bool

	// reach are the places in all of the rules that a role has, its own and those that are aggregated to it.
	reach map[string][]int
	seen  map[use]bool

	// named says that some rule is about names.
	named bool
}

func newRights(roles []role) *rights {
	r := &rights{people: map[string]bool{}, reach: map[string][]int{}, seen: map[use]bool{}}
	of := map[string][]int{}
	for _, role := range roles {
		r.people[role.name] = role.ofPeople()
		for _, grant := range role.grants() {
			of[role.name] = append(of[role.name], len(r.all))
			r.all = append(r.all, grant)
			r.named = r.named || grant.name != ""
		}
	}
	for _, role := range roles {
		r.reach[role.name] = slices.Clone(of[role.name])
		for _, other := range roles {
			if slices.ContainsFunc(role.from, func(s labels.Selector) bool { return s.Matches(labels.Set(other.labels)) }) {
				r.reach[role.name] = append(r.reach[role.name], of[other.name]...)
			}
		}
	}
	r.used = make([]bool, len(r.all))
	return r
}

// use marks what covers a use. Several rules of a role may: each of them would have been enough.
func (r *rights) use(u use) {
	if !r.named {
		u.name = "" // There are many, and they make no difference.
	}
	if r.seen[u] {
		return
	}
	r.seen[u] = true
	for _, at := range r.reach[u.role] {
		r.used[at] = r.used[at] || r.all[at].covers(u)
	}
}

// unused are the rights that nothing has used.
func (r *rights) unused() (list []grant) {
	for at, grant := range r.all {
		if !r.used[at] {
			list = append(list, grant)
		}
	}
	return list
}
