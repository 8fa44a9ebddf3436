// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/hub/service"
)

func TestParseMaxUnavailable(t *testing.T) {
	for text, row := range map[string]struct {
		want *intstr.IntOrString
		err  string
	}{
		"":    {},
		"3":   {want: ptr.To(intstr.FromInt32(3))},
		"0":   {want: ptr.To(intstr.FromInt32(0))}, // The API server judges.
		"25%": {want: ptr.To(intstr.FromString("25%"))},
		"few": {err: `--max-unavailable "few" is neither a number nor a percentage such as 25%`},
		"2.5": {err: `--max-unavailable "2.5" is neither a number nor a percentage such as 25%`},
		"3 ":  {err: `--max-unavailable "3 " is neither a number nor a percentage such as 25%`},
		" 3":  {err: `--max-unavailable " 3" is neither a number nor a percentage such as 25%`},
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			got, err := parseMaxUnavailable(text)
			if row.err != "" {
				g.Expect(err).To(MatchError(row.err))
				g.Expect(report(err)).To(Equal(2))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(row.want))
		})
	}
}

func TestShowPlan(t *testing.T) {
	g := NewWithT(t)
	machine := func(name string, role v1alpha1.MachineRole) v1alpha1.TalosMachine {
		return v1alpha1.TalosMachine{ObjectMeta: named(name), Spec: v1alpha1.TalosMachineSpec{Role: role}, Status: v1alpha1.TalosMachineStatus{TalosVersion: "v1.13.9"}}
	}
	facts := targets.Facts{Machines: []v1alpha1.TalosMachine{machine("c1-cp-1", "ControlPlane"), machine("c1-w-1", "Worker")}}
	upgrade := &service.Start{
		Facts: facts, Spec: v1alpha1.TalosOperationSpec{ClusterName: "c1", Kind: "talos", MaxUnavailable: ptr.To(intstr.FromString("25%"))},
		Plan: plan.Plan{
			Target: v1alpha1.OperationTarget{TalosVersion: "v1.14.1"}, Held: []string{"c1-w-2"}, Warnings: []plan.Warning{{Message: "the only control plane reboots"}},
			Stages: []plan.Stage{
				{Name: "Pull", Machines: []string{"c1-cp-1"}, Batch: plan.Batch{Parallel: 10}},
				{Name: "Upgrade", Machines: []string{"c1-cp-1", "c1-w-1"}, Batch: plan.Batch{Tiered: true}, Disruptive: true},
			},
		},
	}
	c, out, errOut := newCLI("table")
	c.showPlan(upgrade)
	g.Expect(errOut.String()).To(Equal(`Cluster c1: upgrade Talos to v1.14.1
  1. Pull (up to 10 at once)
       c1-cp-1 (ControlPlane) v1.13.9 -> v1.14.1
  2. Upgrade (control planes one at a time, then up to 25% workers at once; machines are drained and reboot)
       c1-cp-1 (ControlPlane) v1.13.9 -> v1.14.1
       c1-w-1 (Worker) v1.13.9 -> v1.14.1
  held, skipped: c1-w-2
  Warning: the only control plane reboots
`))
	g.Expect(out.String()).To(BeEmpty(), "a plan is for people")

	reboot := &service.Start{
		Facts: facts, Spec: v1alpha1.TalosOperationSpec{ClusterName: "c1", Kind: "node", Node: &v1alpha1.NodeParameters{Machine: "c1-w-1", Action: "Reboot"}},
		Plan: plan.Plan{Stages: []plan.Stage{{Name: "Reboot", Machines: []string{"c1-w-1", "c1-w-9"}, Batch: plan.Batch{Tiered: true}}}},
	}
	errOut.Reset()
	c.showPlan(reboot)
	g.Expect(errOut.String()).To(Equal(`Cluster c1: reboot of c1-w-1
  1. Reboot (control planes one at a time, then up to 1 workers at once; machines are drained and reboot)
       c1-w-1 (Worker)
       c1-w-9
`))

	reboot.Plan.Stages[0].Machines = []string{"c1-w-1"}
	errOut.Reset()
	c.showPlan(reboot)
	g.Expect(errOut.String()).To(Equal(`Cluster c1: reboot of c1-w-1
  1. Reboot (the machine is drained and reboots)
       c1-w-1 (Worker)
`))
}

// Without a terminal nobody can answer, and nothing starts without --yes.
func TestConfirm(t *testing.T) {
	g := NewWithT(t)
	c, _, errOut := newCLI("table")
	c.in = strings.NewReader("y\n")
	g.Expect(c.confirm("Start?", true)).To(Succeed())
	err := c.confirm("Start?", false)
	g.Expect(err).To(MatchError("this needs a confirmation and there is no terminal to ask on: add --yes"))
	g.Expect(report(err)).To(Equal(2))
	g.Expect(errOut.String()).To(BeEmpty())
}

func TestClusterKey(t *testing.T) {
	g := NewWithT(t)
	c := &cli{namespace: "default"}
	_, err := c.clusterKey()
	g.Expect(err).To(MatchError("--cluster is needed; list clusters with: ichor cluster list"))
	c.cluster = "c1"
	g.Expect(c.clusterKey()).To(Equal(client.ObjectKey{Namespace: "default", Name: "c1"}))
}

