// SPDX-License-Identifier: Apache-2.0

// Package upgrade_test has a hub upgrade itself: on the real API server, with the real controllers of Jobs, Deployments and ReplicaSets, and with
// a stand-in for the scheduler and the kubelet, which runs what pods run as processes.
package upgrade_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind/ichor"
	"ichor.maesh.dev/hub/hack/kustomize"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/hub/service"
	"ichor.maesh.dev/hub/hub/standalone/pki"
	"ichor.maesh.dev/hub/test/framework"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
)

const (
	config    = "../../../../config"
	namespace = "ichor-system"
	team      = "team-a"

	// The versions of the binaries ichor-hub-first and ichor-hub-next, and one of which the image holds another.
	first, next, mistagged = "v0.1.0", "v0.2.0", "v0.1.1"

	image = "registry.example:5000/ichor-hub"

	// within is far beyond what anything here takes.
	within = 4 * time.Minute

	// chosen is an argument that somebody has added to the Deployment.
	chosen = "--external-url=https://ichor.example.com"
)

func TestMain(m *testing.M) {
	for _, name := range []string{"kube-apiserver", "ichor-hub-first", "ichor-hub-next"} {
		if !framework.MayRun(os.Stderr, name) {
			os.Exit(1)
		}
		if _, err := framework.Binary(name); err != nil {
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// world is a management cluster with a hub, and a fleet.
type world struct {
	*cluster

	admin   client.Client
	service *service.Service
	kubelet *kubelet
	fleet   *sim.Simulator
}

func start(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	g := NewWithT(t)
	dir := t.TempDir()
	c := startCluster(ctx, g, dir, t.Cleanup)
	w := &world{cluster: c}
	var err error
	w.admin, err = client.New(c.config, client.Options{Scheme: scheme.New()})
	g.Expect(err).NotTo(HaveOccurred())
	w.service = &service.Service{Client: w.admin, Now: time.Now, User: "admin"}
	w.kubelet = &kubelet{
		cluster: c, pods: map[string]*runningPod{}, certificate: pki.SelfSignedIn(dir),
		images: map[string]string{first: binaryOf(c, "ichor-hub-first"), next: binaryOf(c, "ichor-hub-next"), mistagged: binaryOf(c, "ichor-hub-next")},
	}
	g.Expect(w.kubelet.certificate.Ensure([]string{"127.0.0.1"}, time.Now())).To(Succeed())
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.kubelet.work(func(err error) { t.Log(err) })
	}()
	t.Cleanup(func() { cancel(); <-over }) // Before the API server goes.
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.kubelet.logs())
		}
	})
	w.fleet, err = sim.Start(ctx, sim.Options{Dir: filepath.Join(dir, "fleet"), Speed: 20, Clusters: []sim.ClusterSpec{
		{Name: "lender", ControlPlanes: 1}, {Name: "busy", ControlPlanes: 1, Workers: 1},
	}})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(w.fleet.Stop)
	w.install()
	return w
}

// install installs the first version as kubectl does, with what somebody has chosen, and as an older release that lacks something.
func (w *world) install() {
	definitions, err := kustomize.Objects(filepath.Join(config, "crd", "cluster-api"))
	w.Expect(err).NotTo(HaveOccurred())
	objects, err := kustomize.Objects(filepath.Join(config, "default"))
	w.Expect(err).NotTo(HaveOccurred())
	for _, object := range append(definitions, objects...) {
		switch object.GetKind() {
		case "Issuer", "Certificate", "ValidatingAdmissionPolicyBinding":
			continue // There is no cert-manager, and the older release did not bind its policies.
		case "Deployment":
			w.choose(object)
		}
		if object.GetName() == "ichor-viewer-rules" {
			unstructured.RemoveNestedField(object.Object, "rules")
		}
		w.Eventually(func() error { // What a definition defines is known a moment later.
			return w.admin.Apply(w.ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner("kubectl"), client.ForceOwnership)
		}).WithTimeout(time.Minute).Should(Succeed(), object.GetName())
	}
	w.Expect(w.admin.Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}})).To(Succeed())
}

func (w *world) choose(object *unstructured.Unstructured) {
	containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	w.Expect(err).NotTo(HaveOccurred())
	hub := containers[0].(map[string]any)
	hub["image"], hub["args"] = image+":"+first, append(hub["args"].([]any), chosen)
	w.Expect(unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec", "containers")).To(Succeed())
	w.Expect(unstructured.SetNestedField(object.Object, int64(1), "spec", "replicas")).To(Succeed())
}

func (w *world) hub() *v1alpha1.IchorInstallation {
	object := &v1alpha1.IchorInstallation{}
	_ = w.admin.Get(w.ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.IchorInstallationName}, object) // Nothing is what there is before.
	return object
}

