// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	"Upgrading":   func(f *fleet) (*script.Script, string, string) { return f.talos.Script, "Upgrade", f.addresses["cp1"] },
	"Evacuating":  func(f *fleet) (*script.Script, string, string) { return f.kube.Script, "Annotate", "cp1" },
	"Draining":    func(f *fleet) (*script.Script, string, string) { return f.kube.Script, "Drain", "cp1" },
	"Rebooting":   func(f *fleet) (*script.Script, string, string) { return f.talos.Script, "Reboot", f.addresses["cp1"] },
	"Uncordoning": func(f *fleet) (*script.Script, string, string) { return f.kube.Script, "Uncordon", "cp1" },
}

// before makes a target on which a step is taken that others do without.
var before = map[v1alpha1.OperationStep]func(context.Context, *fleet){
	"Upgrading":  func(ctx context.Context, f *fleet) { f.runs(ctx, "v1.12.4", "v1.13.9") },
	"Evacuating": func(_ context.Context, f *fleet) { f.holdsReplicas("cp1", 3) },
}

var kinds = map[string]struct {
	steps []kind.Step
	spec  func() v1alpha1.TalosOperationSpec
}{
	"talos": {steps: talosupgrade.New(nil, nil, "").Steps(), spec: upgrade},
	"node":  {steps: node.New(nil, nil).Steps(), spec: func() v1alpha1.TalosOperationSpec { return reboot("c-cp1") }},
}