func TestReport(t *testing.T) {
	g := NewWithT(t)
	g.Expect(report(nil)).To(Equal(0))
	g.Expect(report(errors.New("x"))).To(Equal(1))
	g.Expect(report(usageError("x"))).To(Equal(2))
	g.Expect(report(fmt.Errorf("y: %w", &codedError{errors.New("x"), 3}))).To(Equal(3))
}

func run(t *testing.T, args ...string) (out, errOut string, err error) {
	t.Helper()
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	var o, e bytes.Buffer
	cmd := newCommand(strings.NewReader(""), &o, &e)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return o.String(), e.String(), err
}

// What is wrong with the command line is said before anybody is asked anything, with exit code 2.
func TestUsage(t *testing.T) {
	for name, row := range map[string]struct {
		args []string
		err  string
	}{
		"output":          {[]string{"cluster", "list", "-o", "xml"}, `--output "xml" is not one of table, json, yaml, name`},
		"flag":            {[]string{"cluster", "list", "--nope"}, "unknown flag: --nope; see: ichor cluster list --help"},
		"max-unavailable": {[]string{"upgrade", "talos", "v1.14.1", "--max-unavailable", "few"}, `--max-unavailable "few"`},
		"mode":            {[]string{"node", "reboot", "w-1", "--mode", "hard"}, `--mode "hard" is not one of default, powercycle, force`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, _, err := run(t, row.args...)
			g.Expect(err).To(MatchError(ContainSubstring(row.err)))
			g.Expect(report(err)).To(Equal(2))
		})
	}
}

func TestVersionNeedsNoHub(t *testing.T) {
	out, _, err := run(t, "version")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(out).To(Equal("dev\n"))
}

func TestWithoutManagementAPI(t *testing.T) {
	_, _, err := run(t, "cluster", "list")
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("set $KUBECONFIG or --kubeconfig")))
}

// A machine goes by either of its names.
func TestMachineNames(t *testing.T) {
	g := NewWithT(t)
	objects := []client.Object{&v1alpha1.TalosMachine{ObjectMeta: named("c1-w-1"), Status: v1alpha1.TalosMachineStatus{NodeName: "w-1"}}}
	c, _, _ := newCLI("table")
	c.service = &service.Service{Client: fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).Build()}
	for _, name := range []string{"c1-w-1", "w-1", "W-1"} {
		machine, err := c.service.Machine(t.Context(), "default", "", name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(machine.Name).To(Equal("c1-w-1"))
	}
}

// managementAPI serves a few objects by path, and the discovery that a client needs to find them. It returns a kubeconfig.
func managementAPI(t *testing.T, objects map[string]any) string {
	t.Helper()
	g := NewWithT(t)
	groups := metav1.APIGroupList{}
	for _, group := range []struct {
		name, version string
		kinds         []string
	}{{"ichor.maesh.dev", "v1alpha1", []string{"TalosCluster", "TalosMachine", "TalosOperation"}}, {"cluster.x-k8s.io", "v1beta2", []string{"Cluster"}}} {
		version := metav1.GroupVersionForDiscovery{GroupVersion: group.name + "/" + group.version, Version: group.version}
		groups.Groups = append(groups.Groups, metav1.APIGroup{Name: group.name, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
		list := metav1.APIResourceList{GroupVersion: version.GroupVersion}
		for _, kind := range group.kinds {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: strings.ToLower(kind) + "s", Kind: kind, Namespaced: true})
		}
		objects["/apis/"+version.GroupVersion] = list
	}
	objects["/api"], objects["/apis"] = metav1.APIVersions{}, groups
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		object, ok := objects[r.URL.Path]
		if r.Method != http.MethodGet || !ok {
			w.WriteHeader(http.StatusNotFound)
			object = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
		}
		json.NewEncoder(w).Encode(object) //nolint:errcheck // The client tells.
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(os.WriteFile(file, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"x",
		"contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],"users":[{"name":"x"}],"clusters":[{"name":"x","cluster":{"server":%q}}]}`, server.URL), 0o600)).To(Succeed())
	return file
}

// Machines that are held stay behind, so the remark that there is nothing to do is about the others.
func TestNothingToUpgrade(t *testing.T) {
	g := NewWithT(t)
	machine := func(name, version string) v1alpha1.TalosMachine {
		return v1alpha1.TalosMachine{
			ObjectMeta: named(name), Spec: v1alpha1.TalosMachineSpec{ClusterName: "c1", Role: "Worker", Approval: "Approved"},
			Status: v1alpha1.TalosMachineStatus{TalosVersion: version},
		}
	}
	behind := machine("c1-w-2", "v1.13.9")
	behind.Annotations = map[string]string{"ichor.maesh.dev/upgrade-hold": "disk is dying"}
	const base = "/apis/ichor.maesh.dev/v1alpha1/namespaces/default/"
	kubeconfig := managementAPI(t, map[string]any{
		base + "talosclusters/c1": v1alpha1.TalosCluster{ObjectMeta: named("c1"), Spec: v1alpha1.TalosClusterSpec{TalosVersion: "v1.14.1"}},
		base + "talosoperations":  v1alpha1.TalosOperationList{},
		base + "talosmachines":    v1alpha1.TalosMachineList{Items: []v1alpha1.TalosMachine{machine("c1-w-1", "v1.14.1"), behind}},
	})
	out, errOut, err := run(t, "upgrade", "talos", "1.14.1", "--cluster", "c1", "--kubeconfig", kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(BeEmpty())
	g.Expect(errOut).To(Equal("Every machine of cluster c1 that is not held runs Talos v1.14.1 already: nothing to do.\n"))
}
