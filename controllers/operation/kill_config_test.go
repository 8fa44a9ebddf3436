// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/config"
)

var _ = addVictim("kind config", victim{
	steps: config.New(nil, nil, nil, nil).Steps(), spec: func() v1alpha1.TalosOperationSpec { return rollout() },
	prepare: func(ctx context.Context, f *fleet, step kind.Step) {
		f.asksFor(ctx, patchFor(step))
		prepareReboot(ctx, f, step)
	},
	expect: expectConfigOnce,
}.with(map[v1alpha1.OperationStep]findCall{
	v1alpha1.CheckingStep: toTalos("CheckConfig"), v1alpha1.StagingStep: toTalos("ApplyConfig"), v1alpha1.ApplyingStep: toTalos("ApplyConfig"),
}))

// expectConfigOnce expects every machine to have its config, to have been given it once, unless nobody knows whether it was, and to have
// rebooted once, unless it needed no reboot.
func expectConfigOnce(f *fleet, step kind.Step, unknown bool) {
	GinkgoHelper()
	if step.Name != v1alpha1.ApplyingStep {
		expectNothingTwice(f, step, unknown)
	} else {
		Expect(f.calls("Reboot")).To(BeEmpty())
	}
	for name, address := range f.addresses {
		own := f.talos.ConfigOf(address)
		Expect(own.Active).To(Equal(own.Persistent), name)
		Expect(own.Active).NotTo(Equal(f.configOf(name)), name)
		times := 0
		for _, call := range f.calls("ApplyConfig") {
			if call == "ApplyConfig "+name {
				times++
			}
		}
		if most := 1; name == "cp1" && unknown && (step.Name == v1alpha1.StagingStep || step.Name == v1alpha1.ApplyingStep) {
			Expect(times).To(BeNumerically("<=", most+1), name)
		} else {
			Expect(times).To(Equal(most), name)
		}
	}
}
