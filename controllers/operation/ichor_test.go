// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/ichor"
	"ichor.maesh.dev/hub/providers/installation"
	installationfake "ichor.maesh.dev/hub/providers/installation/fake"
	"ichor.maesh.dev/hub/providers/script"
)

const (
	oldHub = "v0.1.0"
	newHub = "v0.2.0"
)

// hubExecutor is that of a hub which is replaced while its operation runs: its version is what the process at the time is.
type hubExecutor struct {
	*ichor.Executor

	f *fleet
}

// newHubExecutor makes the executor of a hub whose Job replaces it at once.
func newHubExecutor(f *fleet) *hubExecutor {
	f.hub = installationfake.New("registry.example/ichor-hub:" + oldHub)
	f.hubVersion.Store(oldHub)
	f.hub.Started = func(order installation.Order) {
		f.hub.SetDeployment(&installation.Deployment{Image: "registry.example/ichor-hub:" + order.To, RolledOut: true})
		f.hub.SetJob(order.Job, installation.Job{State: installation.JobSucceeded})
		f.hubVersion.Store(order.To)
	}
	return &hubExecutor{Executor: ichor.New(f.hub, oldHub), f: f}
}

func (e *hubExecutor) now() *ichor.Executor {
	return ichor.New(e.f.hub, e.f.hubVersion.Load().(string))
}

// Next implements kind.Executor.
func (e *hubExecutor) Next(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	return e.now().Next(scope, unit, seen)
}

// Settle implements kind.Executor.
func (e *hubExecutor) Settle(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	return e.now().Settle(scope, unit, seen)
}

// Do implements kind.Executor.
func (e *hubExecutor) Do(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep) (kind.Outcome, error) {
	return e.now().Do(ctx, scope, unit, step)
}

// installation is the IchorInstallation of the hubs of a fleet.
func (f *fleet) installation() client.ObjectKey {
	return client.ObjectKey{Namespace: f.namespace, Name: v1alpha1.IchorInstallationName}
}

// upgradesHub writes down what the hub is, and that it shall be another version.
func (f *fleet) upgradesHub(ctx context.Context) {
	GinkgoHelper()
	object := &v1alpha1.IchorInstallation{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: v1alpha1.IchorInstallationName}}
	object.Spec.Version = newHub
	Expect(admin.Create(ctx, object)).To(Succeed())
	object.Status = v1alpha1.IchorInstallationStatus{Version: oldHub, Mode: v1alpha1.KubernetesInstallation, Conditions: []metav1.Condition{{
		Type: v1alpha1.UpgradableCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.UpgradableReason, LastTransitionTime: metav1.Now(),
	}}}
	Expect(admin.Status().Update(ctx, object)).To(Succeed())
}

func upgradeHub() v1alpha1.TalosOperationSpec {
	return v1alpha1.TalosOperationSpec{Kind: v1alpha1.IchorKind}
}

// A step that is repeated finds the Job that is there, whichever hub has made it.
var _ = addVictim("kind ichor", victim{
	steps: ichor.New(nil, "").Steps(), unit: "Install", spec: upgradeHub, controlPlanes: 1,
	prepare: func(ctx context.Context, f *fleet, _ kind.Step) { f.upgradesHub(ctx) },
	calls: map[v1alpha1.OperationStep]findCall{
		v1alpha1.InstallingStep: func(f *fleet) (*script.Script, string, string) { return f.hub.Script, "Install", "hub" },
	},
	expect: func(f *fleet, _ kind.Step, _ bool) {
		GinkgoHelper()
		Expect(f.hub.Jobs()).To(Equal(1))
		Expect(f.hub.Calls()).To(Or(HaveLen(1), HaveLen(2)))
		Expect(f.hub.Calls()).To(HaveEach("Install hub"))
		Expect(f.calls()).To(BeEmpty(), "nothing is done on the cluster that lends its lock")
		Expect(f.kube.Calls()).To(BeEmpty())
	},
})

