// SPDX-License-Identifier: Apache-2.0

// Package validation tests what the API server lets through.
package validation_test

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/test/framework"
)

func connect(t *testing.T) client.Client {
	t.Helper()
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	plane, err := framework.StartPlane(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(plane.Stop()).To(Succeed()) })
	c, err := client.New(plane.Config, client.Options{Scheme: scheme.New()})
	g.Expect(err).NotTo(HaveOccurred())
	return c
}

func operation(change func(*v1alpha1.TalosOperationSpec)) *v1alpha1.TalosOperation {
	op := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "op-"}}
	op.Spec = v1alpha1.TalosOperationSpec{ClusterName: "c", Kind: v1alpha1.TalosKind}
	change(&op.Spec)
	return op
}

func machine(change func(*v1alpha1.TalosMachineSpec)) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "m-"}}
	m.Spec = v1alpha1.TalosMachineSpec{ClusterName: "c", Role: v1alpha1.WorkerRole, Address: "10.0.0.1"}
	change(&m.Spec)
	return m
}

func cluster(change func(*v1alpha1.TalosClusterSpec)) *v1alpha1.TalosCluster {
	c := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "c-"}}
	change(&c.Spec)
	return c
}

func TestValidation(t *testing.T) {
	c := connect(t)
	t.Run("what is made", func(t *testing.T) { testCreate(t, c) })
	t.Run("what is changed", func(t *testing.T) { testUpdate(t, c) })
}

// testCreate has a row for each rule; no text means that the object is accepted.
func testCreate(t *testing.T, c client.Client) {
	for name, row := range map[string]struct {
		object client.Object
		says   string
	}{
		"an upgrade":              {operation(func(*v1alpha1.TalosOperationSpec) {}), ""},
		"a budget of three":       {operation(func(s *v1alpha1.TalosOperationSpec) { s.MaxUnavailable = ptr.To(intstr.FromInt32(3)) }), ""},
		"a budget of a quarter":   {operation(func(s *v1alpha1.TalosOperationSpec) { s.MaxUnavailable = ptr.To(intstr.FromString("25%")) }), ""},
		"no budget":               {operation(func(s *v1alpha1.TalosOperationSpec) { s.MaxUnavailable = ptr.To(intstr.FromInt32(0)) }), "maxUnavailable is a number from 1 to 1000"},
		"a budget over all":       {operation(func(s *v1alpha1.TalosOperationSpec) { s.MaxUnavailable = ptr.To(intstr.FromString("101%")) }), "percentage from 1% to 100%"},
		"a budget in words":       {operation(func(s *v1alpha1.TalosOperationSpec) { s.MaxUnavailable = ptr.To(intstr.FromString("half")) }), "percentage from 1% to 100%"},
		"an unknown kind":         {operation(func(s *v1alpha1.TalosOperationSpec) { s.Kind = "dance" }), `supported values: "talos"`},
		"no cluster":              {operation(func(s *v1alpha1.TalosOperationSpec) { s.ClusterName = "" }), "spec.clusterName"},
		"a reboot":                {operation(reboot), ""},
		"node without parameters": {operation(func(s *v1alpha1.TalosOperationSpec) { s.Kind = v1alpha1.NodeKind }), "node goes with kind node"},
		"parameters of another kind": {operation(func(s *v1alpha1.TalosOperationSpec) {
			s.Node = &v1alpha1.NodeParameters{Machine: "m", Action: v1alpha1.RebootAction}
		}), "node goes with kind node"},
		"a service to reboot": {operation(func(s *v1alpha1.TalosOperationSpec) {
			reboot(s)
			s.Node.Service = "kubelet"
		}), "service goes with action RestartService"},
		"a service that nobody may restart": {operation(func(s *v1alpha1.TalosOperationSpec) {
			s.Kind, s.Node = v1alpha1.NodeKind, &v1alpha1.NodeParameters{Machine: "m", Action: v1alpha1.RestartServiceAction, Service: "etcd"}
		}), "should match"},
		"an override without a reason": {operation(func(s *v1alpha1.TalosOperationSpec) {
			s.Overrides = []v1alpha1.GateOverride{{Gate: "TalosVersionPath"}}
		}), "spec.overrides[0].reason"},
		"a version with its v": {cluster(func(s *v1alpha1.TalosClusterSpec) { s.TalosVersion = "v1.14.1" }), ""},
		"a version without":    {cluster(func(s *v1alpha1.TalosClusterSpec) { s.TalosVersion = "1.14.1" }), "spec.talosVersion"},
		"a contract as new as Talos": {cluster(func(s *v1alpha1.TalosClusterSpec) {
			s.TalosVersion, s.MachineConfig = "v1.14.0-rc.1", &v1alpha1.MachineConfigSpec{VersionContract: "v1.14"}
		}), ""},
		"an older contract, nine before ten": {cluster(func(s *v1alpha1.TalosClusterSpec) {
			s.TalosVersion, s.MachineConfig = "v1.10.4", &v1alpha1.MachineConfigSpec{VersionContract: "v1.9"}
		}), ""},
		"a contract while no version is declared": {cluster(func(s *v1alpha1.TalosClusterSpec) {
			s.MachineConfig = &v1alpha1.MachineConfigSpec{VersionContract: "v1.14"}
		}), ""},
		"a contract newer than Talos": {cluster(func(s *v1alpha1.TalosClusterSpec) {
			s.TalosVersion, s.MachineConfig = "v1.13.9", &v1alpha1.MachineConfigSpec{VersionContract: "v1.14"}
		}), "machineConfig.versionContract may not be newer than talosVersion"},
		"a contract of the next major": {cluster(func(s *v1alpha1.TalosClusterSpec) {
			s.TalosVersion, s.MachineConfig = "v1.13.9", &v1alpha1.MachineConfigSpec{VersionContract: "v2.0"}
		}), "machineConfig.versionContract may not be newer than talosVersion"},
		"a contract with a patch level": {cluster(func(s *v1alpha1.TalosClusterSpec) {
			s.MachineConfig = &v1alpha1.MachineConfigSpec{VersionContract: "v1.13.9"}
		}), "spec.machineConfig.versionContract"},
		"a schematic that is not": {cluster(func(s *v1alpha1.TalosClusterSpec) { s.SchematicID = "abc" }), "spec.schematicID"},
		"a window of a moment": {cluster(func(s *v1alpha1.TalosClusterSpec) {
			s.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Schedule: "* * * * *", DurationSeconds: 1}}
		}), "durationSeconds"},
		"a machine":               {machine(func(*v1alpha1.TalosMachineSpec) {}), ""},
		"a machine of no role":    {machine(func(s *v1alpha1.TalosMachineSpec) { s.Role = "Spare" }), `supported values: "ControlPlane", "Worker"`},
		"an approval that is not": {machine(func(s *v1alpha1.TalosMachineSpec) { s.Approval = "Maybe" }), `supported values: "Approved", "Pending"`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			err := c.Create(t.Context(), row.object)
			if row.says == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(row.says)))
		})
	}
}

