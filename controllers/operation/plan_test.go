// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/format"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/hub/service"
	"ichor.maesh.dev/hub/providers/script"
	"ichor.maesh.dev/hub/providers/talos"
)

// planned is an order, and what shows how it runs.
type planned struct {
	kind   v1alpha1.OperationKind
	fleet  func(context SpecContext) *fleet
	spec   v1alpha1.TalosOperationSpec
	target v1alpha1.OperationTarget

	// calls are, by stage, the first call that a machine gets in it; after "kube " it is one about its Node. Where a stage begins with the same
	// call as one before, it is not here.
	calls map[string]string

	// stage is the one that groups are of; nothing is the last one.
	stage string

	// groups are those that the stage is expected to have, so that a plan that is as wrong as the run is found out.
	groups [][]string
}

// ordered is a target of three control planes and five workers with labels, a hold, and a leader that is not the first.
func ordered(ctx SpecContext) *fleet {
	f := newFleet(ctx, 3, 5)
	f.leads(ctx, "cp2")
	for name, mutate := range map[string]func(*v1alpha1.TalosMachine){
		"c-cp3": func(m *v1alpha1.TalosMachine) { m.Labels[v1alpha1.UpgradeOrderLabel] = "1" },
		"c-w4":  func(m *v1alpha1.TalosMachine) { m.Labels[v1alpha1.UpgradeOrderLabel] = "10" },
		"c-w2":  func(m *v1alpha1.TalosMachine) { m.Labels[v1alpha1.UpgradeOrderLabel] = "9" },
		"c-w3": func(m *v1alpha1.TalosMachine) {
			m.Annotations = map[string]string{v1alpha1.UpgradeHoldAnnotation: "disk swap"}
		},
	} {
		change(ctx, &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}}, mutate)
	}
	return f
}

