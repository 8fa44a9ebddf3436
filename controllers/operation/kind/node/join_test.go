// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig/bases"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	nodeplan "ichor.maesh.dev/hub/controllers/operation/kind/node/plan"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

const (
	blankAddress = "10.0.2.1"
	runs         = "v1.13.6"
)

var vouchedFor = strings.Repeat("A", 43) + "="

// newcomer is a world to which a control plane in maintenance mode is to come.
type newcomer struct {
	*world

	client  client.Client
	cluster *v1alpha1.TalosCluster
}

func newNewcomer(t *testing.T, change func(*v1alpha1.TalosCluster, *v1alpha1.TalosMachine)) *newcomer {
	t.Helper()
	n := &newcomer{world: newWorld(v1alpha1.JoinAction, nil), cluster: &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}}
	for name, machine := range n.machines {
		role := "controlplane"
		if machine.Spec.Role == v1alpha1.WorkerRole {
			role = "worker"
		}
		machine.Status.TalosVersion, machine.Status.SchematicID = runs, "s1"
		config := fmt.Appendf(nil, "version: v1alpha1\nmachine:\n  type: %s\n  token: correcthorse\n  install:\n    image: registry.example/installer:%s\ncluster:\n  controlPlane:\n    endpoint: https://10.0.0.1:6443\n", role, runs)
		n.talos.Configure(n.machines[name].Spec.Address, talos.Config{Active: config, Persistent: config})
	}
	machine := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-new"},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterName: "c1", Role: v1alpha1.ControlPlaneRole, Address: blankAddress, UUID: "uuid-new", Approval: v1alpha1.Approved,
			Join: &v1alpha1.JoinSpec{Fingerprint: vouchedFor, Hostname: "new"},
		},
	}
	if change != nil {
		change(n.cluster, machine)
	}
	n.machines["new"] = machine
	n.client = fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(n.cluster, machine).Build()
	n.executor.Configs = Configs{Client: n.client, Bases: &bases.Store{Client: n.client, Live: n.client}, Factory: "factory.example"}
	n.scope.Cluster = target.Target{NamespacedName: types.NamespacedName{Namespace: "default", Name: "c1"}}
	n.scope.Known = append(slices.Clone(n.scope.Approved), machine)
	n.talos.AddBlank(blankAddress, talos.Unconfigured{
		UUID: "uuid-new", Fingerprint: vouchedFor, Version: runs, Platform: "metal", Disks: []talos.Disk{{Path: "/dev/vda"}},
	}, talos.Machine{UUID: "uuid-new", NodeName: "new", Stage: talos.StageRunning, Ready: true, Version: runs}, true)
	return n
}

// at is the machine at a step of its join.
func (n *newcomer) at(step v1alpha1.OperationStep, change func(*v1alpha1.UnitStatus)) kind.Unit {
	unit := n.unit("new", step, change)
	unit.Status.Stage = nodeplan.JoinControlPlaneStage
	return unit
}

// boots has the machine boot with a config that somebody gave it.
func (n *newcomer) boots(t *testing.T, config string) {
	t.Helper()
	writer, err := n.talos.Writer(t.Context(), n.scope.Cluster, n.scope.Guard)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(writer.Provision(t.Context(), blankAddress, vouchedFor, []byte(config))).To(Succeed())
	n.kube.Set(kube.Node{Name: "new", UUID: "uuid-new", Ready: true, ControlPlane: true})
}

func unknownSince(s *v1alpha1.UnitStatus) { s.UnknownSince = metav1.Now() }