// bring imports a cluster, and waits until the hub can work on it.
func (w *world) bring(name string) {
	simulated := w.fleet.Cluster(name)
	_, err := w.service.Import(w.ctx, service.Import{
		Name: name, Namespace: team, Kubeconfig: simulated.Kubeconfig(), Talosconfig: simulated.Talosconfig(), Offline: true,
	})
	w.Expect(err).NotTo(HaveOccurred())
	w.await(func() bool {
		object := &v1alpha1.TalosCluster{}
		err := w.admin.Get(w.ctx, client.ObjectKey{Namespace: team, Name: name}, object)
		return err == nil && meta.IsStatusConditionTrue(object.Status.Conditions, v1alpha1.AvailableCondition) && object.Annotations[v1alpha1.MembersApprovedAtAnnotation] != ""
	}, "cluster "+name+" is available")
}

func (w *world) await(holds func() bool, what string) {
	w.Eventually(holds).WithContext(w.ctx).WithTimeout(within).WithPolling(200*time.Millisecond).Should(BeTrue(), what)
}

// begin starts an operation, as the command line does.
func (w *world) begin(cluster string, kind v1alpha1.OperationKind, target v1alpha1.OperationTarget) *v1alpha1.TalosOperation {
	plan, err := w.service.Plan(w.ctx, service.Order{
		Cluster: client.ObjectKey{Namespace: team, Name: cluster}, Spec: v1alpha1.TalosOperationSpec{ClusterName: cluster, Kind: kind}, Target: target,
	})
	w.Expect(err).NotTo(HaveOccurred())
	created, err := w.service.Create(w.ctx, plan, service.CreateOptions{})
	w.Expect(err).NotTo(HaveOccurred())
	return created.Operation
}

func (w *world) now(op *v1alpha1.TalosOperation) func() *v1alpha1.TalosOperation {
	return func() *v1alpha1.TalosOperation {
		current, err := w.service.Operation(w.ctx, client.ObjectKeyFromObject(op))
		if err != nil {
			return &v1alpha1.TalosOperation{}
		}
		return current
	}
}

func (w *world) eventually(op *v1alpha1.TalosOperation, matcher types.GomegaMatcher) {
	w.Eventually(w.now(op)).WithContext(w.ctx).WithTimeout(within).WithPolling(200 * time.Millisecond).Should(matcher)
}

