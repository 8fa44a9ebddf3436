// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// newCLI is a cli that writes into buffers.
func newCLI(output string) (c *cli, out, errOut *bytes.Buffer) {
	out, errOut = &bytes.Buffer{}, &bytes.Buffer{}
	return &cli{in: strings.NewReader(""), out: out, err: errOut, output: output}, out, errOut
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name}
}

func TestPrintTable(t *testing.T) {
	g := NewWithT(t)
	c, out, _ := newCLI("table")
	g.Expect(c.printTable(table{header: []string{"NAME", "TALOS"}, rows: [][]string{{"prod-1", "v1.14.1"}, {"a", ""}}})).To(Succeed())
	g.Expect(out.String()).To(Equal("NAME     TALOS\nprod-1   v1.14.1\na        -\n"))
}

func TestPrintList(t *testing.T) {
	list := func() *v1alpha1.TalosMachineList {
		return &v1alpha1.TalosMachineList{Items: []v1alpha1.TalosMachine{{ObjectMeta: named("c1-w-1")}, {ObjectMeta: named("c1-w-2")}}}
	}
	rows := func() table { return table{header: []string{"NAME"}, rows: [][]string{{"c1-w-1"}}} }
	t.Run("table", func(t *testing.T) {
		g := NewWithT(t)
		c, out, errOut := newCLI("table")
		g.Expect(c.printList(list(), "No machines.", rows)).To(Succeed())
		g.Expect(out.String()).To(Equal("NAME\nc1-w-1\n"))
		g.Expect(errOut.String()).To(BeEmpty())
	})
	t.Run("empty table", func(t *testing.T) {
		g := NewWithT(t)
		c, out, errOut := newCLI("table")
		g.Expect(c.printList(list(), "No machines.", func() table { return table{} })).To(Succeed())
		g.Expect(out.String()).To(BeEmpty(), "a script reads no remark")
		g.Expect(errOut.String()).To(Equal("No machines.\n"))
	})
	t.Run("name", func(t *testing.T) {
		g := NewWithT(t)
		c, out, _ := newCLI("name")
		g.Expect(c.printList(list(), "", rows)).To(Succeed())
		g.Expect(out.String()).To(Equal("talosmachine.ichor.maesh.dev/c1-w-1\ntalosmachine.ichor.maesh.dev/c1-w-2\n"))
	})
	for format, want := range map[string][]string{
		"json": {`"kind": "TalosMachineList"`, `"kind": "TalosMachine"`, `"apiVersion": "ichor.maesh.dev/v1alpha1"`},
		"yaml": {"kind: TalosMachineList", "kind: TalosMachine\n", "apiVersion: ichor.maesh.dev/v1alpha1"},
	} {
		t.Run(format, func(t *testing.T) {
			g := NewWithT(t)
			c, out, _ := newCLI(format)
			managed := list()
			managed.Items[0].ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
			g.Expect(c.printList(managed, "", rows)).To(Succeed())
			for _, part := range want {
				g.Expect(out.String()).To(ContainSubstring(part))
			}
			g.Expect(out.String()).NotTo(ContainSubstring("managedFields"))
		})
	}
}

func TestPrintObject(t *testing.T) {
	g := NewWithT(t)
	c, out, _ := newCLI("name")
	g.Expect(c.printObject(&v1alpha1.TalosCluster{ObjectMeta: named("c1")})).To(Succeed())
	g.Expect(out.String()).To(Equal("taloscluster.ichor.maesh.dev/c1\n"))
}

func TestCheckOutput(t *testing.T) {
	g := NewWithT(t)
	for _, output := range []string{"table", "json", "yaml", "name"} {
		g.Expect(checkOutput(output)).To(Succeed())
	}
	err := checkOutput("xml")
	g.Expect(err).To(MatchError(`--output "xml" is not one of table, json, yaml, name`))
	g.Expect(report(err)).To(Equal(2))
}

func TestAge(t *testing.T) {
	g := NewWithT(t)
	g.Expect(age(metav1.Time{}, now)).To(BeEmpty())
	g.Expect(age(metav1.NewTime(now.Add(-90*time.Second)), now)).To(Equal("90s"))
	g.Expect(age(metav1.NewTime(now.Add(-49*time.Hour)), now)).To(Equal("2d1h"))
}

func conditionOf(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func TestClusterTable(t *testing.T) {
	g := NewWithT(t)
	full := v1alpha1.TalosCluster{
		ObjectMeta: named("c1"),
		Spec:       v1alpha1.TalosClusterSpec{TalosVersion: "v1.14.1"},
		Status: v1alpha1.TalosClusterStatus{
			Conditions:    []metav1.Condition{conditionOf("Available", "True", "Available", "")},
			TalosVersions: []string{"v1.13.9", "v1.14.1"}, KubernetesVersion: "v1.35.2", LockHolder: "ichor-controller/op/default/c1-talos-x",
			Machines: &v1alpha1.MachineCounts{Ready: ptr.To(int32(4)), Total: ptr.To(int32(5))},
		},
	}
	g.Expect(clusterTable([]v1alpha1.TalosCluster{full, {ObjectMeta: named("new")}})).To(Equal(table{
		header: []string{"NAME", "AVAILABLE", "TALOS", "DESIRED", "KUBERNETES", "MACHINES", "LOCK", "AGE"},
		rows: [][]string{
			{"c1", "True", "v1.13.9,v1.14.1", "v1.14.1", "v1.35.2", "4/5", "c1-talos-x", ""},
			{"new", "Unknown", "", "", "", "", "", ""},
		},
	}))
}

func TestMachineTable(t *testing.T) {
	g := NewWithT(t)
	at := func(name, cluster string, role v1alpha1.MachineRole, change func(*v1alpha1.TalosMachine)) v1alpha1.TalosMachine {
		m := v1alpha1.TalosMachine{ObjectMeta: named(name), Spec: v1alpha1.TalosMachineSpec{ClusterName: cluster, Role: role, Approval: "Approved", Address: "10.0.0.1"}}
		change(&m)
		return m
	}
	hold := func(note string) func(*v1alpha1.TalosMachine) {
		return func(m *v1alpha1.TalosMachine) {
			m.Annotations = map[string]string{"ichor.maesh.dev/upgrade-hold": note}
		}
	}
	made := machineTable([]v1alpha1.TalosMachine{
		at("c2-w-1", "c2", "Worker", hold("")),
		at("c1-w-2", "c1", "Worker", hold("disk is dying")),
		at("c1-w-1", "c1", "Worker", func(m *v1alpha1.TalosMachine) { m.Spec.Approval = "Pending" }),
		at("c1-cp-1", "c1", "ControlPlane", func(m *v1alpha1.TalosMachine) {
			m.Status = v1alpha1.TalosMachineStatus{
				NodeName: "cp-1", TalosVersion: "v1.13.9", KubeletVersion: "v1.35.2", Conditions: []metav1.Condition{conditionOf("Ready", "True", "Ready", "")},
			}
		}),
	})
	g.Expect(made.rows).To(Equal([][]string{
		{"c1-cp-1", "c1", "cp-1", "ControlPlane", "True", "v1.13.9", "v1.35.2", "10.0.0.1", "", ""},
		{"c1-w-1", "c1", "", "Worker", "Unknown", "", "", "10.0.0.1", "pending approval", ""},
		{"c1-w-2", "c1", "", "Worker", "Unknown", "", "", "10.0.0.1", "held: disk is dying", ""},
		{"c2-w-1", "c2", "", "Worker", "Unknown", "", "", "10.0.0.1", "held", ""},
	}))
}