// Talos removes the member of etcd that has the name of one that joins, and a kubelet takes the Node of its name over. So nobody comes under
// the name of another.
func TestJoinTakesNobodysName(t *testing.T) {
	named := func(name string) func(*v1alpha1.TalosCluster, *v1alpha1.TalosMachine) {
		return func(_ *v1alpha1.TalosCluster, m *v1alpha1.TalosMachine) { m.Spec.Join.Hostname = name }
	}
	for name, row := range map[string]struct {
		change func(*v1alpha1.TalosCluster, *v1alpha1.TalosMachine)
		world  func(*newcomer)
		by     string
	}{
		"that of a machine":         {change: named("cp-1"), by: "TalosMachine c1-cp-1"},
		"the long form of one":      {change: named("cp-1.example.com"), by: "TalosMachine c1-cp-1"},
		"that of a Node":            {change: named("old"), world: func(n *newcomer) { n.kube.Set(kube.Node{Name: "old", UUID: "another"}) }, by: "Node old"},
		"its own Node, from before": {change: named("old"), world: func(n *newcomer) { n.kube.Set(kube.Node{Name: "old", UUID: "UUID-new"}) }},
		"that of a member of etcd": {change: named("ghost"), by: "etcd member 2a", world: func(n *newcomer) {
			n.talos.Change("10.0.0.2", func(_ *talos.Machine, e *talos.Etcd) {
				e.Members = append(e.Members, talos.EtcdMember{ID: 0x2a, Hostname: "ghost"})
			})
		}},
		"one that a patch gives it": {by: "TalosMachine c1-cp-2", change: func(c *v1alpha1.TalosCluster, _ *v1alpha1.TalosMachine) {
			c.Spec.MachineConfig = &v1alpha1.MachineConfigSpec{Patches: []v1alpha1.MachineConfigPatch{{Name: "a", Patch: "machine: {network: {hostname: cp-2}}"}}}
		}},
		"one that DHCP gives it": {change: named(""), by: "TalosMachine c1-cp-3", world: func(n *newcomer) {
			n.talos.ChangeBlank(blankAddress, func(u *talos.Unconfigured) { u.Hostname = "cp-3.example.com" })
		}},
		"one that nobody has": {},
	} {
		t.Run(name, func(t *testing.T) {
			g, n := NewWithT(t), newNewcomer(t, row.change)
			if row.world != nil {
				row.world(n)
			}
			action := n.next(t, n.at("", nil))
			if row.by == "" {
				g.Expect(action).To(And(HaveField("Verdict", kind.Call), HaveField("Step", v1alpha1.ProvisioningStep)))
				return
			}
			g.Expect(action).To(And(HaveField("Verdict", kind.Fail), HaveField("Message", ContainSubstring(row.by))))
			_, err := n.executor.Do(t.Context(), n.scope, n.at(v1alpha1.ProvisioningStep, nil), v1alpha1.ProvisioningStep)
			g.Expect(err).To(MatchError(ContainSubstring(row.by)), "it is looked at once more")
			g.Expect(n.talos.Calls()).To(BeEmpty())
		})
	}
}

// Who takes spec.join away fails the join, and not the hub.
func TestJoinWithoutItsSpec(t *testing.T) {
	for _, step := range []v1alpha1.OperationStep{"", v1alpha1.ProvisioningStep, v1alpha1.JoiningStep, v1alpha1.VerifyingStep} {
		g := NewWithT(t)
		n := newNewcomer(t, func(_ *v1alpha1.TalosCluster, m *v1alpha1.TalosMachine) { m.Spec.Join = nil })
		unit := n.at(step, nil)
		g.Expect(n.next(t, unit)).To(And(HaveField("Verdict", kind.Fail), HaveField("Message", ContainSubstring("spec.join"))), string(step))
		_, err := n.executor.Do(t.Context(), n.scope, unit, v1alpha1.ProvisioningStep)
		g.Expect(err).To(MatchError(ContainSubstring("spec.join")))
		g.Expect(n.executor.Classify(err)).To(Equal(v1alpha1.ErrorPermanent))
	}
}