func reboot(s *v1alpha1.TalosOperationSpec) {
	s.Kind, s.Node = v1alpha1.NodeKind, &v1alpha1.NodeParameters{Machine: "m", Action: v1alpha1.RebootAction}
}

// testUpdate has a row for each field that may change, and for each way around the rule that the others may not.
func testUpdate(t *testing.T, c client.Client) {
	for name, row := range map[string]struct {
		change func(*v1alpha1.TalosOperation)
		says   string
	}{
		"a pause":          {func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) }, ""},
		"the budget":       {func(o *v1alpha1.TalosOperation) { o.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(2)) }, ""},
		"its time":         {func(o *v1alpha1.TalosOperation) { o.Spec.TTLSecondsAfterFinished = ptr.To(int32(60)) }, ""},
		"the cluster":      {func(o *v1alpha1.TalosOperation) { o.Spec.ClusterName = "d" }, "clusterName is immutable"},
		"the kind":         {func(o *v1alpha1.TalosOperation) { o.Spec.Kind, o.Spec.Node = v1alpha1.TalosKind, nil }, "kind is immutable"},
		"the machine":      {func(o *v1alpha1.TalosOperation) { o.Spec.Node.Machine = "n" }, "node is immutable"},
		"another override": {func(o *v1alpha1.TalosOperation) { o.Spec.Overrides = []v1alpha1.GateOverride{{Gate: "g", Reason: "r"}} }, "spec is immutable"},
		"an expectation": {func(o *v1alpha1.TalosOperation) {
			o.Spec.ExpectedTarget = &v1alpha1.OperationTarget{TalosVersion: "v1.14.1"}
		}, "spec is immutable"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			op := operation(reboot)
			g.Expect(c.Create(t.Context(), op)).To(Succeed())
			row.change(op)
			expect(g, c.Update(t.Context(), op), row.says)
		})
	}
	for name, row := range map[string]struct {
		change func(*v1alpha1.TalosMachine)
		says   string
	}{
		"the address of a machine":  {func(m *v1alpha1.TalosMachine) { m.Spec.Address = "10.0.0.2" }, ""},
		"the approval of a machine": {func(m *v1alpha1.TalosMachine) { m.Spec.Approval = v1alpha1.Approved }, ""},
		"the role of a machine":     {func(m *v1alpha1.TalosMachine) { m.Spec.Role = v1alpha1.ControlPlaneRole }, "role is immutable"},
		"the UUID of a machine":     {func(m *v1alpha1.TalosMachine) { m.Spec.UUID = "other" }, "uuid is immutable once it is set"},
		"no UUID any more":          {func(m *v1alpha1.TalosMachine) { m.Spec.UUID = "" }, "uuid is immutable once it is set"},
		"how it joins":              {func(m *v1alpha1.TalosMachine) { m.Spec.Join.Hostname = "w-2" }, ""},
		"that it joins":             {func(m *v1alpha1.TalosMachine) { m.Spec.Join = nil }, "join stays once it is set"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := machine(func(s *v1alpha1.TalosMachineSpec) {
				s.UUID, s.Join = "one", &v1alpha1.JoinSpec{Fingerprint: strings.Repeat("A", 43) + "="}
			})
			g.Expect(c.Create(t.Context(), m)).To(Succeed())
			row.change(m)
			expect(g, c.Update(t.Context(), m), row.says)
		})
	}
}

func expect(g *WithT, err error, says string) {
	if says == "" {
		g.Expect(err).NotTo(HaveOccurred())
		return
	}
	g.Expect(err).To(MatchError(ContainSubstring(says)))
}
