// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/node"
	talosupgrade "ichor.maesh.dev/hub/controllers/operation/kind/talos"
	"ichor.maesh.dev/hub/providers/script"
	"ichor.maesh.dev/hub/providers/talos"
)

// callOf finds the call that a step makes to the machine cp1. A step that is not here fails the matrix.
var callOf = map[v1alpha1.OperationStep]func(*fleet) (s *script.Script, call, subject string){
	"Pulling": func(f *fleet) (*script.Script, string, string) {
		return f.talos.Script, "PullImage", f.addresses["cp1"]
	},
	"Installing": func(f *fleet) (*script.Script, string, string) {
		return f.talos.Script, "InstallImage", f.addresses["cp1"]
	},
	"Forfeiting": func(f *fleet) (*script.Script, string, string) {
		return f.talos.Script, "ForfeitLeadership", f.addresses["cp1"]
	},
	"Draining":    func(f *fleet) (*script.Script, string, string) { return f.kube.Script, "Drain", "cp1" },
	"Rebooting":   func(f *fleet) (*script.Script, string, string) { return f.talos.Script, "Reboot", f.addresses["cp1"] },
	"Uncordoning": func(f *fleet) (*script.Script, string, string) { return f.kube.Script, "Uncordon", "cp1" },
}

var kinds = map[string]struct {
	steps []kind.Step
	spec  func() v1alpha1.TalosOperationSpec
}{
	"talos": {steps: talosupgrade.New(nil, nil, "").Steps(), spec: upgrade},
	"node":  {steps: node.New(nil, nil).Steps(), spec: func() v1alpha1.TalosOperationSpec { return reboot("c-cp1") }},
}

// The matrix has a row for every step that an executor declares, so that no step can exist without one.
var _ = Describe("A hub that is killed", func() {
	for name, k := range kinds {
		for _, step := range k.steps {
			if step.Waits {
				continue
			}
			It(fmt.Sprintf("goes on: kind %s, %s claimed and not called", name, step.Name), func(ctx SpecContext) {
				killAndGoOn(ctx, k.spec(), step, (*script.Script).HangBefore)
			})
			It(fmt.Sprintf("goes on: kind %s, %s called and not recorded", name, step.Name), func(ctx SpecContext) {
				killAndGoOn(ctx, k.spec(), step, (*script.Script).HangAfter)
			})
		}
	}

	It("goes on while a machine is away, and while it proves itself", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 0)
		rebooted := f.talos.Rebooted
		f.talos.Rebooted = func(address string, now talos.Machine) {
			rebooted(address, now)
			f.talos.Silence(address, true)
		}
		first := f.startHub()
		op := f.create(ctx, "re", reboot("c-cp1"))
		Eventually(now(ctx, op)).Should(stepOf("c-cp1", v1alpha1.RebootingStep))
		Eventually(func() []string { return f.calls("Reboot") }).Should(HaveLen(1))
		first.kill()

		second := f.startHub()
		Consistently(now(ctx, op)).Should(stepOf("c-cp1", v1alpha1.RebootingStep))
		f.talos.Change(f.addresses["cp1"], func(m *talos.Machine, _ *talos.Etcd) { m.Stage, m.Ready = "booting", false })
		f.talos.Silence(f.addresses["cp1"], false)
		Eventually(now(ctx, op)).Should(stepOf("c-cp1", v1alpha1.VerifyingStep))
		second.kill()

		f.startHub()
		Consistently(now(ctx, op)).Should(stepOf("c-cp1", v1alpha1.VerifyingStep))
		f.talos.Change(f.addresses["cp1"], func(m *talos.Machine, _ *talos.Etcd) { m.Stage, m.Ready = talos.StageRunning, true })
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot cp1"}))
		Expect(f.kube.Get("cp1")).To(HaveField("Unschedulable", false))
	})
})

func stepOf(machine string, step v1alpha1.OperationStep) OmegaMatcher {
	return WithTransform(func(o *v1alpha1.TalosOperation) v1alpha1.OperationStep {
		if unit := o.Machine(machine); unit != nil {
			return unit.Step
		}
		return ""
	}, Equal(step))
}

// killAndGoOn kills the hub at a call and starts another one. Whatever happened, no machine reboots twice, and a system whose
// installation was recorded is not installed again.
func killAndGoOn(ctx context.Context, spec v1alpha1.TalosOperationSpec, step kind.Step, hang func(*script.Script, string, string) *script.Stop) {
	GinkgoHelper()
	f := newFleet(ctx, 3, 1)
	find, ok := callOf[step.Name]
	Expect(ok).To(BeTrue(), "step %s has no row in the kill matrix", step.Name)
	stop := hang(find(f))
	first := f.startHub()
	op := f.create(ctx, "op", spec)
	Eventually(stop.Reached).Should(BeClosed())
	first.kill()

	f.startHub()
	Eventually(now(ctx, op)).Should(beCompleted())
	count := map[string]int{}
	for _, call := range f.calls("Reboot", "InstallImage") {
		count[call]++
	}
	for call, times := range count {
		if call == "InstallImage cp1" && step.Name == v1alpha1.InstallingStep {
			Expect(times).To(BeNumerically("<=", 2), "an installation whose outcome is not known is repeated once")
			continue
		}
		Expect(times).To(Equal(1), call)
	}
	Expect(count).To(HaveKey("Reboot cp1"))
	Expect(f.kube.Get("cp1")).To(And(HaveField("Unschedulable", false), HaveField("CordonedBy", "")))
}