func (w *world) jobs() []string {
	list, err := w.kube.BatchV1().Jobs(namespace).List(w.ctx, metav1.ListOptions{})
	w.Expect(err).NotTo(HaveOccurred())
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func inStep(machine string, step v1alpha1.OperationStep) types.GomegaMatcher {
	return WithTransform(func(op *v1alpha1.TalosOperation) bool {
		return slices.ContainsFunc(op.Status.Machines, func(u v1alpha1.UnitStatus) bool { return u.Name == machine && u.Step == step })
	}, BeTrue())
}

var completed = HaveField("Status.Phase", v1alpha1.OperationCompleted)

// A hub is upgraded while it upgrades a cluster. On the way it fails once, and is killed once.
func TestAHubUpgradesItself(t *testing.T) {
	w := start(t)
	w.await(func() bool { return w.hub().Status.Version == first }, "the hub has written down what it is")
	w.Expect(meta.IsStatusConditionTrue(w.hub().Status.Conditions, v1alpha1.UpgradableCondition)).To(BeTrue(), "%v", w.hub().Status)
	w.bring("lender")
	w.bring("busy")

	stuck, err := w.fleet.Inject(fault.Fault{Name: fault.PodStuck, Cluster: "busy", Node: "worker-1"})
	w.Expect(err).NotTo(HaveOccurred())
	busy := w.begin("busy", v1alpha1.TalosKind, v1alpha1.OperationTarget{TalosVersion: "v1.14.1"})
	w.eventually(busy, inStep("busy-worker-1", v1alpha1.DrainingStep))

	w.fails()
	op := w.succeeds()

	// What ran meanwhile goes on under the new hub, and is done once.
	w.Expect(w.now(busy)()).To(HaveField("Status.FailureReason", BeEmpty()))
	w.Expect(w.now(busy)()).NotTo(completed)
	w.fleet.Clear(stuck)
	w.eventually(busy, completed)
	for _, unit := range w.now(busy)().Status.Machines {
		w.Expect(unit).To(And(HaveField("Phase", v1alpha1.UnitCompleted), HaveField("FailureTime.IsZero()", true)))
	}
	w.Expect(w.now(busy)().Status.CompletionTime.After(w.now(op)().Status.CompletionTime.Time)).To(BeTrue())
}

// fails has the hub upgraded to a version whose image holds another one: what the installer says is what the operation says.
func (w *world) fails() {
	op := w.begin("lender", v1alpha1.IchorKind, v1alpha1.OperationTarget{IchorVersion: mistagged})
	w.eventually(op, HaveField("Status.FailureReason", And(
		ContainSubstring("stage Install: installer Job ichor-upgrade-"),
		ContainSubstring("failed: this is the installer of v0.2.0, and not of v0.1.1: the image has the wrong tag (BackoffLimitExceeded)"))))
	w.Expect(w.deployment().Spec.Template.Spec.Containers[0].Image).To(Equal(image + ":" + first))
	w.Expect(w.hub()).To(And(HaveField("Spec.Version", mistagged), HaveField("Status.Version", first)))
	w.Expect(w.admin.Delete(w.ctx, op)).To(Succeed())
	w.await(func() bool {
		return client.IgnoreNotFound(w.admin.Get(w.ctx, client.ObjectKeyFromObject(op), &v1alpha1.TalosOperation{})) == nil && w.now(op)().Name == ""
	}, "the failed operation is gone")
}

// succeeds has the hub upgraded, and killed once its Job is there.
func (w *world) succeeds() *v1alpha1.TalosOperation {
	w.kubelet.hold("ichor-upgrade-")
	op := w.begin("lender", v1alpha1.IchorKind, v1alpha1.OperationTarget{IchorVersion: next})
	w.eventually(op, HaveField("Status.OperationID", Not(BeEmpty())))
	job := ichor.JobName(w.now(op)().Status.OperationID)
	w.await(func() bool { return slices.Contains(w.jobs(), job) }, "the Job is there")
	w.kubelet.kill("ichor-hub-")
	w.Consistently(w.jobs).WithTimeout(2 * time.Second).Should(HaveLen(2))
	w.kubelet.hold()

	w.eventually(op, completed)
	w.Expect(w.jobs()).To(And(HaveLen(2), ContainElement(job)), "one for each operation, whoever leads")
	found := w.now(op)().Status
	w.Expect(found.Units).To(ConsistOf(HaveField("Message", "the hub is v0.2.0")))
	w.await(func() bool { return w.hub().Status.Version == next }, "the new hub has written down what it is")
	w.Expect(meta.IsStatusConditionTrue(w.hub().Status.Conditions, v1alpha1.UpToDateCondition)).To(BeTrue())

	deployment := w.deployment()
	w.Expect(deployment.Spec.Template.Spec.Containers[0]).To(And(HaveField("Image", image+":"+next), HaveField("Args", ContainElement(chosen))))
	w.Expect(*deployment.Spec.Replicas).To(BeEquivalentTo(1), "somebody has chosen it")
	w.Expect(deployment.Status.Replicas).To(BeEquivalentTo(1))
	role, err := w.kube.RbacV1().ClusterRoles().Get(w.ctx, "ichor-viewer-rules", metav1.GetOptions{})
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(role.Rules).NotTo(BeEmpty(), "the release has them")
	_, err = w.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(w.ctx, "ichor-operations", metav1.GetOptions{})
	w.Expect(err).NotTo(HaveOccurred())
	_, err = w.kube.AdmissionregistrationV1().MutatingAdmissionPolicies().Get(w.ctx, "ichor-created-by", metav1.GetOptions{})
	w.Expect(client.IgnoreNotFound(err)).To(Succeed())
	w.Expect(err).To(HaveOccurred(), "it is installed on its own")
	return op
}

func (w *world) deployment() *appsv1.Deployment {
	deployment, err := w.kube.AppsV1().Deployments(namespace).Get(w.ctx, "ichor-hub", metav1.GetOptions{})
	w.Expect(err).NotTo(HaveOccurred())
	return deployment
}

// A standalone hub says that nobody but its owner upgrades it, and how.
func TestAStandaloneHubRefuses(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	dir := t.TempDir()
	hub, err := framework.StartDaemon(ctx, filepath.Join(dir, "log"), "ichor-hub-first", "serve", "--standalone", "--data-dir", filepath.Join(dir, "data"), "--listen", "0")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(hub.End(syscall.SIGTERM)).To(Succeed()) })
	access, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "data", "kubeconfig"))
	g.Expect(err).NotTo(HaveOccurred())
	admin, err := client.New(access, client.Options{Scheme: scheme.New()})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() (string, error) {
		object := &v1alpha1.IchorInstallation{}
		err := admin.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: v1alpha1.IchorInstallationName}, object)
		return fmt.Sprint(object.Status.Mode), err
	}).WithContext(ctx).WithTimeout(within).Should(Equal("Standalone"))

	target := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "prod-1"}}
	g.Expect(admin.Create(ctx, target)).To(Succeed())
	hubService := &service.Service{Client: admin, Now: time.Now}
	plan, err := hubService.Plan(ctx, service.Order{
		Cluster: client.ObjectKeyFromObject(target), Spec: v1alpha1.TalosOperationSpec{ClusterName: "prod-1", Kind: v1alpha1.IchorKind},
		Target: v1alpha1.OperationTarget{IchorVersion: next},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(plan.Refusals).To(ConsistOf(And(HaveField("Gate", v1alpha1.HubUpgradableGate), HaveField("Message", And(
		ContainSubstring("the hub runs standalone"), ContainSubstring("replace the binary"))))))
	_, err = hubService.Create(ctx, plan, service.CreateOptions{})
	g.Expect(err).To(MatchError(ContainSubstring("the hub runs standalone")))
	object := &v1alpha1.IchorInstallation{}
	g.Expect(admin.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: v1alpha1.IchorInstallationName}, object)).To(Succeed())
	g.Expect(object.Spec.Version).To(BeEmpty(), "nothing was written")
}
