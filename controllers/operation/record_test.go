// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/kube"
)

var _ = Describe("The record on the target", func() {
	It("says what was begun there, before it begins", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		install := f.talos.HangBefore("InstallImage", f.addresses["cp1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(install.Reached).Should(BeClosed())
		current, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		first := kube.Record{OwnerID: ownerID, OperationID: current.Status.OperationID, Stage: "Upgrade", Sequence: 1}
		Expect(f.kube.Record().Same(first)).To(BeTrue(), "%+v", f.kube.Record())
		install.Release()
		Eventually(now(ctx, op)).Should(And(beCompleted(), HaveField("Status.Sequence", BeEquivalentTo(4))), "install and reboot, twice")
		Expect(f.kube.Record().Sequence).To(BeEquivalentTo(4))

		Eventually(now(ctx, f.create(ctx, "re", reboot("c-w1")))).Should(And(beCompleted(), HaveField("Status.Sequence", BeEquivalentTo(6))))
		Expect(f.kube.Record()).To(And(HaveField("Stage", "Reboot"), HaveField("Sequence", BeEquivalentTo(6))))
	})

	It("that another hub wrote keeps this one off, until it is this one's", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.kube.SetRecord(kube.Record{OwnerID: "another-hub", OperationID: "x", Sequence: 9})
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(And(
			bePaused("Refused", And(ContainSubstring("TargetOwned: another hub manages cluster c, under owner ID another-hub"), ContainSubstring("ichor operation resume up"))),
			haveCondition("LockHeld", metav1.ConditionFalse, "Released", BeEmpty()),
		))
		Expect(f.calls()).To(BeEmpty())
		Expect(f.kube.Calls()).To(BeEmpty())

		f.kube.SetRecord(kube.Record{OwnerID: ownerID, OperationID: "x", Sequence: 9})
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(And(beCompleted(), HaveField("Status.Sequence", BeNumerically(">", 9))))
	})

	It("stops a hub whose target another one takes over in the middle", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		install := f.talos.HangBefore("InstallImage", f.addresses["cp1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(install.Reached).Should(BeClosed())
		f.kube.SetRecord(kube.Record{OwnerID: "another-hub", Sequence: 9})
		install.Release()
		Eventually(now(ctx, op)).Should(bePaused("Refused", ContainSubstring("TargetOwned")))
		Consistently(func() []string { return f.calls("Reboot") }, 300*time.Millisecond).Should(BeEmpty())
	})

	It("exposes a status that a backup brought back, and an upgrade finds done what is done", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		stop := f.talos.HangBefore("InstallImage", f.addresses["w1"])
		first := f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(stop.Reached).Should(BeClosed())
		backup, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		stop.Release()
		second := f.talos.HangBefore("InstallImage", f.addresses["w2"])
		Eventually(second.Reached).Should(BeClosed())
		first.kill()

		older, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		older.Status = backup.Status
		Expect(admin.Status().Update(ctx, older)).To(Succeed())
		f.startHub()
		Eventually(now(ctx, op)).Should(And(
			bePaused("StatusLost", And(ContainSubstring("older than what was begun"), HaveSuffix("run it again with: ichor operation resume up"))),
			haveCondition("LockHeld", metav1.ConditionFalse, "Released", BeEmpty()),
			haveCondition("Succeeded", metav1.ConditionFalse, "Failed", Not(BeEmpty())),
		))
		Consistently(func() []string { return f.calls("Reboot") }, 300*time.Millisecond).Should(Equal([]string{"Reboot cp1", "Reboot w1"}))
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot cp1", "Reboot w1", "Reboot w2"}))
	})

	It("is not lost of a reboot that is resumed after another operation ran and was deleted", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.talos.FailNext("Reboot", f.addresses["w1"], status.Error(codes.PermissionDenied, "not authorized"))
		f.startHub()
		op := f.create(ctx, "first", reboot("c-w1"))
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("not authorized")))
		successor := f.create(ctx, "second", reboot("c-w2"))
		Eventually(now(ctx, successor)).Should(beCompleted())
		Eventually(now(ctx, successor)).Should(haveCondition("LockHeld", metav1.ConditionFalse, "Released", BeEmpty()))
		Expect(admin.Delete(ctx, successor)).To(Succeed())
		Eventually(isGone(ctx, successor)).Should(BeTrue())
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot w2", "Reboot w1"}))
	})

	It("lets nobody repeat a reboot whose status was lost", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		op := f.create(ctx, "re", reboot("c-w1"))
		change(ctx, op, func(o *v1alpha1.TalosOperation) {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, "ichor.maesh.dev/started-at", "2026-01-01T00:00:00Z")
		})
		f.startHub()
		Eventually(now(ctx, op)).Should(bePaused("StatusLost", ContainSubstring("then create it anew, and: ichor operation delete re")))
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(HaveField("Annotations", Not(HaveKey("ichor.maesh.dev/retry"))))
		Consistently(now(ctx, op), 300*time.Millisecond).Should(bePaused("StatusLost", Not(BeEmpty())))
		Expect(f.calls()).To(BeEmpty())
		Eventually(now(ctx, f.create(ctx, "again", reboot("c-w1")))).Should(beCompleted())
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(isGone(ctx, op)).Should(BeTrue())
	})

	It("lets an upgrade whose status was lost run again when asked", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		op := f.create(ctx, "up", upgrade())
		change(ctx, op, func(o *v1alpha1.TalosOperation) {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, "ichor.maesh.dev/started-at", "2026-01-01T00:00:00Z")
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, "ichor.maesh.dev/operation-id", "as-it-was")
		})
		f.kube.SetRecord(kube.Record{OwnerID: ownerID, OperationID: "as-it-was", Sequence: 3})
		f.startHub()
		Eventually(now(ctx, op)).Should(bePaused("StatusLost", Not(BeEmpty())))
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(And(beCompleted(), HaveField("Status.OperationID", Not(Equal("as-it-was"))), HaveField("Status.FailureReason", BeEmpty())))
	})

	It("completes an operation again that had completed before its status was lost", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		first := f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, op)).Should(And(beCompleted(), HaveField("Annotations", HaveKey("ichor.maesh.dev/completed-at"))))
		first.kill()
		moved, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		completed := moved.Status.CompletionTime
		moved.Status = v1alpha1.TalosOperationStatus{}
		Expect(admin.Status().Update(ctx, moved)).To(Succeed())
		f.startHub()
		Eventually(now(ctx, op)).Should(And(beCompleted(), HaveField("Status.CompletionTime.Time", BeTemporally("==", completed.Time))))
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot w1"}))
	})
})
