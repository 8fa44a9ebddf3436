// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/kube"
)

// updateGolden writes the golden files instead of comparing with them.
var updateGolden = os.Getenv("UPDATE_GOLDEN") != ""

// Every row of the pause table, and every other answer to why an operation does not move, as an object of the API. The CLI has golden
// files of what it makes of these very objects.
var _ = DescribeTable("An operation that does not move says why", func(ctx SpecContext, row, reason string, controlPlanes, workers int, arrange func(context.Context, *fleet) *v1alpha1.TalosOperation, condition string) {
	f := newFleet(ctx, controlPlanes, workers)
	if row == "NoExecutor" {
		delete(f.executors, v1alpha1.IchorKind)
	}
	f.startHub()
	op := arrange(ctx, f)
	status := metav1.ConditionTrue
	if condition == v1alpha1.ProgressingCondition {
		status = metav1.ConditionFalse
	}
	Eventually(now(ctx, op)).Should(haveCondition(condition, status, reason, Not(BeEmpty())))
	expectGolden(filepath.Join("testdata", "rows", row+".yaml"), func() (string, error) {
		current, err := now(ctx, op)()
		return f.timeless(current), err
	})
},
	Entry("ClusterPaused", "ClusterPaused", "ClusterPaused", 1, 1, func(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
		pauseCluster(ctx, f, true)
		return f.create(ctx, "up", upgrade())
	}, "Paused"),
	Entry("OperatorPaused", "OperatorPaused", "OperatorPaused", 1, 1, func(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
		spec := upgrade()
		spec.Paused = ptr.To(true)
		return f.create(ctx, "up", spec)
	}, "Paused"),
	Entry("StatusLost", "StatusLost", "StatusLost", 1, 1, func(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(beCompleted())
		f.kube.SetRecord(kube.Record{OwnerID: ownerID})
		lost := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{
			Namespace: f.namespace, Name: "lost", Annotations: map[string]string{"ichor.maesh.dev/started-at": "2026-01-01T00:00:00Z"},
		}, Spec: upgrade()}
		lost.Spec.ClusterName = "c"
		Expect(admin.Create(ctx, lost)).To(Succeed())
		return lost
	}, "Paused"),
	Entry("StatusLost of a reboot", "StatusLost-reboot", "StatusLost", 1, 1, func(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
		lost := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{
			Namespace: f.namespace, Name: "lost", Annotations: map[string]string{"ichor.maesh.dev/started-at": "2026-01-01T00:00:00Z"},
		}, Spec: reboot("c-w1")}
		lost.Spec.ClusterName = "c"
		Expect(admin.Create(ctx, lost)).To(Succeed())
		return lost
	}, "Paused"),
	Entry("Refused for another hub", "Refused-TargetOwned", "Refused", 1, 0, func(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
		f.kube.SetRecord(kube.Record{OwnerID: "another-hub"})
		return f.create(ctx, "up", upgrade())
	}, "Paused"),
	Entry("StepFailed", "StepFailed", "StepFailed", 3, 1, func(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
		f.talos.ExitWith(f.addresses["cp2"], 4)
		return f.create(ctx, "up", upgrade())
	}, "Paused"),
	Entry("NoExecutor", "NoExecutor", "NoExecutor", 1, 0, func(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
		return f.create(ctx, "ichor", v1alpha1.TalosOperationSpec{Kind: v1alpha1.IchorKind})
	}, "Paused"),
	Entry("Refused", "Refused", "Refused", 2, 0, func(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
		return f.create(ctx, "up", upgrade())
	}, "Paused"),
	Entry("WaitingForWindow", "WaitingForWindow", "WaitingForWindow", 1, 0, func(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
		closed := v1alpha1.MaintenanceWindow{Schedule: "0 0 29 2 *", DurationSeconds: 60}
		change(ctx, f.cluster(), func(c *v1alpha1.TalosCluster) { c.Spec.MaintenanceWindows = []v1alpha1.MaintenanceWindow{closed} })
		return f.create(ctx, "up", upgrade())
	}, "Paused"),
	Entry("ControlPlaneTransitioning", "ControlPlaneTransitioning", "ControlPlaneTransitioning", 4, 0, func(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
		return f.create(ctx, "up", upgrade())
	}, "Paused"),
	Entry("ClusterLockHeld", "ClusterLockHeld", "ClusterLockHeld", 1, 1, func(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
		f.kube.FailNext("Drain", "cp1", fmt.Errorf("draining: %w", errForbidden))
		Eventually(now(ctx, f.create(ctx, "first", upgrade()))).Should(bePaused("StepFailed", Not(BeEmpty())))
		return f.create(ctx, "second", reboot("c-w1"))
	}, "Paused"),
	Entry("TargetMissing", "TargetMissing", "TargetMissing", 1, 0, func(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
		op := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "up"}, Spec: upgrade()}
		op.Spec.ClusterName = "nowhere"
		Expect(admin.Create(ctx, op)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(admin.Delete(ctx, op)).To(Succeed()) })
		return op
	}, "Paused"),
	Entry("WorkersAvailable", "WorkersAvailable", "WorkersAvailable", 1, 2, func(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
		f.kube.Change("w2", func(n *kube.Node) { n.Unschedulable = true })
		return f.create(ctx, "re", reboot("c-w1"))
	}, "Progressing"),
	Entry("EtcdHealthy", "EtcdHealthy", "EtcdHealthy", 3, 0, func(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
		f.talos.Silence(f.addresses["cp3"], true)
		return f.create(ctx, "re", reboot("c-cp2"))
	}, "Progressing"),
	Entry("CredentialsConfirmed", "CredentialsConfirmed", "CredentialsConfirmed", 1, 0, func(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
		f.hasAuthorities(ctx, "v1.14.1")
		return f.create(ctx, "rotate", rotates(talosCA)())
	}, "Progressing"),
	Entry("DeletionBlocked", "DeletionBlocked", "DeletionBlocked", 1, 1, func(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
		f.kube.FailNext("Drain", "cp1", fmt.Errorf("draining: %w", errForbidden))
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", Not(BeEmpty())))
		Expect(admin.Delete(ctx, op)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			change(ctx, op, func(o *v1alpha1.TalosOperation) {
				metav1.SetMetaDataAnnotation(&o.ObjectMeta, "ichor.maesh.dev/force-delete", "true")
			})
			Eventually(isGone(ctx, op)).Should(BeTrue())
		})
		return op
	}, "Progressing"),
)