// A machine that is in maintenance mode still is given what it shall have now, whatever was claimed before a hub was killed. One that settles
// is not, and the same is not tried again by itself.
func TestJoinClaimsAnotherConfig(t *testing.T) {
	g, n := NewWithT(t), newNewcomer(t, nil)
	wanted := n.next(t, n.at("", nil)).ConfigHash
	g.Expect(wanted).NotTo(BeEmpty())
	interrupted := func(hash string) kind.Unit {
		return n.at(v1alpha1.ProvisioningStep, func(s *v1alpha1.UnitStatus) {
			failed(v1alpha1.ErrorPermanent)(s)
			unknownSince(s)
			s.ConfigHash = hash
		})
	}
	before := interrupted("another")
	_, err := n.executor.Do(t.Context(), n.scope, before, v1alpha1.ProvisioningStep)
	g.Expect(err).To(MatchError(ContainSubstring("another machine config is asked for by now")))
	g.Expect(n.next(t, before)).To(Equal(kind.Action{Verdict: kind.Call, Step: v1alpha1.ProvisioningStep, ConfigHash: wanted}))
	g.Expect(n.next(t, interrupted(wanted))).To(HaveField("Verdict", kind.Fail))
	seen := n.executor.Observe(t.Context(), n.scope, before)
	g.Expect(n.executor.Settle(n.scope, before, seen)).To(HaveField("Verdict", kind.Fail))
	n.talos.ChangeBlank(blankAddress, func(u *talos.Unconfigured) { u.Fingerprint = strings.Repeat("B", 43) + "=" })
	g.Expect(n.next(t, before)).To(HaveField("Verdict", kind.Fail), "another boot is for a person to look at")
}

// Only a refusal for the state that the machine is in may mean that an earlier call was heard.
func TestJoinIsRefused(t *testing.T) {
	for code, class := range map[codes.Code]v1alpha1.ErrorClass{codes.InvalidArgument: v1alpha1.ErrorPermanent, codes.FailedPrecondition: v1alpha1.ErrorRetryable} {
		g, n := NewWithT(t), newNewcomer(t, nil)
		hash := n.next(t, n.at("", nil)).ConfigHash
		n.talos.FailNext("Provision", blankAddress, status.Error(code, "no"))
		_, err := n.executor.Do(t.Context(), n.scope, n.at(v1alpha1.ProvisioningStep, func(s *v1alpha1.UnitStatus) {
			unknownSince(s)
			s.ConfigHash = hash
		}), v1alpha1.ProvisioningStep)
		g.Expect(n.executor.Classify(err)).To(Equal(class), code.String())
		now := &v1alpha1.TalosMachine{}
		g.Expect(n.client.Get(t.Context(), client.ObjectKeyFromObject(n.machines["new"]), now)).To(Succeed())
		g.Expect(now.HalfJoined()).To(BeTrue(), "that is written before the call")
	}
}

// Somebody who changes the config of a machine that joins may have helped it: it is the machine, and one of the cluster.
func TestJoinWithAConfigThatWasChanged(t *testing.T) {
	g, n := NewWithT(t), newNewcomer(t, nil)
	n.boots(t, "version: v1alpha1\nmachine: {type: controlplane, install: {disk: /dev/vda, image: \"i:v1\"}}\n")
	claimed := func(s *v1alpha1.UnitStatus) { s.ConfigHash = "another" }
	outcome, err := n.executor.Do(t.Context(), n.scope, n.at(v1alpha1.ProvisioningStep, claimed), v1alpha1.ProvisioningStep)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(outcome.Message).To(ContainSubstring("somebody has changed it since"))
	g.Expect(n.next(t, n.at(v1alpha1.JoiningStep, claimed))).To(And(HaveField("Verdict", kind.Wait), HaveField("Step", v1alpha1.VerifyingStep)))
	n.machines["new"].Annotations = map[string]string{v1alpha1.JoinedAtAnnotation: "2026-01-01T00:00:00Z"}
	g.Expect(n.next(t, n.at(v1alpha1.VerifyingStep, claimed))).To(And(HaveField("Verdict", kind.Done), HaveField("Message", ContainSubstring("somebody has changed it since"))))
}