var _ = Describe("An upgrade of the hub", func() {
	// failing has the Job of an upgrade fail until it is mended.
	failing := func(f *fleet) (mend func()) {
		replaced := f.hub.Started
		f.hub.Started = func(order installation.Order) {
			f.hub.SetJob(order.Job, installation.Job{State: installation.JobFailed, Message: "applying Deployment ichor-hub: quota exceeded"})
		}
		return func() { f.hub.Started = replaced }
	}

	It("goes on where its target does not answer, and under the next hub", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		f.upgradesHub(ctx)
		f.kube.Silence(true)
		f.hub.Started = nil
		first := f.startHub()
		op := f.create(ctx, "up", upgradeHub())
		Eventually(now(ctx, op)).Should(HaveField("Status.Units", ConsistOf(HaveField("Step", v1alpha1.RollingOutStep))))
		first.kill()

		job := ichor.JobName(current(ctx, op).Status.OperationID)
		f.hub.SetDeployment(&installation.Deployment{Image: "registry.example/ichor-hub:" + newHub, RolledOut: true})
		f.hubVersion.Store(newHub)
		f.startHub()
		Consistently(now(ctx, op)).ShouldNot(beCompleted(), "its Job has not ended")
		f.hub.SetJob(job, installation.Job{State: installation.JobSucceeded})
		Eventually(now(ctx, op)).Should(And(beCompleted(), HaveField("Status.Target.IchorVersion", newHub)))
		Eventually(f.events(ctx, op)).Should(ContainElement("Normal Found: Install: the hub is v0.2.0"))
	})

	It("says what its Job failed of, and begins with another one when it is told to", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		f.upgradesHub(ctx)
		mend := failing(f)
		f.startHub()
		op := f.create(ctx, "up", upgradeHub())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", And(
			ContainSubstring("stage Install: installer Job ichor-upgrade-"), ContainSubstring("failed: applying Deployment ichor-hub: quota exceeded"))))
		mend()
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.hub.Jobs()).To(Equal(1), "an operation has one Job")
		Expect(f.hub.Calls()).To(HaveLen(2))
	})

	It("that is paused or deleted in the middle is seen through", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		f.upgradesHub(ctx)
		f.hub.Started = nil
		f.startHub()
		op := f.create(ctx, "up", upgradeHub())
		Eventually(now(ctx, op)).Should(HaveField("Status.Units", ConsistOf(HaveField("Step", v1alpha1.RollingOutStep))))
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionTrue, "Settling", Not(BeEmpty())))
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Consistently(isGone(ctx, op)).Should(BeFalse())
		f.hub.SetDeployment(&installation.Deployment{Image: "registry.example/ichor-hub:" + newHub, RolledOut: true})
		f.hubVersion.Store(newHub)
		f.hub.SetJob(ichor.JobName(current(ctx, op).Status.OperationID), installation.Job{State: installation.JobSucceeded})
		Eventually(isGone(ctx, op)).Should(BeTrue())
	})

	It("is refused where an operation cannot upgrade the hub, or not to that version", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		f.startHub()
		unknown := f.create(ctx, "unknown", upgradeHub())
		Eventually(now(ctx, unknown)).Should(bePaused("Refused", ContainSubstring("there is no IchorInstallation")))
		Expect(admin.Delete(ctx, unknown)).To(Succeed())

		f.upgradesHub(ctx)
		object := &v1alpha1.IchorInstallation{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: v1alpha1.IchorInstallationName}}
		change(ctx, object, func(i *v1alpha1.IchorInstallation) { i.Spec.Version = "v0.3.0" })
		far := f.create(ctx, "far", upgradeHub())
		Eventually(now(ctx, far)).Should(bePaused("Refused", ContainSubstring("HubVersionPath: v0.1.0 to v0.3.0 skips v0.2")))
		Expect(admin.Delete(ctx, far)).To(Succeed())

		change(ctx, object, func(i *v1alpha1.IchorInstallation) { i.Spec.Version = newHub })
		object.Status.Conditions[0].Status, object.Status.Conditions[0].Reason = metav1.ConditionFalse, v1alpha1.HubStandaloneReason
		object.Status.Conditions[0].Message = "the hub runs standalone: replace the binary"
		Expect(admin.Status().Update(ctx, object)).To(Succeed())
		alone := f.create(ctx, "alone", upgradeHub())
		Eventually(now(ctx, alone)).Should(bePaused("Refused", ContainSubstring("HubUpgradable: the hub runs standalone: replace the binary")))
		Expect(f.hub.Jobs()).To(BeZero())
	})

	It("waits until the hub has written down what it is", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		f.upgradesHub(ctx)
		object := &v1alpha1.IchorInstallation{}
		Expect(admin.Get(ctx, f.installation(), object)).To(Succeed())
		known := object.Status.Conditions
		object.Status.Conditions = nil
		Expect(admin.Status().Update(ctx, object)).To(Succeed())
		f.startHub()
		op := f.create(ctx, "up", upgradeHub())
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "HubUpgradable", ContainSubstring("not written down yet")))
		object.Status.Conditions = known
		Expect(admin.Status().Update(ctx, object)).To(Succeed())
		Eventually(now(ctx, op)).Should(beCompleted())
	})

	It("tries again while the management API does not take its Job", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		f.upgradesHub(ctx)
		f.hub.FailNext("Install", "hub", errors.New("connection refused"))
		f.startHub()
		op := f.create(ctx, "up", upgradeHub())
		Eventually(now(ctx, op)).Should(beCompleted())
	})
})

func current(ctx context.Context, op *v1alpha1.TalosOperation) *v1alpha1.TalosOperation {
	GinkgoHelper()
	found, err := now(ctx, op)()
	Expect(err).NotTo(HaveOccurred())
	return found
}