var (
	anyTime       = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	anyGeneration = regexp.MustCompile(`observedGeneration: \d+`) // A deletion is another generation, which not every condition has seen.
	anyUUID       = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	anyHash       = regexp.MustCompile(`[0-9a-f]{64}`) // Of a config with a new authority in it.
)

// timeless is an operation as YAML without what differs from run to run.
func (f *fleet) timeless(op *v1alpha1.TalosOperation) string {
	GinkgoHelper()
	op = op.DeepCopy()
	op.ManagedFields, op.ResourceVersion, op.Generation = nil, "", 0
	op.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TalosOperation"))
	data, err := yaml.Marshal(op)
	Expect(err).NotTo(HaveOccurred())
	text := strings.ReplaceAll(string(data), f.namespace, "fleet")
	text = anyTime.ReplaceAllString(text, "2026-01-01T00:00:00Z")
	text = anyGeneration.ReplaceAllString(text, "observedGeneration: 1")
	text = anyHash.ReplaceAllString(text, strings.Repeat("0", 64))
	return anyUUID.ReplaceAllString(text, "00000000-0000-0000-0000-000000000000")
}

// expectGolden expects a text to become that of a file: an operation gives its lock back a moment after it has said why it does not move.
func expectGolden(file string, text func() (string, error)) {
	GinkgoHelper()
	if updateGolden {
		text, err := text()
		Expect(err).NotTo(HaveOccurred())
		Expect(os.MkdirAll(filepath.Dir(file), 0o755)).To(Succeed())
		Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
	}
	want, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred(), "write it with UPDATE_GOLDEN=1")
	Eventually(text).Should(Equal(string(want)))
}
