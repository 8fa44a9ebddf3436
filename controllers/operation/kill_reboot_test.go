// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/node"
	talosupgrade "ichor.maesh.dev/hub/controllers/operation/kind/talos"
)

// rebootCalls are the calls of a machine's way through a reboot.
var rebootCalls = map[v1alpha1.OperationStep]findCall{
	v1alpha1.ForfeitingStep:  toTalos("ForfeitLeadership"),
	v1alpha1.EvacuatingStep:  toKube("Annotate"),
	v1alpha1.DrainingStep:    toKube("Drain"),
	v1alpha1.RebootingStep:   toTalos("Reboot"),
	v1alpha1.UncordoningStep: toKube("Uncordon"),
}

// with are the calls of a kind that reboots, and its own.
func (v victim) with(own map[v1alpha1.OperationStep]findCall) victim {
	v.calls = maps.Clone(rebootCalls)
	maps.Copy(v.calls, own)
	return v
}

// prepareReboot makes a target on which a step of the reboot is taken that others do without.
func prepareReboot(ctx context.Context, f *fleet, step kind.Step) {
	switch step.Name {
	case v1alpha1.UpgradingStep:
		f.runs(ctx, "v1.12.4", "v1.13.9")
	case v1alpha1.EvacuatingStep:
		f.holdsReplicas("cp1", 3)
	}
}

var (
	_ = addVictim("kind talos", victim{
		steps: snapshotSteps(talosupgrade.New(nil, nil, "", nil).Steps(), false), spec: upgrade, prepare: prepareReboot, expect: expectNothingTwice,
	}.with(map[v1alpha1.OperationStep]findCall{
		v1alpha1.PullingStep: toTalos("PullImage"), v1alpha1.InstallingStep: toTalos("InstallImage"), v1alpha1.UpgradingStep: toTalos("Upgrade"),
	}))

	_ = addVictim("kind node, action Reboot", victim{
		steps: node.StepsOf(v1alpha1.RebootAction), spec: func() v1alpha1.TalosOperationSpec { return reboot("c-cp1") },
		prepare: prepareReboot, expect: expectNothingTwice,
	}.with(nil))
)

// expectNothingTwice holds the calls that were made against those that may be made. An installation whose outcome is not known may be
// repeated once.
func expectNothingTwice(f *fleet, step kind.Step, unknown bool) {
	GinkgoHelper()
	count := map[string]int{}
	for _, call := range f.calls("Reboot", "InstallImage", "Upgrade") {
		count[call]++
	}
	for call, times := range count {
		if unknown && call == "InstallImage cp1" && step.Name == v1alpha1.InstallingStep {
			Expect(times).To(BeNumerically("<=", 2))
			continue
		}
		Expect(times).To(Equal(1), call)
	}
	Expect(count).To(Or(HaveKey("Reboot cp1"), HaveKey("Upgrade cp1")))
	Expect(f.kube.Get("cp1")).To(And(HaveField("Unschedulable", false), HaveField("CordonedBy", "")))
	Expect(f.kube.Get("cp1").Storage).NotTo(HaveKey(v1alpha1.StorageEvacuatedByAnnotation))
}