// A machine that has booted without its config can be begun with anew, and keeps nobody out. Another machine at its address tells nothing.
func TestJoinBootsWithoutItsConfig(t *testing.T) {
	g, n := NewWithT(t), newNewcomer(t, nil)
	n.talos.ChangeBlank(blankAddress, func(u *talos.Unconfigured) { u.Fingerprint = strings.Repeat("B", 43) + "=" })
	unit := n.at(v1alpha1.JoiningStep, nil)
	g.Expect(n.executor.Unsafe(unit)).NotTo(BeEmpty())
	action := n.next(t, unit)
	g.Expect(action).To(And(HaveField("Verdict", kind.Fail), HaveField("RetryStep", v1alpha1.ProvisioningStep)))
	unit.Status.RetryStep = action.RetryStep
	g.Expect(n.executor.Unsafe(unit)).To(BeEmpty())
	n.talos.ChangeBlank(blankAddress, func(u *talos.Unconfigured) { u.UUID = "another" })
	g.Expect(n.next(t, n.at(v1alpha1.JoiningStep, nil))).To(HaveField("Verdict", kind.Wait))
}

// Another control plane that dies does not keep the lock with a machine that votes by now.
func TestJoinWhileAnotherDies(t *testing.T) {
	g, n := NewWithT(t), newNewcomer(t, nil)
	n.boots(t, "version: v1alpha1\nmachine: {type: controlplane}\n")
	n.talos.Silence("10.0.0.3", true)
	unit := n.at(v1alpha1.VerifyingStep, nil)
	g.Expect(n.next(t, unit)).To(And(HaveField("Verdict", kind.Wait), HaveField("Message", ContainSubstring("c1-cp-3 cannot be asked"))))
	n.machines["new"].Annotations = map[string]string{v1alpha1.JoinedAtAnnotation: "2026-01-01T00:00:00Z"}
	g.Expect(n.next(t, unit)).To(HaveField("Verdict", kind.Done))
	n.talos.Change("10.0.0.2", func(_ *talos.Machine, e *talos.Etcd) { e.Members = e.Members[:3] })
	g.Expect(n.next(t, unit)).To(And(HaveField("Verdict", kind.Wait), HaveField("Message", ContainSubstring("c1-cp-2 does not know its etcd member"))))
}

// What is installed is what the model runs, and not a name with a hole in it.
func TestJoinInstalls(t *testing.T) {
	for name, row := range map[string]struct {
		model, cluster, version string
		image, trouble          string
	}{
		"what the model runs":             {model: "s1", cluster: "s2", version: runs, image: "factory.example/metal-installer/s1:" + runs},
		"what the cluster asks for":       {cluster: "s2", version: runs, image: "factory.example/metal-installer/s2:" + runs},
		"what the model was installed by": {version: runs, image: "registry.example/installer:" + runs},
		"nothing that nobody knows":       {version: "v1.13.9", trouble: "set spec.schematicID of TalosCluster c1"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			n := newNewcomer(t, func(c *v1alpha1.TalosCluster, _ *v1alpha1.TalosMachine) { c.Spec.SchematicID = row.cluster })
			for _, machine := range n.machines {
				machine.Status.SchematicID, machine.Status.TalosVersion = row.model, row.version
			}
			action := n.next(t, n.at("", nil))
			if row.trouble != "" {
				g.Expect(action).To(And(HaveField("Verdict", kind.Fail), HaveField("Message", ContainSubstring(row.trouble))))
				return
			}
			outcome, err := n.executor.Do(t.Context(), n.scope, n.at(v1alpha1.ProvisioningStep, func(s *v1alpha1.UnitStatus) { s.ConfigHash = action.ConfigHash }), v1alpha1.ProvisioningStep)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(outcome.Message).To(Equal("given its machine config; installing " + row.image))
		})
	}
}