// leads makes a control plane the leader of etcd, and the TalosCluster tell so.
func (f *fleet) leads(ctx SpecContext, name string) {
	GinkgoHelper()
	var leader uint64
	f.talos.Change(f.addresses[name], func(_ *talos.Machine, e *talos.Etcd) { leader = e.MemberID })
	for _, address := range f.addresses {
		f.talos.Change(address, func(_ *talos.Machine, e *talos.Etcd) {
			if e != nil {
				e.Leader = leader
			}
		})
	}
	cluster := f.cluster()
	Expect(admin.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
	cluster.Status.EtcdLeader = "c-" + name
	Expect(admin.Status().Update(ctx, cluster)).To(Succeed())
}

var plannedKinds = map[string]planned{
	"an upgrade of Talos, with labels, a hold, a leader and a percentage of the workers": {
		kind: v1alpha1.TalosKind, fleet: ordered,
		spec:   v1alpha1.TalosOperationSpec{MaxUnavailable: ptr.To(intstr.FromString("40%"))}, // Of five workers, the held one included, two.
		target: v1alpha1.OperationTarget{TalosVersion: newVersion},
		calls:  map[string]string{"Pull": "PullImage", "Upgrade": "InstallImage"},
		groups: [][]string{{"c-cp3"}, {"c-cp1"}, {"c-cp2"}, {"c-w4", "c-w2"}, {"c-w1", "c-w5"}},
	},
	"an upgrade of more machines than pull at once": {
		kind: v1alpha1.TalosKind, fleet: func(ctx SpecContext) *fleet { return newFleet(ctx, 1, 11) },
		spec:   v1alpha1.TalosOperationSpec{MaxUnavailable: ptr.To(intstr.FromInt32(8))},
		target: v1alpha1.OperationTarget{TalosVersion: newVersion},
		calls:  map[string]string{"Pull": "PullImage", "Upgrade": "InstallImage"},
		groups: [][]string{{"c-cp1"}, {"c-w1", "c-w10", "c-w11", "c-w2", "c-w3", "c-w4", "c-w5", "c-w6"}, {"c-w7", "c-w8", "c-w9"}},
	},
	"a roll-out of machine configs, with a canary": {
		kind: v1alpha1.ConfigKind, fleet: func(ctx SpecContext) *fleet {
			f := ordered(ctx)
			f.asksFor(ctx, rebootPatch)
			return f
		},
		spec:   v1alpha1.TalosOperationSpec{MaxUnavailable: ptr.To(intstr.FromString("40%"))},
		calls:  map[string]string{"Check": "CheckConfig", "Canary": "ApplyConfig", "Rollout": "ApplyConfig"},
		groups: [][]string{{"c-cp3"}, {"c-cp1"}, {"c-cp2"}, {"c-w2", "c-w1"}, {"c-w5"}},
	},
	"a stop in batches, with labels, a hold and a leader": {
		kind: v1alpha1.ShutdownKind, fleet: func(ctx SpecContext) *fleet {
			f := ordered(ctx)
			f.powered(ctx, 3)
			return f
		},
		spec: v1alpha1.TalosOperationSpec{
			MaxUnavailable: ptr.To(intstr.FromString("40%")), Shutdown: &v1alpha1.ShutdownParameters{Action: v1alpha1.ClusterStop, Snapshot: v1alpha1.ShutdownSnapshotNone},
		},
		calls:  map[string]string{"Workers": "Shutdown", "ControlPlanes": "Shutdown"},
		stage:  "ControlPlanes",
		groups: [][]string{{"c-cp3"}, {"c-cp1"}, {"c-cp2"}},
	},
	"an upgrade of Kubernetes": {
		kind: v1alpha1.KubernetesKind, fleet: func(ctx SpecContext) *fleet {
			f := ordered(ctx)
			f.runsKubernetes(ctx, oldKubernetes, newKubernetes)
			return f
		},
		spec:   v1alpha1.TalosOperationSpec{MaxUnavailable: ptr.To(intstr.FromInt32(2))},
		target: v1alpha1.OperationTarget{KubernetesVersion: newKubernetes},
		calls:  map[string]string{"PrePull": "PullImage", "APIServer": "ApplyConfig", "Kubelets": "kube Drain"},
		stage:  "Kubelets",
		groups: [][]string{{"c-cp3"}, {"c-cp1"}, {"c-cp2"}, {"c-w4", "c-w2"}, {"c-w1", "c-w5"}},
	},
	"an upgrade of the hub, which takes no machine": {
		kind: v1alpha1.IchorKind, fleet: func(ctx SpecContext) *fleet {
			f := ordered(ctx)
			f.upgradesHub(ctx)
			return f
		},
		target: v1alpha1.OperationTarget{IchorVersion: newHub},
	},
	"a reboot of a machine that is held": {
		kind: v1alpha1.NodeKind, fleet: ordered,
		spec:   v1alpha1.TalosOperationSpec{Node: &v1alpha1.NodeParameters{Machine: "w3", Action: v1alpha1.RebootAction}},
		calls:  map[string]string{"Reboot": "Reboot"},
		groups: [][]string{{"c-w3"}},
	},
	"a restore of etcd": {
		kind: v1alpha1.EtcdRestoreKind, fleet: func(ctx SpecContext) *fleet { return newRestoreFleet(ctx, 3, 2) },
		spec:   restore(v1alpha1.SafetySnapshotNone),
		calls:  map[string]string{"Wipe": "Reset", "Kubelets": "RestartService"},
		stage:  "Wipe",
		groups: [][]string{{"c-cp1", "c-cp2", "c-cp3"}},
	},
	"a rotation of an authority": {
		kind: v1alpha1.CARotationKind, fleet: func(ctx SpecContext) *fleet {
			f := newFleet(ctx, 3, 3)
			f.leads(ctx, "cp2")
			f.hasAuthorities(ctx, newVersion)
			f.annotations = confirmed(talosCA)
			return f
		},
		spec: v1alpha1.TalosOperationSpec{
			MaxUnavailable: ptr.To(intstr.FromInt32(2)), CARotation: &v1alpha1.CARotationParameters{Authorities: []v1alpha1.CAAuthority{talosCA}},
		},
		calls:  map[string]string{"TalosAccept": "ApplyConfig"},
		stage:  "TalosAccept",
		groups: [][]string{{"c-cp1"}, {"c-cp3"}, {"c-cp2"}, {"c-w1", "c-w2"}, {"c-w3"}},
	},
	"a rotation of a key": {
		kind: v1alpha1.KeyRotationKind, fleet: func(ctx SpecContext) *fleet {
			f := newFleet(ctx, 3, 0)
			f.rotates(ctx, newVersion, false)
			f.leads(ctx, "cp2")
			return f
		},
		spec:   rotation(v1alpha1.ServiceAccountKey),
		calls:  map[string]string{"Check": "CheckConfig", "AcceptServiceAccount": "ApplyConfig"},
		stage:  "AcceptServiceAccount",
		groups: [][]string{{"c-cp1"}, {"c-cp3"}, {"c-cp2"}},
	},
}

var _ = Describe("A plan", func() {
	It("is held to the run for every kind that there is", func(ctx SpecContext) {
		covered := map[v1alpha1.OperationKind]bool{}
		for _, row := range plannedKinds {
			covered[row.kind] = true
		}
		Expect(slices.Sorted(maps.Keys(covered))).To(Equal(slices.Sorted(maps.Keys(newFleet(ctx, 1, 0).executors))))
	})

	for name, row := range plannedKinds {
		It("names the groups in which machines go: "+name, func(ctx SpecContext) {
			f := row.fleet(ctx)
			spec := row.spec
			spec.Kind, spec.ClusterName = row.kind, "c"
			hub := &service.Service{Client: admin, Now: time.Now, Installation: f.installation()}
			start, err := hub.Plan(ctx, service.Order{
				Cluster: client.ObjectKey{Namespace: f.namespace, Name: "c"}, Spec: spec, Target: row.target,
			})
			Expect(err).NotTo(HaveOccurred())
			groups := start.Groups()
			shown := slices.IndexFunc(start.Plan.Stages, func(stage plan.Stage) bool { return stage.Name == row.stage })
			if row.stage == "" {
				shown = len(groups) - 1
			}
			Expect(groups[shown]).To(Equal(row.groups))

			stops := f.stopAll(start, row.calls)
			f.startHub()
			op := f.create(ctx, "planned", start.Spec)
			for i, stage := range start.Plan.Stages {
				if stops[stage.Name] != nil {
					f.runsInGroups(ctx, op, stops[stage.Name], groups[i])
				}
			}
			Eventually(now(ctx, op), time.Minute).Should(And(beCompleted(), HaveField("Status.Held", start.Plan.Held)))
		})
	}
})

// stopAll stops, in each stage of a plan, every machine before its first call there.
func (f *fleet) stopAll(start *service.Start, calls map[string]string) map[string]map[string]*script.Stop {
	stops := map[string]map[string]*script.Stop{}
	for _, stage := range start.Plan.Stages {
		call := calls[stage.Name]
		if call == "" {
			continue
		}
		stops[stage.Name] = map[string]*script.Stop{}
		for _, machine := range stage.Machines {
			node := machine[len("c-"):]
			if call, ofNode := strings.CutPrefix(call, "kube "); ofNode {
				stops[stage.Name][machine] = f.kube.HangBefore(call, node)
				continue
			}
			stops[stage.Name][machine] = f.talos.HangBefore(call, f.addresses[node])
		}
	}
	return stops
}

// runsInGroups sees every machine of a group come to its first call before the first of the next does, and then lets the group go.
func (f *fleet) runsInGroups(ctx SpecContext, op *v1alpha1.TalosOperation, stops map[string]*script.Stop, groups [][]string) {
	GinkgoHelper()
	for i, group := range groups {
		for _, machine := range group {
			Eventually(stops[machine].Reached, time.Minute).Should(BeClosed(), func() string {
				op, _ := now(ctx, op)()
				return fmt.Sprintf("%s is in group %d:\n%s", machine, i, format.Object(op.Status.Machines, 1))
			})
		}
		later := slices.Concat(groups[i+1:]...)
		Consistently(func() []string {
			return slices.DeleteFunc(slices.Clone(later), func(machine string) bool { return !closed(stops[machine].Reached) })
		}, 200*time.Millisecond).Should(BeEmpty(), "nobody goes before group %d has gone", i)
		for _, machine := range group {
			stops[machine].Release()
		}
	}
}

func closed(signal <-chan struct{}) bool {
	select {
	case <-signal:
		return true
	default:
		return false
	}
}
