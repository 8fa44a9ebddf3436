// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
)

// ours is a role of two rights.
var ours = []role{{name: hubRole, rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list"}}}}}

const (
	gets  = hub + byHubs + ok + "verb: get\nobjectRef: {resource: secrets, name: c1-kubeconfig}"
	lists = hub + byHubs + ok + "verb: list\nrequestURI: /api/v1/secrets?labelSelector=cluster.x-k8s.io%2Fcluster-name\nobjectRef: {resource: secrets}"
)

func TestJudgement(t *testing.T) {
	list := unusedException{Role: hubRole, Resources: []string{"secrets"}, Verbs: []string{"list"}, Reason: "x"}
	sometimes := list
	sometimes.Sometimes = true
	create := hub + forbid + denied + "verb: create\nrequestURI: /u\nobjectRef: {resource: pods}"
	for name, row := range map[string]struct {
		events     []string
		exceptions exceptions
		says       string
		error      string
	}{
		"all is used":              {[]string{gets, lists}, exceptions{}, "every right of hub and programs was used", ""},
		"one is not":               {[]string{gets}, exceptions{}, "unused: ClusterRole ichor-hub: list secrets\n", "do not fit together"},
		"one is not, as known":     {[]string{gets}, exceptions{Unused: []unusedException{list}}, "every right of hub and programs was used", ""},
		"an exception is used":     {[]string{gets, lists}, exceptions{Unused: []unusedException{list}}, "", "exception for ClusterRole ichor-hub: list secrets: it is used"},
		"an exception may be used": {[]string{gets, lists}, exceptions{Unused: []unusedException{sometimes}}, "every right of hub and programs was used", ""},
		"an exception is none":     {[]string{gets, lists}, exceptions{Unused: []unusedException{{Role: hubRole, Resources: []string{"pods"}, Verbs: []string{"get"}, Reason: "x"}}}, "", "get pods: no role has it"},
		"it was refused":           {[]string{gets, lists, create}, exceptions{}, "refused: create pods, by RBAC: /u: not you\n", "do not fit together"},
		"it was refused, as known": {
			[]string{gets, lists, create},
			exceptions{Refused: []refusedException{{Resource: "pods", Verb: "create", By: byRBAC, Reason: "x"}}}, "every right of hub and programs was used", "",
		},
		"it read another's": {[]string{gets, lists, hub + byHubs + ok + "verb: get\nobjectRef: {resource: secrets, name: database}"}, exceptions{}, "secrets: get of Secret database", "do not fit together"},
		"nothing was done":  {[]string{admin + byMaster + ok + "verb: get\nobjectRef: {resource: secrets}"}, exceptions{}, "", "the hub asked for nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := newFindings(ours)
			for _, fields := range row.events {
				g.Expect(f.read(strings.NewReader(line(t, fields)))).To(Succeed())
			}
			out := &strings.Builder{}
			err := f.judge(out, row.exceptions)
			g.Expect(out.String()).To(ContainSubstring(row.says))
			if row.error == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(row.error)))
			}
		})
	}
}

// The rights of people are an offer, of which it is only told what nobody took.
func TestRightsOfPeopleNeedNotBeUsed(t *testing.T) {
	g := NewWithT(t)
	roles := append(slices.Clone(ours), role{
		name: "ClusterRole ichor-viewer-rules", labels: map[string]string{"rbac.ichor.maesh.dev/aggregate-to-viewer": "true"},
		rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"watch"}}},
	})
	f := newFindings(roles)
	g.Expect(f.read(strings.NewReader(line(t, gets) + line(t, lists)))).To(Succeed())
	out := &strings.Builder{}
	g.Expect(f.judge(out, exceptions{})).To(Succeed())
	g.Expect(out.String()).To(ContainSubstring("not seen: ClusterRole ichor-viewer-rules: watch events\n"))
}

// What is shipped and what is excepted is read, and logs that are no such are not taken for none.
func TestRun(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	args := []string{"../../config", "exceptions.yaml", dir}
	g.Expect(run(&strings.Builder{}, args)).To(MatchError(ContainSubstring("the hub asked for nothing")))
	g.Expect(run(&strings.Builder{}, args[:2])).To(MatchError(ContainSubstring("usage")))

	g.Expect(os.WriteFile(filepath.Join(dir, "audit-1.log"), []byte(line(t, gets)+line(t, lists)), 0o600)).To(Succeed())
	out := &strings.Builder{}
	g.Expect(run(out, args)).To(MatchError(errFound))
	g.Expect(out.String()).To(And(HavePrefix("1 audit logs with 2 requests of the hub"), ContainSubstring("unused: ClusterRole ichor-hub: delete secrets\n")))
	g.Expect(out.String()).NotTo(ContainSubstring("ichor-hub: get secrets\n"))

	g.Expect(os.WriteFile(filepath.Join(dir, "audit-2.log"), []byte("{\n"), 0o600)).To(Succeed())
	g.Expect(run(out, args)).To(MatchError(ContainSubstring("audit-2.log: line 1")))
}

func TestExceptionsSayWhy(t *testing.T) {
	for content, message := range map[string]string{
		"unused: [{role: ClusterRole x, resources: [y], verbs: [z]}]":           "unused[0]: want role, resources, verbs and a reason",
		"refused: [{resource: y, verb: z, by: RBAC}]":                           "refused[0]: want resource, verb, by and a reason",
		"refused: [{resource: y, verb: z, by: chance, reason: w}]":              `refused[0].by "chance": want RBAC or admission`,
		"unused: [{role: x, resources: [y], verbs: [z], reason: w, more: too}]": "more",
	} {
		g := NewWithT(t)
		path := filepath.Join(t.TempDir(), "exceptions.yaml")
		g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
		_, err := readExceptions(path)
		g.Expect(err).To(MatchError(ContainSubstring(message)), content)
	}
}