// The matrix has a row for every step that an executor declares, so that no step can exist without one: killed before the claim is
// written, after it is and before the call arrives, and after the call has taken effect and before anybody knows. A hub that loses its
// leadership goes on running, and finds out only when it asks.
var _ = Describe("A hub that is killed (B16, E6)", func() {
	for name, k := range kinds {
		for _, step := range k.steps {
			It(fmt.Sprintf("goes on: kind %s, %s not claimed yet", name, step.Name), func(ctx SpecContext) {
				killBeforeTheClaim(ctx, k.spec(), step)
			})
			if step.Waits {
				continue
			}
			It(fmt.Sprintf("goes on: kind %s, %s claimed and not called", name, step.Name), func(ctx SpecContext) {
				killAndGoOn(ctx, k.spec(), step, (*script.Script).HangBefore)
			})
			It(fmt.Sprintf("goes on: kind %s, %s called and not recorded", name, step.Name), func(ctx SpecContext) {
				killAndGoOn(ctx, k.spec(), step, (*script.Script).HangAfter)
			})
			It(fmt.Sprintf("does nothing more when another leads: kind %s, %s claimed and not called", name, step.Name), func(ctx SpecContext) {
				replaceAndGoOn(ctx, k.spec(), step, false)
			})
			It(fmt.Sprintf("does nothing more when another leads: kind %s, %s called and not recorded", name, step.Name), func(ctx SpecContext) {
				replaceAndGoOn(ctx, k.spec(), step, true)
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

// fleetFor makes a target on which cp1 goes through a step.
func fleetFor(ctx context.Context, step kind.Step) *fleet {
	f := newFleet(ctx, 3, 1)
	if prepare := before[step.Name]; prepare != nil {
		prepare(ctx, f)
	}
	return f
}

// killAndGoOn kills the hub at a call and starts another one. Whatever happened, no machine reboots twice, and a system whose
// installation was recorded is not installed again.
func killAndGoOn(ctx context.Context, spec v1alpha1.TalosOperationSpec, step kind.Step, hang func(*script.Script, string, string) *script.Stop) {
	GinkgoHelper()
	f := fleetFor(ctx, step)
	find, ok := callOf[step.Name]
	Expect(ok).To(BeTrue(), "step %s has no row in the kill matrix", step.Name)
	stop := hang(find(f))
	first := f.startHub()
	op := f.create(ctx, "op", spec)
	Eventually(stop.Reached).Should(BeClosed())
	first.kill()

	f.startHub()
	Eventually(now(ctx, op)).Should(beCompleted())
	f.expectNothingTwice(step, true)
}

// expectNothingTwice holds the calls that were made against those that may be made. An installation whose outcome is not known may be
// repeated once.
func (f *fleet) expectNothingTwice(step kind.Step, unknown bool) {
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

// killBeforeTheClaim kills the hub after it has decided to take a step of cp1, and before anybody can know that.
func killBeforeTheClaim(ctx context.Context, spec v1alpha1.TalosOperationSpec, step kind.Step) {
	GinkgoHelper()
	f := fleetFor(ctx, step)
	stalled := &stalledClaim{step: step.Name, reached: make(chan struct{})}
	f.client = func(c client.Client) client.Client { return &stalledClient{Client: c, stalled: stalled} }
	first := f.startHub()
	op := f.create(ctx, "op", spec)
	Eventually(stalled.reached).Should(BeClosed())
	first.kill()

	f.client = nil
	f.startHub()
	Eventually(now(ctx, op)).Should(beCompleted())
	f.expectNothingTwice(step, false)
}

// stalledClaim keeps the claim of a step from being written, until the process ends.
type stalledClaim struct {
	step    v1alpha1.OperationStep
	once    sync.Once
	reached chan struct{}
}

type stalledClient struct {
	client.Client

	stalled *stalledClaim
}

// Status implements client.Client.
func (c *stalledClient) Status() client.SubResourceWriter {
	return &stalledStatus{SubResourceWriter: c.Client.Status(), stalled: c.stalled}
}

type stalledStatus struct {
	client.SubResourceWriter

	stalled *stalledClaim
}

// Update implements client.SubResourceWriter.
func (s *stalledStatus) Update(ctx context.Context, object client.Object, options ...client.SubResourceUpdateOption) error {
	if op, ok := object.(*v1alpha1.TalosOperation); ok {
		if unit := op.Machine("c-cp1"); unit != nil && unit.Step == s.stalled.step && unit.Outcome == nil {
			s.stalled.once.Do(func() { close(s.stalled.reached) })
			<-ctx.Done()
			return ctx.Err()
		}
	}
	return s.SubResourceWriter.Update(ctx, object, options...)
}

// replaceAndGoOn freezes the hub at the call of a step, lets another one do the work, and then lets the first one go on.
func replaceAndGoOn(ctx context.Context, spec v1alpha1.TalosOperationSpec, step kind.Step, after bool) {
	GinkgoHelper()
	f := fleetFor(ctx, step)
	plain := f.executors[spec.Kind]
	frozen := &frozenCall{Executor: plain, step: step.Name, after: after, reached: make(chan struct{}), released: make(chan struct{})}
	f.executors = map[v1alpha1.OperationKind]kind.Executor{spec.Kind: frozen}
	first := f.startHub()
	op := f.create(ctx, "op", spec)
	Eventually(frozen.reached).Should(BeClosed())

	f.executors = map[v1alpha1.OperationKind]kind.Executor{spec.Kind: plain}
	f.startHub()
	Eventually(now(ctx, op)).Should(beCompleted())
	made := f.calls()
	close(frozen.released)
	Eventually(frozen.ended).Should(BeTrue())
	Eventually(first.fenced).Should(BeClosed())
	Expect(f.calls()).To(Equal(made), "what was held up arrives nowhere")
	f.expectNothingTwice(step, after)
}

// frozenCall is an executor in a process that stops for a while, as in a long garbage collection, and does not hear of anything.
type frozenCall struct {
	kind.Executor

	step              v1alpha1.OperationStep
	after             bool
	once              sync.Once
	reached, released chan struct{}
	over              atomic.Bool
}

// Do implements kind.Executor.
func (c *frozenCall) Do(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep) (outcome kind.Outcome, err error) {
	do := func() { outcome, err = c.Executor.Do(ctx, scope, unit, step) }
	if unit.Status.Name != "c-cp1" || step != c.step {
		do()
		return outcome, err
	}
	if c.after {
		do()
	}
	c.once.Do(func() { close(c.reached) })
	<-c.released
	if !c.after {
		do()
	}
	c.over.Store(true)
	return outcome, err
}

func (c *frozenCall) ended() bool { return c.over.Load() }
