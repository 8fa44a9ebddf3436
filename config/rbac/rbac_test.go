// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

const (
	// securityDoc has the table of the roles, between two marks.
	securityDoc = "../../docs/security.md"
	begin, end  = "<!-- roles: begin -->\n", "<!-- roles: end -->\n"

	aggregateTo = "rbac.ichor.maesh.dev/aggregate-to-"
)

// roles are the ClusterRoles of this directory by name.
func roles(g *WithT) map[string]*rbacv1.ClusterRole {
	paths, err := fs.Glob(Manifests, "*.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	found := map[string]*rbacv1.ClusterRole{}
	for _, path := range paths {
		content, err := fs.ReadFile(Manifests, path)
		g.Expect(err).NotTo(HaveOccurred())
		role := &rbacv1.ClusterRole{}
		g.Expect(yaml.Unmarshal(content, role)).To(Succeed(), path)
		if role.Kind == "ClusterRole" {
			found[role.Name] = role
		}
	}
	return found
}

// rights are what a role grants: verbs by group and resource.
type rights map[string]map[string]bool

func (r rights) add(rules []rbacv1.PolicyRule) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				key := nameOf(group, resource)
				if r[key] == nil {
					r[key] = map[string]bool{}
				}
				for _, verb := range rule.Verbs {
					r[key][verb] = true
				}
			}
		}
	}
}

// nameOf is what kubectl calls a resource.
func nameOf(group, resource string) string {
	resource, sub, _ := strings.Cut(resource, "/")
	name := resource
	if group != "" {
		name += "." + group
	}
	if sub != "" {
		name += "/" + sub
	}
	return name
}

// rightsOf are what a role grants, with what is aggregated to it.
func rightsOf(g *WithT, name string) rights {
	all := roles(g)
	role := all[name]
	g.Expect(role).NotTo(BeNil(), name)
	found := rights{}
	found.add(role.Rules)
	if role.AggregationRule == nil {
		return found
	}
	for _, selector := range role.AggregationRule.ClusterRoleSelectors {
		for _, other := range all {
			if matches(selector.MatchLabels, other.Labels) {
				found.add(other.Rules)
			}
		}
	}
	return found
}

func matches(wanted, labels map[string]string) bool {
	for key, value := range wanted {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func TestEachRoleHasTheRightsOfTheOneBefore(t *testing.T) {
	g := NewWithT(t)
	order := []string{ViewerRole, OperatorRole, AdminRole}
	for i, name := range order {
		role := roles(g)[name]
		g.Expect(role.AggregationRule.ClusterRoleSelectors).To(HaveLen(1))
		g.Expect(role.AggregationRule.ClusterRoleSelectors[0].MatchLabels).To(Equal(map[string]string{aggregateTo + strings.TrimPrefix(name, "ichor-"): "true"}))
		g.Expect(role.Rules).To(BeEmpty(), "they would be overwritten")
		if i == 0 {
			continue
		}
		less, more := rightsOf(g, order[i-1]), rightsOf(g, name)
		for resource, verbs := range less {
			g.Expect(slices.Collect(maps.Keys(more[resource]))).To(ContainElements(slices.Collect(maps.Keys(verbs))), "%s on %s", name, resource)
		}
		g.Expect(more).NotTo(Equal(less))
	}
}

func TestWhoMayStartWhat(t *testing.T) {
	g := NewWithT(t)
	starts := func(role string) []string {
		var found []string
		for resource, verbs := range rightsOf(g, role) {
			if kind, isOperation := strings.CutPrefix(resource, "talosoperations.ichor.maesh.dev/"); isOperation && verbs[v1alpha1.StartVerb] {
				found = append(found, kind)
			}
		}
		return found
	}
	g.Expect(starts(AdminRole)).To(ConsistOf(v1alpha1.StartSubresources()), "a kind that is new needs a role")
	g.Expect(starts(ViewerRole)).To(BeEmpty())
	g.Expect(starts(OperatorRole)).NotTo(ContainElements("shutdown", "ca-rotation", "key-rotation", "etcd-restore", "node-shutdown", "node-reset", "node-join", "node-remove"))
	for _, role := range []string{ViewerRole, OperatorRole, AdminRole} {
		for resource, verbs := range rightsOf(g, role) {
			g.Expect(verbs).NotTo(Or(HaveKey(v1alpha1.RecordVerb), HaveKey("*")), "%s on %s", role, resource)
			g.Expect(resource).NotTo(ContainSubstring("/status"), role)
		}
	}
	hub := rightsOf(g, HubRole)
	for _, resource := range []string{"talosoperations", "talosclusters", "talosmachines", "auditentries"} {
		g.Expect(hub[resource+".ichor.maesh.dev"]).To(HaveKey(v1alpha1.RecordVerb), resource)
	}
	g.Expect(starts(HubRole)).To(BeEmpty(), "whoever asks it starts, and not the hub")
}

func TestGroupsHaveRoles(t *testing.T) {
	g := NewWithT(t)
	for group, role := range Groups {
		g.Expect(roles(g)).To(HaveKey(role), group)
	}
}

// table says what every role grants.
func table(g *WithT) string {
	columns := []string{ViewerRole, OperatorRole, AdminRole, HubRole}
	granted := map[string]rights{}
	resources := map[string]bool{}
	for _, role := range columns {
		granted[role] = rightsOf(g, role)
		for resource := range granted[role] {
			resources[resource] = true
		}
	}
	var b strings.Builder
	b.WriteString("| resource | `" + strings.Join(columns, "` | `") + "` |\n|" + strings.Repeat("---|", len(columns)+1) + "\n")
	for _, resource := range slices.Sorted(maps.Keys(resources)) {
		fmt.Fprintf(&b, "| `%s` |", resource)
		for _, role := range columns {
			verbs := strings.Join(slices.Sorted(maps.Keys(granted[role][resource])), ", ")
			if verbs == "" {
				verbs = "–"
			}
			b.WriteString(" " + verbs + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// The table of docs/security.md is what the roles are. UPDATE_GOLDEN=1 writes it.
func TestTableOfTheRolesIsUpToDate(t *testing.T) {
	g := NewWithT(t)
	path := filepath.FromSlash(securityDoc)
	content, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	before, rest, found := strings.Cut(string(content), begin)
	g.Expect(found).To(BeTrue())
	written, after, found := strings.Cut(rest, end)
	g.Expect(found).To(BeTrue())
	if os.Getenv("UPDATE_GOLDEN") != "" {
		g.Expect(os.WriteFile(path, []byte(before+begin+table(g)+end+after), 0o600)).To(Succeed())
		return
	}
	g.Expect(written).To(Equal(table(g)), "write it with: UPDATE_GOLDEN=1 go test ./config/rbac")
}
